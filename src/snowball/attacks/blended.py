"""A blended image as a backdoor trigger.

Chen, Liu, Li, Lu, Song: Targeted Backdoor Attacks on Deep Learning Systems Using Data Poisoning, 2017.

The trigger covers the whole image faintly, so that no small group of pixels reveals it.

Deviations: the pattern is noise at an opacity of 0.2; the original uses a cartoon, glasses and noise.
"""

from dataclasses import dataclass

from snowball.attacks.cba import CBA


@dataclass(frozen=True)
class Blended(CBA):
    """Every malicious client blends a faint pattern into the whole image."""

    trigger: str = "noise"
