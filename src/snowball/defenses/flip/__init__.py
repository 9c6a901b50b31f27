"""FLIP: clients harden the model against triggers that they invert from it."""

from snowball.defenses.flip.inversion import InversionSettings
from snowball.defenses.flip.method import FLIP

__all__ = ["FLIP", "InversionSettings"]
