"""How well do defenses hold?"""
