"""Attacks, by name."""

from snowball.attacks.a3fl import A3FL
from snowball.attacks.adaptive import Adaptive
from snowball.attacks.alie import ALIE
from snowball.attacks.base import (
    Attack,
    AttackerView,
    AttackSetup,
    CraftingAttack,
    Knowledge,
    LocalSession,
    Loss,
    Memory,
    TrainingAttack,
    set_up_attack,
)
from snowball.attacks.blended import Blended
from snowball.attacks.cba import CBA
from snowball.attacks.cerp import CerP
from snowball.attacks.chameleon import Chameleon
from snowball.attacks.dba import DBA
from snowball.attacks.edge_case import EdgeCase
from snowball.attacks.evasive import Evasive
from snowball.attacks.iba import IBA
from snowball.attacks.ipm import IPM
from snowball.attacks.label_flip import LabelFlip
from snowball.attacks.layer_poison import LayerPoison
from snowball.attacks.memory import (
    AdaptationView,
    AdaptingAttack,
    RememberingAttack,
    StatefulAttack,
    TriggerLearningAttack,
    keeps_memory,
    recall_setup,
)
from snowball.attacks.min_max import MinMax
from snowball.attacks.min_sum import MinSum
from snowball.attacks.model_replacement import ModelReplacement
from snowball.attacks.neurotoxin import Neurotoxin
from snowball.attacks.pgd import PGD
from snowball.attacks.poisoning import Untargeted
from snowball.attacks.sdba import SDBA
from snowball.attacks.text import Text
from snowball.attacks.three_dfed import ThreeDFed
from snowball.registry import Registry, require_dataclass

ATTACKS: Registry[type[Attack]] = Registry(
    "snowball.attacks",
    {
        "cba": CBA,
        "dba": DBA,
        "text": Text,
        "sdba": SDBA,
        "blended": Blended,
        "edge-case": EdgeCase,
        "label-flip": LabelFlip,
        "model-replacement": ModelReplacement,
        "pgd": PGD,
        "neurotoxin": Neurotoxin,
        "chameleon": Chameleon,
        "cerp": CerP,
        "layer-poison": LayerPoison,
        "a3fl": A3FL,
        "iba": IBA,
        "3dfed": ThreeDFed,
        "adaptive": Adaptive,
        "evasive": Evasive,
        "alie": ALIE,
        "ipm": IPM,
        "min-max": MinMax,
        "min-sum": MinSum,
    },
    required_attributes=("knowledge", "target", "trigger", "poison", "probe"),
    adapt=require_dataclass,
)

__all__ = [
    "A3FL",
    "ALIE",
    "ATTACKS",
    "CBA",
    "DBA",
    "IBA",
    "IPM",
    "PGD",
    "SDBA",
    "AdaptationView",
    "AdaptingAttack",
    "Adaptive",
    "Attack",
    "AttackSetup",
    "AttackerView",
    "Blended",
    "CerP",
    "Chameleon",
    "CraftingAttack",
    "EdgeCase",
    "Evasive",
    "Knowledge",
    "LabelFlip",
    "LayerPoison",
    "LocalSession",
    "Loss",
    "Memory",
    "MinMax",
    "MinSum",
    "ModelReplacement",
    "Neurotoxin",
    "RememberingAttack",
    "StatefulAttack",
    "Text",
    "ThreeDFed",
    "TrainingAttack",
    "TriggerLearningAttack",
    "Untargeted",
    "keeps_memory",
    "recall_setup",
    "set_up_attack",
]
