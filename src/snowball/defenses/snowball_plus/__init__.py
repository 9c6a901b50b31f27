"""Snowball-plus: ballots that find backdoors which distances between updates do not show."""

from snowball.defenses.snowball_plus.method import SnowballPlus

__all__ = ["SnowballPlus"]
