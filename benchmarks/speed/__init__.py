"""How fast is it, how much memory does it take, and how do both grow?"""
