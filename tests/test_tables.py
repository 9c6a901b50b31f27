import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from snowball.attacks import ATTACKS, CBA
from snowball.data.triggers import TRIGGERS
from snowball.defenses import DEFENSES, Snowball
from snowball.errors import SettingError
from snowball.registry import OpenTable


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of another package, which holds what tests put there."""
    module = ModuleType("stranger")
    monkeypatch.setitem(sys.modules, "stranger", module)
    return module


def installed(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Make entries of every group look as if a package brought them."""

    def found(group: str) -> list[EntryPoint]:
        return [EntryPoint(name, value, group) for name, value in values.items()]

    monkeypatch.setattr("snowball.registry.entry_points", found)


def test_other_packages_add_but_take_no_name(monkeypatch: pytest.MonkeyPatch, stranger: ModuleType) -> None:
    stranger.Thing = object  # type: ignore[attr-defined]
    installed(monkeypatch, theirs="stranger:Thing", ours="stranger:Missing")
    table = OpenTable("snowball.things", {"ours": int})
    assert dict(table) == {"ours": int, "theirs": object}
    assert len(table) == 2


def test_nothing_is_loaded_before_somebody_looks(monkeypatch: pytest.MonkeyPatch, stranger: ModuleType) -> None:
    installed(monkeypatch, theirs="stranger:Thing")
    table: OpenTable[Any] = OpenTable("snowball.things", {})
    stranger.Thing = object  # type: ignore[attr-defined]
    assert table["theirs"] is object


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("nowhere:Thing", "No module named 'nowhere'"),
        ("stranger:Missing", "module 'stranger' has no attribute 'Missing'"),
        ("stranger:Thing", "it has no view, poison"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, stranger: ModuleType, value: str, fault: str
) -> None:
    stranger.Thing = object  # type: ignore[attr-defined]
    installed(monkeypatch, theirs=value)
    table = OpenTable("snowball.things", {"ours": int}, needs=("__call__", "view", "poison"))
    for _ in range(2):
        with pytest.raises(SettingError) as error:
            table["ours"]
        assert str(error.value) == (
            f"{value}, which an installed package adds to snowball.things as 'theirs', cannot be used: {fault}"
        )


def test_a_fault_of_many_lines_or_none_is_one_line(monkeypatch: pytest.MonkeyPatch, stranger: ModuleType) -> None:
    installed(monkeypatch, theirs="stranger:Thing")
    for raised, said in ((ValueError("one\n  two"), "one two"), (ValueError(), "ValueError")):

        def fail(name: str, raised: Exception = raised) -> Any:
            raise raised

        stranger.__getattr__ = fail  # type: ignore[method-assign]
        with pytest.raises(SettingError, match=f"cannot be used: {said}$"):
            list(OpenTable("snowball.things", {}))


def test_our_tables_are_open_and_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [table.group for table in (ATTACKS, DEFENSES, TRIGGERS)] == [
        *("snowball.attacks", "snowball.defenses", "snowball.triggers")
    ]
    assert (ATTACKS["cba"], DEFENSES["snowball"]) == (CBA, Snowball)
    with monkeypatch.context() as patch:
        patch.setitem(ATTACKS, "other", CBA)
        assert ATTACKS["other"] is CBA
    assert "other" not in ATTACKS
    for table in (ATTACKS, DEFENSES, TRIGGERS):
        assert all(hasattr(entry, name) for entry in table.values() for name in table.needs)
