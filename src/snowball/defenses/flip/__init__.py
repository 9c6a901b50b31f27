"""FLIP: clients harden the model against triggers that they invert from it."""

from snowball.defenses.flip.inversion import InversionSettings
from snowball.defenses.flip.method import Flip

__all__ = ["Flip", "InversionSettings"]
