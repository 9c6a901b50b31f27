"""Snowball as its paper describes it: both elections, the bottom-up one alone, and the paper's two ablations."""

from snowball.defenses.snowball.method import Snowball, SnowballMinus
from snowball.defenses.snowball.vae import VAESettings
from snowball.defenses.snowball.voting import VotingCenter, VotingRandom

__all__ = ["Snowball", "SnowballMinus", "VAESettings", "VotingCenter", "VotingRandom"]
