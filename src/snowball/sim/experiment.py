"""Settings of one run: read from TOML, checked once, and written in full into run.json."""

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import floor
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from torch import nn

from snowball.attacks import ATTACKS, Attack
from snowball.data import DATASETS, DEFAULT_TOKENISER, TOKENISERS, Dataset
from snowball.data.partition import PARTITIONS
from snowball.defenses import DEFENSES, Defense
from snowball.defenses.build import assemble_defense, complete_mixings
from snowball.errors import SettingError
from snowball.models import MODELS
from snowball.models.own import describe_model
from snowball.models.start import compute_start_sha256
from snowball.registry import OWN_NAME, suggest_name
from snowball.setting_docs import SettingInfo, describe_choice, describe_section
from snowball.settings import (
    Choice,
    Section,
    Settings,
    Table,
    describe_fault,
    flatten_settings,
    make_known_validator,
)


def make_no_attack() -> None:
    """Return no attack: all clients are benign."""


def sort_rounds(rounds: Any) -> Any:
    """Return a list of rounds in order, each once, so that the same rounds have the same settings."""
    if not isinstance(rounds, list | tuple) or not all(type(round) is int for round in rounds):
        raise SettingError(f"attack.in_rounds must be a list of whole numbers, such as [5, 10], got {rounds!r}")
    if rounds and min(rounds) < 1:
        raise SettingError(f"attack.in_rounds counts rounds from 1, got {min(rounds)}")
    return tuple(sorted(set(rounds)))


class DataSettings(Choice):
    """Data set and its partition among the clients; further settings belong to the partition.

    Attributes:
        name: the data set; `snowball list datasets` names them.
        clients: number of clients that the training examples are split among.
        partition: how they are split; `snowball list partitions` names the ways.
        examples: training examples to use, drawn at random; all by default.
        tokeniser: how texts are split into words: "words", or "published" as in the code published with the paper.
    """

    chooser: ClassVar[str] = "data.partition"
    table: ClassVar[Table] = PARTITIONS
    name: Annotated[str, make_known_validator("data.name", ChainMap({OWN_NAME: None}, DATASETS))]
    clients: int = Field(ge=1)
    partition: str = "dirichlet-plain"
    examples: int | None = Field(default=None, ge=1)
    tokeniser: Annotated[str, make_known_validator("data.tokeniser", TOKENISERS)] = DEFAULT_TOKENISER


class ModelSettings(Section):
    """Model to train.

    Attributes:
        name: the model; `snowball list models` names them.
        start: weights that the first global model has: the name of a shipped start, or a file of safetensors; none
            for weights that the seed draws.
        start_sha256: SHA-256 of the file of the start; filled in if it is left out.
    """

    name: Annotated[str, make_known_validator("model.name", ChainMap({OWN_NAME: None}, MODELS))]
    start: str | None = None
    start_sha256: str | None = None

    @model_validator(mode="before")
    @classmethod
    def enter_sha256(cls, values: Any) -> Any:
        """Enter the SHA-256 of the start's file, unless it is given: the settings then say what a run started from."""
        if not isinstance(values, dict) or not isinstance(values.get("start"), str | None):
            return values  # pydantic describes this fault well
        start, given = values.get("start"), values.get("start_sha256")
        if start is None and given is not None:
            raise SettingError("model.start_sha256 is that of the file in model.start, which is not set")
        return values if start is None or given is not None else values | {"start_sha256": compute_start_sha256(start)}


class TrainingSettings(Section):
    """Local training by SGD; its momentum starts at zero in every round.

    Attributes:
        epochs: passes over a client's samples per round.
        batch: samples per step.
        lr: learning rate before the first decay.
        decay: factor of the learning rate per round: in round t, counted from 1, it is `lr * decay**t`.
        momentum: share of the former step that is added to a step.
        weight_decay: share of a parameter that is added to its gradient.
    """

    epochs: int = Field(default=5, ge=1)
    batch: int = Field(default=10, ge=1)
    lr: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    decay: float = Field(default=0.99, gt=0, le=1)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0, allow_inf_nan=False)

    def compute_rate(self, round: int) -> float:
        """Return the learning rate of a round, counted from 1; as published, it has already decayed in the first."""
        return self.lr * self.decay**round


class AttackSettings(Choice):
    """Attack, and the clients and rounds that it uses; further settings belong to the attack.

    Attributes:
        name: the attack, or "none"; `snowball list attacks` names them.
        malicious: share of all clients that is malicious.
        draw: how attackers get into cohorts: "exact" for a fixed share of every cohort, drawn from all attackers,
            "same" for that share, always the same ones, or "random" to draw attackers like everybody else.
        first_round: the first round in which attackers attack; in other rounds they train like everybody else.
        last_round: the last round in which they attack; none for no last one.
        in_rounds: of the rounds from first to last, those in which they attack; empty for all.
        share_of_rounds: share of these rounds in which they attack, drawn at random.
    """

    chooser: ClassVar[str] = "attack.name"
    table: ClassVar[Table] = ChainMap({"none": make_no_attack}, ATTACKS)  # type: ignore[arg-type]
    name: str = "none"
    malicious: float = Field(default=0.2, ge=0, le=1)
    draw: Literal["exact", "same", "random"] = "exact"
    first_round: int = Field(default=1, ge=1)
    last_round: int | None = Field(default=None, ge=1)
    in_rounds: Annotated[tuple[int, ...], BeforeValidator(sort_rounds)] = ()
    share_of_rounds: float = Field(default=1, gt=0, le=1)

    def count_attackers(self, clients: int) -> int:
        """Return how many of this many clients are malicious."""
        return 0 if self.name == "none" else floor(round(self.malicious * clients, 9))

    def build(self) -> Attack | None:
        """Build the attack; None if nobody attacks."""
        attack: Attack | None = self.table[self.name](**self.own)
        return attack


class DefenseSettings(Choice):
    """Defense of the server; further settings belong to the defense.

    Attributes:
        name: the defense; `snowball list defenses` names them.
        before: what mixes the updates before the defense judges, in this order: "nnm", "bucketing" or "arc", by name or
            as sections with a name and settings; "none" for nothing.
    """

    chooser: ClassVar[str] = "defense.name"
    table: ClassVar[Table] = DEFENSES
    name: str
    before: Annotated[tuple[Settings, ...], BeforeValidator(partial(complete_mixings, "defense.before"))] = ()

    def build(self, malicious: Collection[str] = frozenset()) -> Defense:
        """Build the defense; it learns who is malicious only if it has a field for that."""
        return assemble_defense(self.name, self.own, malicious, self.before)


class FaultSettings(Section):
    """Shares of the clients of a round that a fault strikes, drawn by the seed; none by default.

    Attributes:
        dropped: send no reply.
        slow: take longer than their time limit, whenever they are tried.
        duplicated: send their reply twice.
        corrupted: send a reply in which random bits were flipped.
        killed: lose their worker process in the first try, and this share of those in the second try, too.
    """

    dropped: float = Field(default=0, ge=0, le=1)
    slow: float = Field(default=0, ge=0, le=1)
    duplicated: float = Field(default=0, ge=0, le=1)
    corrupted: float = Field(default=0, ge=0, le=1)
    killed: float = Field(default=0, ge=0, le=1)


class Experiment(Section):
    """All settings that determine the results of a run, and the data and model of the caller's own, if given.

    Attributes:
        seed: decides everything random, through named streams.
        rounds: number of rounds.
        cohort: clients per round.
        timeout: seconds that a worker process may take for a client at least; slow clients get a multiple of the
            slowest so far. Then the client is tried again in a fresh process, and left out if it fails again.
    """

    seed: int = Field(default=0, ge=0)
    rounds: int = Field(ge=1)
    cohort: int = Field(ge=1)
    timeout: float = Field(default=600, gt=0, le=1e6)
    data: DataSettings
    model: ModelSettings
    training: TrainingSettings = TrainingSettings()
    attack: AttackSettings = AttackSettings()
    defense: DefenseSettings
    faults: FaultSettings = FaultSettings()
    _own_data: Dataset | None = PrivateAttr(None)
    _own_model: nn.Module | None = PrivateAttr(None)

    @property
    def own_data(self) -> Dataset | None:
        """The data that the caller gave; None if `data.name` names it."""
        return self._own_data

    @property
    def own_model(self) -> nn.Module | None:
        """The first global model that the caller gave; None if `model.name` names a model."""
        return self._own_model

    def describe_own(self) -> dict[str, dict[str, Any]]:
        """Describe the caller's own data and model for a run's record; empty if settings name both."""
        data = {} if self.own_data is None else {"data": dict(self.own_data.provenance)}
        return data if self.own_model is None else data | {"model": describe_model(self.own_model)}

    def with_own(self, data: Dataset | None, model: nn.Module | None) -> Self:
        """Return this experiment on data and with a model of the caller's own; None for those that settings name."""
        experiment = self.model_copy()
        experiment._own_data, experiment._own_model = data, model
        return experiment

    @model_validator(mode="after")
    def refuse_contradictions(self) -> Self:
        """Refuse settings that contradict each other or that the attack or the defense refuses."""
        groups = {"data.clients": self.data.clients, "cohort": self.cohort}
        if self.cohort > self.data.clients:
            raise SettingError(f"cohort = {self.cohort} is more than data.clients = {self.data.clients}")
        if self.attack.draw == "random":
            del groups["cohort"]
        for name, size in groups.items():
            if self.attack.build() and self.attack.malicious > 0 and not self.attack.count_attackers(size):
                share = f"attack.malicious = {self.attack.malicious} of {name} = {size}"
                raise SettingError(f"{share} rounds down to 0 clients")
        self.defense.build()
        return self

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings and build the experiment; an error is one sentence."""
        refuse_unknown(settings)
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise SettingError(describe_fault(error)) from error

    def dump_settings(self) -> Settings:
        """Return all settings including defaults, as plain JSON that `parse` reads."""
        return self.model_dump(mode="json")


SECTIONS: dict[str, type[Section]] = {
    "data": DataSettings,
    "model": ModelSettings,
    "training": TrainingSettings,
    "attack": AttackSettings,
    "defense": DefenseSettings,
    "faults": FaultSettings,
}

CHOICES = {section.chooser: section for section in SECTIONS.values() if issubclass(section, Choice)}
"""Sections in which one setting chooses an implementation by name, by that setting."""


def describe_settings() -> dict[str, list[SettingInfo]]:
    """Describe the settings that every experiment has, by section; those of no section are under an empty name."""
    own = [each for each in describe_section(Experiment) if each.name not in SECTIONS]
    return {"": own} | {name: list(describe_section(model, f"{name}.")) for name, model in SECTIONS.items()}


def describe_experiment(experiment: Experiment) -> Iterator[SettingInfo]:
    """Describe all settings of an experiment; the default of each is its value there."""
    described = [each for section in describe_settings().values() for each in section]
    for section in CHOICES.values():
        path, key = section.chooser.split(".")
        chosen = section.table[getattr(getattr(experiment, path), key)]
        described += describe_choice(chosen, section.table, f"{path}.")
    values = flatten_settings(experiment.dump_settings())
    yield from (replace(each, default=values[each.name]) for each in described)


def refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Refuse a setting or a section that does not exist; a `Choice` checks its own settings."""
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
