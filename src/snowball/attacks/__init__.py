"""Attacks, by name."""

from snowball.attacks.adaptive import Adaptive
from snowball.attacks.alie import Alie
from snowball.attacks.base import Attack, CraftingAttack, Plot, Scene, TrainingAttack, View, Work, plot_of
from snowball.attacks.blended import Blended
from snowball.attacks.cba import Cba
from snowball.attacks.dba import Dba
from snowball.attacks.edge_case import EdgeCase
from snowball.attacks.evasive import Evasive
from snowball.attacks.ipm import Ipm
from snowball.attacks.label_flip import LabelFlip
from snowball.attacks.layer_poison import LayerPoison
from snowball.attacks.min_max import MinMax
from snowball.attacks.min_sum import MinSum
from snowball.attacks.model_replacement import ModelReplacement
from snowball.attacks.neurotoxin import Neurotoxin
from snowball.attacks.pgd import Pgd
from snowball.attacks.text import Text
from snowball.registry import OpenTable

ATTACKS: OpenTable[type[Attack]] = OpenTable(
    "snowball.attacks",
    {
        "cba": Cba,
        "dba": Dba,
        "text": Text,
        "blended": Blended,
        "edge-case": EdgeCase,
        "label-flip": LabelFlip,
        "model-replacement": ModelReplacement,
        "pgd": Pgd,
        "neurotoxin": Neurotoxin,
        "layer-poison": LayerPoison,
        "adaptive": Adaptive,
        "evasive": Evasive,
        "alie": Alie,
        "ipm": Ipm,
        "min-max": MinMax,
        "min-sum": MinSum,
    },
    needs=("__call__", "view", "poison", "probe"),
)

__all__ = [
    "ATTACKS",
    "Adaptive",
    "Alie",
    "Attack",
    "Blended",
    "Cba",
    "CraftingAttack",
    "Dba",
    "EdgeCase",
    "Evasive",
    "Ipm",
    "LabelFlip",
    "LayerPoison",
    "MinMax",
    "MinSum",
    "ModelReplacement",
    "Neurotoxin",
    "Pgd",
    "Plot",
    "Scene",
    "Text",
    "TrainingAttack",
    "View",
    "Work",
    "plot_of",
]
