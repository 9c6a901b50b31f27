"""Weak differential privacy: clipped updates, and a little noise on their mean.

Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019. Norm clipping bounds what an
attacker can send; noise blurs what is left of it. There is too little noise for a promise of privacy, hence weak.

Deviations: as in norm clipping, the server shortens and the mean is plain. Noise goes on the mean, once a round.
"""

from dataclasses import dataclass, replace

from snowball.defenses.base import Context, Verdict
from snowball.defenses.norm_clip import NormClip, check_bound
from snowball.defenses.ops import add_noise
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class WeakDP:
    """Average all updates, the long ones shortened, and add Gaussian noise.

    Attributes:
        bound: the greatest length (the paper's M), as in norm clipping.
        noise: standard deviation of the noise on every entry of the mean (the paper's sigma).
    """

    bound: float = 3.0
    noise: float = 0.025

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_bound(self.bound)
        if not 0 <= self.noise < float("inf"):
            raise SettingError(f"noise must be a standard deviation, zero or more, got {self.noise}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Shorten what is too long, average and add noise."""
        clipped = NormClip(self.bound)(updates, context)
        return replace(clipped, delta=add_noise(clipped.delta, self.noise, context.stream("noise")))
