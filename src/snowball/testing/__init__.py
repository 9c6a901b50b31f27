"""Checks for defenses and attacks: the built-in ones pass them, and yours can be tested with them too.

    from snowball.testing import check_attack, check_defense

    def test_my_defense():
        check_defense(MyDefense())

    def test_my_attack():
        check_attack(MyAttack())

`check_defense` needs hypothesis: `pip install 'hypothesis>=6.100'`.
"""

from snowball.testing.attacks import ATTACK_CHECKS, check_attack
from snowball.testing.defenses import CHECKS, check_defense, run_two_rounds
from snowball.testing.rounds import make_toy_round
from snowball.testing.toys import ToySession, make_toy_images, make_toy_texts, make_toy_view

__all__ = [
    "ATTACK_CHECKS",
    "CHECKS",
    "ToySession",
    "check_attack",
    "check_defense",
    "make_toy_images",
    "make_toy_round",
    "make_toy_texts",
    "make_toy_view",
    "run_two_rounds",
]
