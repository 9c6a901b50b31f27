from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar, Literal

import pytest

from snowball.data.partition import PARTITIONS
from snowball.errors import SettingError
from snowball.settings import Choice, Table, apply_assignments, collect_fields, complete_settings, parse_assignment
from snowball.sim.experiment import CHOICES


@dataclass(frozen=True)
class Inner:
    depth: int = 2
    width: float = 0.5


@dataclass(frozen=True)
class MultiKrum:
    tolerate: int
    elect: int | Literal["all"] = 1
    layers: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)
    malicious: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Median:
    elect: int = 3


def spread(labels: list[int], clients: int, alpha: float = 0.5) -> None:
    """Stands for a partition."""


TABLE: Table = {"krum": MultiKrum, "median": Median}


class Defense(Choice):
    chooser: ClassVar[str] = "defense.name"
    table: ClassVar[Table] = TABLE
    name: str


def fault(**settings: Any) -> str:
    with pytest.raises(SettingError) as caught:
        Defense.model_validate(settings)
    return str(caught.value)


def test_own_fields_are_a_dataclass_s_fields_without_the_truth_and_a_function_s_defaults() -> None:
    assert list(collect_fields(MultiKrum)) == ["tolerate", "elect", "layers", "inner"]
    assert list(collect_fields(spread)) == ["alpha"]


def test_defaults_are_filled_in() -> None:
    defense = Defense.model_validate({"name": "krum", "tolerate": 4})
    assert defense.own == {"tolerate": 4, "elect": 1, "layers": (), "inner": Inner()}


def test_unions_tuples_and_groups_get_their_types() -> None:
    given = {"name": "krum", "tolerate": 4, "elect": "all", "layers": ["a", "b"], "inner": {"depth": 3}}
    defense = Defense.model_validate(given)
    assert MultiKrum(**defense.own) == MultiKrum(4, "all", ("a", "b"), Inner(3))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tolerat": 4}, "defense.tolerat is not a setting of krum; did you mean 'tolerate'?"),
        ({"nam": "x", "tolerate": 1}, "defense.nam is not a setting of krum; did you mean 'name'?"),
        ({"zzz": 4}, "defense.zzz is not a setting of krum"),
        ({"malicious": ["1"]}, "defense.malicious is not a setting of krum"),
        ({}, "defense.tolerate is missing"),
        ({"tolerate": 1.5}, "defense.tolerate = 1.5 should be a valid integer"),
        ({"tolerate": True}, "defense.tolerate = true should be a valid integer"),
        ({"tolerate": 1, "elect": "al"}, "defense.elect = \"al\" should be a valid integer or should be 'all'"),
        (
            {"tolerate": 1, "inner": {"deth": 1}},
            "defense.inner.deth is not a setting of defense.inner; did you mean 'depth'?",
        ),
        ({"tolerate": 1, "inner": {"depth": "x"}}, 'defense.inner.depth = "x" should be a valid integer'),
        ({"tolerate": 1, "inner": 3}, "defense.inner = 3 is a group of settings, such as defense.inner.depth"),
    ],
)
def test_a_fault_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    assert fault(name="krum", **settings) == sentence


def test_an_unknown_choice_names_what_there_is() -> None:
    assert fault(name="krumm") == "defense.name = 'krumm' is not known; did you mean 'krum'?"
    assert fault(name="zzzzz") == "defense.name = 'zzzzz' is not known; there are krum, median"


def test_groups_keep_what_is_not_changed() -> None:
    @dataclass(frozen=True)
    class Outer:
        inner: Inner = field(default_factory=lambda: Inner(depth=9))

    assert complete_settings("outer", "outer", Outer, {"inner": {"width": 2}}, {}) == {"inner": Inner(9, 2.0)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b=0.5", 0.5),
        ("a.b=true", True),
        ('a.b="x y"', "x y"),
        ("a.b=gap", "gap"),
        ("a.b=fed=avg", "fed=avg"),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b=", ""),
        ("a.b=1\nc=2", "1\nc=2"),
    ],
)
def test_assignments_are_toml_values_or_else_strings(text: str, value: Any) -> None:
    assert parse_assignment(text) == ("a.b", value)


@pytest.mark.parametrize("text", ["rounds", "=3", "", ".=1", "a.=1", ".b=1", "a..b=1"])
def test_an_assignment_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(SettingError, match=r"expected a setting as a.b=c"):
        parse_assignment(text)


def test_override_leaves_the_settings_given_as_they_are() -> None:
    settings = {"rounds": 2, "data": {"clients": 3}}
    assert apply_assignments(settings, ["data.clients=4", "model.name=cnn"], {}) == {
        "rounds": 2,
        "data": {"clients": 4},
        "model": {"name": "cnn"},
    }
    assert settings == {"rounds": 2, "data": {"clients": 3}}


def test_override_cannot_make_a_section_of_a_setting() -> None:
    with pytest.raises(SettingError, match=r"rounds\.x cannot be set: rounds is a setting, not a section"):
        apply_assignments({"rounds": 2}, ["rounds.x=1"], {})


def test_a_changed_choice_drops_what_only_the_former_has() -> None:
    settings = {"defense": {"name": "krum", "tolerate": 4, "elect": 2, "misspelt": 1}}
    changed = apply_assignments(settings, ["defense.name=median"], {"defense.name": Defense})
    assert changed == {"defense": {"name": "median", "elect": 2, "misspelt": 1}}


def test_a_changed_choice_drops_what_only_the_default_has() -> None:
    settings = {"data": {"minimum": 5, "alpha": 0.1}}
    assert apply_assignments(settings, ["data.partition=iid"], CHOICES) == {"data": {"partition": "iid"}}


def test_a_setting_of_one_partition_becomes_another_s_only_where_it_means_the_same() -> None:
    drawn = {"niid-bench": {"alpha", "minimum"}, "dirichlet-plain": {"alpha", "minimum"}, "sized": {"alpha"}}
    for former, chosen in permutations(PARTITIONS, 2):
        settings = {"data": {"partition": former, **dict.fromkeys(collect_fields(PARTITIONS[former]), 5)}}
        kept = dict.fromkeys(drawn.get(former, set()) & drawn.get(chosen, set()), 5)
        assert apply_assignments(settings, [f"data.partition={chosen}"], CHOICES) == {
            "data": {"partition": chosen, **kept}
        }


@pytest.mark.parametrize("name", [[1], {"a": 1}, 3])
def test_a_choice_that_is_no_name_is_left_to_the_check(name: Any) -> None:
    for former, chosen in (("krum", name), (name, "krum"), (name, name)):
        changed = apply_assignments(
            {"defense": {"name": former}}, [f"defense.name={toml(chosen)}"], {"defense.name": Defense}
        )
        assert changed == {"defense": {"name": chosen}}


def toml(value: Any) -> str:
    return "{a = 1}" if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("value", [str(2**63), str(-(2**63) - 1), "0x" + "f" * 5000, "{a = [1, 0b1" + "0" * 70 + "]}"])
def test_an_integer_outside_of_64_bits_is_refused(value: str) -> None:
    with pytest.raises(SettingError, match=r"^a\.b holds an integer of \d+ bits; the most is 63$"):
        parse_assignment(f"a.b={value}")
    assert parse_assignment(f"a.b={2**63 - 1}") == ("a.b", 2**63 - 1)


@dataclass(frozen=True)
class Listing:
    names: list[str] = field(default_factory=list)


def test_a_default_is_nobody_else_s() -> None:
    first = complete_settings("section", "listing", Listing, {}, {})
    first["names"].append("changed")
    assert complete_settings("section", "listing", Listing, {}, {}) == {"names": []}
