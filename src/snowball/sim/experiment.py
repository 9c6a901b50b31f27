"""The settings of one run: read from TOML, checked once, written whole into run.json."""

from collections import ChainMap
from collections.abc import Collection, Mapping
from math import floor
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from snowball.attacks import ATTACKS, Attack
from snowball.data import DATASETS, DEFAULT_TOKENISER, TOKENISERS
from snowball.data.partition import PARTITIONS
from snowball.defenses import DEFENSES, Defense
from snowball.defenses.build import assemble_defense
from snowball.errors import SettingError
from snowball.models import MODELS
from snowball.registry import suggest_name
from snowball.settings import Choice, Section, Settings, Table, describe_fault, make_known_validator


def no_attack() -> None:
    """Nobody attacks."""


class DataSettings(Choice):
    """What is learnt from, and how it is spread over the clients; further settings belong to the partition."""

    chooser: ClassVar[str] = "data.partition"
    table: ClassVar[Table] = PARTITIONS
    name: Annotated[str, make_known_validator("data.name", DATASETS)]
    clients: int = Field(ge=1)
    partition: str = "dirichlet-plain"
    examples: int | None = Field(default=None, ge=1)  # so many of the training examples, at random
    tokeniser: Annotated[str, make_known_validator("data.tokeniser", TOKENISERS)] = (
        DEFAULT_TOKENISER  # cuts texts into words
    )


class ModelSettings(Section):
    """What is trained."""

    name: Annotated[str, make_known_validator("model.name", MODELS)]


class TrainingSettings(Section):
    """How a client trains: SGD with momentum that starts anew each round."""

    epochs: int = Field(default=5, ge=1)
    batch: int = Field(default=10, ge=1)
    lr: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    decay: float = Field(default=0.99, gt=0, le=1)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0, allow_inf_nan=False)

    def rate(self, round: int) -> float:
        """The learning rate of a round, counted from 1: as published, the first has decayed already."""
        return self.lr * self.decay**round


class AttackSettings(Choice):
    """Who attacks, and how; further settings belong to the attack."""

    chooser: ClassVar[str] = "attack.name"
    table: ClassVar[Table] = ChainMap({"none": no_attack}, ATTACKS)  # type: ignore[arg-type]
    name: str = "none"
    malicious: float = Field(default=0.2, ge=0, le=1)  # share of the clients
    draw: Literal["exact", "same", "random"] = "exact"  # the share of every cohort; the same clients; as it comes
    first_round: int = Field(default=1, ge=1)
    last_round: int | None = Field(default=None, ge=1)
    share_of_rounds: float = Field(default=1, gt=0, le=1)  # of those from first to last, at random

    def attackers(self, clients: int) -> int:
        """Attackers among so many clients."""
        return 0 if self.name == "none" else floor(round(self.malicious * clients, 9))

    def build(self) -> Attack | None:
        """The attack, if there is one."""
        attack: Attack | None = self.table[self.name](**self.own)
        return attack


class DefenseSettings(Choice):
    """Who is let into the average; further settings belong to the defense."""

    chooser: ClassVar[str] = "defense.name"
    table: ClassVar[Table] = DEFENSES
    name: str

    def build(self, malicious: Collection[str] = frozenset()) -> Defense:
        """The defense; only one that has a field for it is told who is malicious."""
        return assemble_defense(self.name, self.own, malicious)


class Experiment(Section):
    """Everything that decides a run's results."""

    seed: int = Field(default=0, ge=0)
    rounds: int = Field(ge=1)
    cohort: int = Field(ge=1)  # clients a round
    data: DataSettings
    model: ModelSettings
    training: TrainingSettings = TrainingSettings()
    attack: AttackSettings = AttackSettings()
    defense: DefenseSettings

    @model_validator(mode="after")
    def agree(self) -> Self:
        """Refuse settings that contradict each other, and what attack and defense themselves refuse."""
        groups = {"data.clients": self.data.clients, "cohort": self.cohort}
        if self.cohort > self.data.clients:
            raise SettingError(f"cohort = {self.cohort} is more than data.clients = {self.data.clients}")
        if self.attack.draw == "random":
            del groups["cohort"]
        for name, size in groups.items():
            if self.attack.build() and self.attack.malicious > 0 and not self.attack.attackers(size):
                raise SettingError(f"attack.malicious = {self.attack.malicious} of {name} = {size} is nobody")
        self.defense.build()
        return self

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> Self:
        """The experiment of these settings; a fault is one sentence."""
        refuse_unknown(settings)
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise SettingError(describe_fault(error)) from error

    def settings(self) -> Settings:
        """All settings, defaults too, as plain JSON that `parse` reads."""
        return self.model_dump(mode="json")


SECTIONS: dict[str, type[Section]] = {
    "data": DataSettings,
    "model": ModelSettings,
    "training": TrainingSettings,
    "attack": AttackSettings,
    "defense": DefenseSettings,
}

CHOICES = {section.chooser: section for section in SECTIONS.values() if issubclass(section, Choice)}
"""The sections in which something is chosen by name, by the setting that chooses."""


def refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Refuse a setting or a section that does not exist; a `Choice` looks after its own."""
    for name in settings:
        if name not in Experiment.model_fields:
            raise SettingError(f"{name} is not a setting{suggest_name(name, Experiment.model_fields)}")
    for section, model in SECTIONS.items():
        given = settings.get(section, {})
        if not isinstance(given, Mapping):
            first = next(iter(model.model_fields))
            raise SettingError(f"{section} is a section: did you mean {section}.{first}={given}?")
        for name in sorted(set(given) - set(model.model_fields) if not issubclass(model, Choice) else ()):
            raise SettingError(
                f"{section}.{name} is not a setting of {section}{suggest_name(name, model.model_fields)}"
            )
