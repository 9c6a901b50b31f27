"""The checks that every defense and every attack passes, for our own methods and for other people's.

    from snowball.testing import check_attack, check_defense

    def test_my_defense():
        check_defense(MyDefense())

    def test_my_attack():
        check_attack(MyAttack())

`check_defense` needs hypothesis: `pip install 'snowball-fl[testing]'`.
"""

from snowball.testing.attacks import ATTACK_CHECKS, check_attack
from snowball.testing.defenses import CHECKS, check_defense, play
from snowball.testing.rounds import toy_round
from snowball.testing.scenes import ToyWork, toy_images, toy_scene, toy_texts

__all__ = [
    "ATTACK_CHECKS",
    "CHECKS",
    "ToyWork",
    "check_attack",
    "check_defense",
    "play",
    "toy_images",
    "toy_round",
    "toy_scene",
    "toy_texts",
]
