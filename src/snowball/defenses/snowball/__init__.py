"""The namesake: both elections, each alone beside its paper."""

from snowball.defenses.snowball.method import Snowball, SnowballMinus
from snowball.defenses.snowball.vae import VAESettings
from snowball.defenses.snowball.voting import VotingCenter, VotingRandom

__all__ = ["Snowball", "SnowballMinus", "VAESettings", "VotingCenter", "VotingRandom"]
