"""Backdoor attacks, by name."""

from snowball.attacks.base import Attack, triggered
from snowball.attacks.cba import Cba
from snowball.attacks.dba import Dba

__all__ = ["ATTACKS", "Attack", "Cba", "Dba", "triggered"]

ATTACKS: dict[str, type[Attack]] = {"cba": Cba, "dba": Dba}
