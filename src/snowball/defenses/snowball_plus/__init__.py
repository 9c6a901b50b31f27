"""Snowball-plus: ballots that see a backdoor where distances do not."""

from snowball.defenses.snowball_plus.method import SnowballPlus

__all__ = ["SnowballPlus"]
