"""A picture that shines through as a backdoor.

Chen, Liu, Li, Lu, Song: Targeted Backdoor Attacks on Deep Learning Systems Using Data Poisoning, 2017.

The trigger covers the whole image faintly, so that no few pixels give it away.

Deviations: the pattern is noise at an opacity of 0.2, the original's are a cartoon, glasses and noise.
"""

from dataclasses import dataclass

from snowball.attacks.cba import Cba


@dataclass(frozen=True)
class Blended(Cba):
    """Every malicious client plants a picture that shines through the whole image."""

    trigger: str = "noise"
