"""Why are the defaults what they are?"""
