import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from snowball.attacks import ATTACKS, CBA
from snowball.data import DATASETS, Dataset, load_dataset
from snowball.data.partition import PARTITIONS, partition_iid
from snowball.data.triggers import TRIGGERS, TriggerInfo, find_trigger
from snowball.defenses import DEFENSES, FedAvg, Snowball
from snowball.errors import DataError, SettingError
from snowball.models import CNN, MODELS, ModelInfo, build_model
from snowball.registry import IMPORT_FOLDERS, Registry
from snowball.rng import stream
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sweeps.grid import name_run
from snowball.testing import make_toy_images


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of another package, which holds what tests put there."""
    module = ModuleType("stranger")
    monkeypatch.setitem(sys.modules, "stranger", module)
    return module


def install(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Make entries of every group look as if a package brought them."""

    def found(group: str) -> list[EntryPoint]:
        return [EntryPoint(name, value, group) for name, value in values.items()]

    monkeypatch.setattr("snowball.registry.entry_points", found)


def test_other_packages_add_but_take_no_name(monkeypatch: pytest.MonkeyPatch, stranger: ModuleType) -> None:
    stranger.Thing = object  # type: ignore[attr-defined]
    install(monkeypatch, theirs="stranger:Thing", ours="stranger:Missing")
    registry = Registry("snowball.things", {"ours": int})
    assert dict(registry) == {"ours": int, "theirs": object}
    assert len(registry) == 2


def test_nothing_is_loaded_before_somebody_looks(monkeypatch: pytest.MonkeyPatch, stranger: ModuleType) -> None:
    install(monkeypatch, theirs="stranger:Thing")
    registry: Registry[Any] = Registry("snowball.things", {})
    stranger.Thing = object  # type: ignore[attr-defined]
    assert registry["theirs"] is object


BAD = [
    ("nowhere:Thing", "No module named 'nowhere'"),
    ("stranger:Missing", "module 'stranger' has no attribute 'Missing'"),
    ("stranger:Thing", "it has no __call__, view, poison"),
]


@pytest.mark.parametrize(("value", "fault"), BAD)
def test_a_package_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, stranger: ModuleType, value: str, fault: str
) -> None:
    stranger.Thing = object  # type: ignore[attr-defined]
    install(monkeypatch, theirs=value)
    registry = Registry("snowball.things", {"ours": int}, required_attributes=("__call__", "view", "poison"))
    for _ in range(2):
        with pytest.raises(SettingError) as error:
            registry["ours"]
        assert str(error.value) == (
            f"{value}, which an installed package adds to snowball.things as 'theirs', cannot be used: {fault}"
        )


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *BAD,
        *((name, "expected module:name, ") for name in ("./file.py:Thing", ":Thing", "stranger:", "a b:c", "a:b:c")),
    ],
)
def test_a_name_that_cannot_be_imported_is_one_sentence(stranger: ModuleType, name: str, fault: str) -> None:
    stranger.Thing = object  # type: ignore[attr-defined]
    registry: Registry[Any] = Registry("snowball.things", {}, required_attributes=("__call__", "view", "poison"))
    for look_up in (registry.__getitem__, registry.get, registry.__contains__):
        with pytest.raises(SettingError) as error:
            look_up(name)
        assert str(error.value).startswith(f"thing {name!r} cannot be used: {fault}")


@pytest.mark.parametrize(
    ("raised", "said"),
    [(ValueError("one\n  two"), "one two"), (ValueError(), "ValueError"), (SystemExit(3), "3")],
)
def test_a_fault_of_many_lines_or_none_is_one_line(
    monkeypatch: pytest.MonkeyPatch, stranger: ModuleType, raised: BaseException, said: str
) -> None:
    def fail(name: str) -> Any:
        raise raised

    install(monkeypatch, theirs="stranger:Thing")
    stranger.__getattr__ = fail  # type: ignore[method-assign]
    with pytest.raises(SettingError, match=f"cannot be used: {said}$"):
        list(Registry("snowball.things", {}))


def test_the_working_folder_is_searched_only_where_it_is_asked_for_and_after_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "beside_the_user.py").write_text("class Inner:\n    thing = int\n")
    (tmp_path / "json.py").write_text("thing = None\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("snowball.registry.IMPORT_FOLDERS", [])
    monkeypatch.chdir(tmp_path)
    registry: Registry[Any] = Registry("snowball.things", {"ours": int})
    with pytest.raises(SettingError, match="No module named 'beside_the_user'"):
        registry["beside_the_user:Inner"]
    monkeypatch.setattr("snowball.registry.IMPORT_FOLDERS", ["."])
    assert registry["ours"] is int
    assert str(tmp_path) not in sys.path
    assert registry["beside_the_user:Inner.thing"] is int
    assert sys.path[-1] == str(tmp_path)
    assert list(registry) == ["ours"]
    del sys.modules["beside_the_user"]


def test_only_the_command_line_searches_the_working_folder() -> None:
    assert IMPORT_FOLDERS in ([], ["."])  # the latter once a test has called `snowball.cli.main`


@dataclass(frozen=True)
class Average(FedAvg):
    """Average all."""

    share: float = 1.0


@dataclass(frozen=True)
class Loud(CBA):
    """Plant a trigger."""


@dataclass(frozen=True)
class Toys:
    """Images that are made up."""

    name: str = "toys"
    summary: str = "images that are made up"
    needs: str = ""

    def locate(self) -> None:
        return None

    def fetch(self) -> None:
        return None

    def load(self) -> Dataset:
        return make_toy_images(120)


class Nothing(Toys):
    """A data set that loads something else."""

    def load(self) -> Any:
        return 3


class Edge:
    """A line of pixels."""

    make = staticmethod(TRIGGERS["white-square"].make)


def halves(labels: Any, clients: int, rng: np.random.Generator, swap: bool = False) -> Any:
    return partition_iid(labels, clients, rng)


def small_cnn(input_shape: tuple[int, int, int], classes: int) -> CNN:
    """A small network."""
    return CNN((2, 2, 4), input_shape, classes)


Open = tuple[Registry[Any], Any, Callable[[Any], bool]]
OPEN: dict[str, Open] = {
    "defense": (DEFENSES, Average, lambda entry: entry is Average),
    "attack": (ATTACKS, Loud, lambda entry: entry is Loud),
    "dataset": (DATASETS, Toys, lambda entry: entry == Toys()),
    "data set object": (DATASETS, Toys("other"), lambda entry: entry == Toys("other")),
    "trigger": (TRIGGERS, Edge, lambda entry: isinstance(entry, Edge)),
    "trigger info": (TRIGGERS, TRIGGERS["noise"], lambda entry: isinstance(entry, TriggerInfo)),
    "partition": (PARTITIONS, halves, lambda entry: entry is halves),
    "model": (MODELS, small_cnn, lambda entry: entry.summary == "A small network."),
    "model info": (MODELS, ModelInfo("own", "own", small_cnn), lambda entry: entry.summary == "own"),
    "model partial": (MODELS, partial(CNN, widths=(2, 2, 4)), lambda entry: isinstance(entry, ModelInfo)),
}


@pytest.mark.parametrize("kind", OPEN)
def test_every_registry_takes_an_entry_point_and_a_name_to_import(
    monkeypatch: pytest.MonkeyPatch, stranger: ModuleType, kind: str
) -> None:
    registry, given, is_right = OPEN[kind]
    stranger.thing = given  # type: ignore[attr-defined]
    install(monkeypatch, theirs="stranger:thing")
    again: Registry[Any] = Registry(registry.group, registry.own_entries, registry.required_attributes, registry.adapt)
    assert [*again] == [*registry.own_entries, "theirs"]
    assert is_right(again["theirs"])
    assert is_right(again["stranger:thing"])
    assert again["stranger:thing"] is again["stranger:thing"]


@dataclass(frozen=True)
class Silent:
    """It judges nothing."""


REFUSED: list[tuple[Registry[Any], Any, str]] = [
    (DEFENSES, FedAvg(), "it is not a dataclass"),
    (DEFENSES, Edge, "it is not a dataclass"),
    (DEFENSES, Silent, "it has no __call__"),
    (ATTACKS, Edge, "it is not a dataclass"),
    (ATTACKS, Silent, "it has no knowledge, target, trigger, poison, probe"),
    (DATASETS, Silent, "it has no name, summary, needs, locate, fetch, load"),
    (DATASETS, partition_iid, "it has no name, summary, needs, locate, fetch, load"),
    (TRIGGERS, Silent, "it has no make"),
    (PARTITIONS, Silent, "it is not a function"),
    (PARTITIONS, partial(halves, swap=True), "it is not a function"),
    (PARTITIONS, 3, "it is not a function"),
    (MODELS, 3, "it is neither a torch module's class, nor a function that makes one, nor a ModelInfo"),
]


@pytest.mark.parametrize(("registry", "given", "fault"), REFUSED)
def test_every_registry_refuses_what_it_cannot_use(
    stranger: ModuleType, registry: Registry[Any], given: Any, fault: str
) -> None:
    stranger.thing = given  # type: ignore[attr-defined]
    again: Registry[Any] = Registry(registry.group, {}, registry.required_attributes, registry.adapt)
    with pytest.raises(SettingError, match=f"'stranger:thing' cannot be used: {fault}$"):
        again["stranger:thing"]


def test_our_registries_have_their_groups_and_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    registries: list[Registry[Any]] = [ATTACKS, DEFENSES, DATASETS, MODELS, PARTITIONS, TRIGGERS]
    names = ["attacks", "defenses", "datasets", "models", "partitions", "triggers"]
    assert [registry.group for registry in registries] == [f"snowball.{name}" for name in names]
    assert (ATTACKS["cba"], DEFENSES["snowball"]) == (CBA, Snowball)
    with monkeypatch.context() as patch:
        patch.setitem(ATTACKS, "other", CBA)
        assert ATTACKS["other"] is CBA
    assert "other" not in ATTACKS
    for registry in registries:
        for entry in registry.own_entries.values():
            assert all(hasattr(entry, name) for name in registry.required_attributes)


SETTINGS = {
    "rounds": 1,
    "cohort": 4,
    "data": {"name": f"{__name__}:Toys", "clients": 4, "partition": f"{__name__}:halves", "swap": True},
    "model": {"name": f"{__name__}:small_cnn"},
    "attack": {"name": f"{__name__}:Loud", "trigger": f"{__name__}:Edge", "malicious": 0.5},
    "defense": {"name": f"{__name__}:Average", "share": 0.5},
}


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this module be imported by its name."""
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or ModuleType(__name__))
    vars(sys.modules[__name__]).update({each.__name__: each for each in (Average, Loud, Toys, Edge, halves, small_cnn)})


@pytest.mark.usefixtures("importable")
def test_settings_name_everything_by_module_and_records_keep_the_name() -> None:
    experiment = Experiment.parse(SETTINGS)
    assert experiment.defense.build() == Average(share=0.5)
    assert experiment.dump_settings()["defense"] == {**SETTINGS["defense"], "before": []}
    assert experiment.dump_settings()["data"]["partition"] == f"{__name__}:halves"
    assert Experiment.parse(experiment.dump_settings()) == experiment
    name = name_run(experiment)
    assert "Toys" in name
    assert ":" not in name
    federation = Federation.build(experiment)
    assert len(federation.parts) == 4
    assert isinstance(federation.build_model(), CNN)
    assert isinstance(build_model(f"{__name__}:small_cnn", (1, 28, 28), 10, stream(0)), CNN)
    assert load_dataset(f"{__name__}:Toys").name == "toy images"
    with pytest.raises(DataError, match=r":Nothing returned int, a snowball\.data\.Dataset is needed"):
        load_dataset(f"{__name__}:Nothing")
    assert isinstance(find_trigger(f"{__name__}:Edge"), Edge)


@pytest.mark.usefixtures("importable")
def test_parts_of_a_defense_are_named_by_module_too() -> None:
    settings: dict[str, Any] = {
        **SETTINGS,
        "defense": {"name": "intersection", "members": ["krum", f"{__name__}:Average"]},
    }
    assert Experiment.parse(settings).defense.build().members[1] == Average()  # type: ignore[attr-defined]


def untyped(labels: Any, clients: int, rng: Any, swap=False) -> Any:  # type: ignore[no-untyped-def]
    return ()


def misspelt(labels: Any, clients: int, rng: Any, swap: "bol" = False) -> Any:  # type: ignore[name-defined]  # noqa: F821
    return ()


def single(labels: Any, clients: int, rng: Any) -> Any:
    return partition_iid(labels, 1, rng)


@dataclass(frozen=True)
class Strange(FedAvg):
    """A field of it cannot be written in TOML."""

    table: np.random.Generator = field(default_factory=np.random.default_rng)


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (untyped, "untyped has a setting without a type: 'swap'"),
        (misspelt, "misspelt has a setting without a type: name 'bol' is not defined"),
        (single, "data.partition = 'stranger:thing' made 1 parts for data.clients = 4"),
        (Strange, "stranger:thing has a field that no setting can fill: Unable to generate"),
    ],
)
def test_settings_that_cannot_be_filled_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, stranger: ModuleType, given: Any, fault: str
) -> None:
    stranger.thing = given  # type: ignore[attr-defined]
    for registry in (PARTITIONS, DEFENSES):
        monkeypatch.setattr(registry, "_imported", {})
    data = {"name": f"{__name__}:Toys", "clients": 4}
    changed = {"defense": {"name": "stranger:thing"}} if given is Strange else {"data": {"partition": "stranger:thing"}}
    settings = {**SETTINGS, **changed, "data": {**data, **changed.get("data", {})}}
    with pytest.raises(SettingError) as error:
        Federation.build(Experiment.parse(settings))
    assert fault in str(error.value)
    assert "\n" not in str(error.value)
