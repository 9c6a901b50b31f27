"""Weak differential privacy: clip updates, and add a little noise to their mean.

Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019. Norm clipping bounds what an
attacker can send; noise masks the rest. The noise is too small to guarantee privacy, hence "weak".

Deviations: as in norm clipping, the server clips and the mean is unweighted. Noise goes on the mean, once per round.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from snowball.defenses.base import Context, Verdict
from snowball.defenses.norm_clip import NormClip, check_bound
from snowball.defenses.ops import add_noise
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class WeakDP:
    """Average all updates after clipping their lengths to a bound, and add Gaussian noise.

    Attributes:
        bound: the maximum length (the paper's M), as in norm clipping.
        noise: standard deviation of the noise on every entry of the mean (the paper's sigma).
    """

    min_updates: ClassVar[int] = 3
    bound: float = 3.0
    noise: float = 0.025

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_bound(self.bound)
        if not 0 <= self.noise < float("inf"):
            raise SettingError(f"noise must be a standard deviation, zero or more, got {self.noise}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Clip the long updates, average and add noise."""
        clipped = NormClip(self.bound)(updates, context)
        return replace(clipped, delta=add_noise(clipped.delta, self.noise, context.stream("noise")))
