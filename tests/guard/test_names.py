import logging
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball.defenses import FedAvg, FoolsGold, Intersection
from snowball.defenses.history import rename_clients
from snowball.errors import SettingError
from snowball.guard import Dropped, Guard, Reply
from snowball.guard.names import find_renames, name_clients, parse_names

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply = SHARED["MODEL"], SHARED["make_honest_reply"]
IDS = [f"1234567890123456789{number}" for number in range(4)]
CITIES = ["Ulm", "Aachen", "Bonn", "Jena"]


def write_names(file: Path, names: dict[str, str]) -> Path:
    file.write_text("[sites]\n" + "".join(f'"{client}" = "{name}"\n' for client, name in names.items()))
    return file


def make_replies(ids: list[str]) -> list[Reply]:
    return [Reply(client, 20, make_honest_reply(number).tensors) for number, client in enumerate(ids)]


@pytest.fixture
def names(tmp_path: Path) -> Path:
    return write_names(tmp_path / "sites.toml", dict(zip(IDS, CITIES, strict=True)))


def test_names_are_everywhere_but_in_the_judgement(names: Path) -> None:
    asked = [*IDS, "777"]
    broken = Reply("888", 20, {})
    judgement = Guard(FedAvg(), names=names)(MODEL, [*make_replies(IDS[:2]), broken], [*asked, "888"], [
        Dropped(IDS[2], "error", "it broke")
    ])  # fmt: skip
    entry = judgement.entry
    assert entry["asked"] == [*CITIES, "777", "888"]
    assert entry["answered"] == ["888", "Aachen", "Ulm"]
    assert entry["silent"] == ["777", "Jena"]
    assert [fault["client"] for fault in entry["dropped"]] == ["Bonn", "888"]
    assert entry["reason"].startswith("low turnout")
    assert entry["ids"] == {
        name: client for client, name in sorted(zip(IDS, CITIES, strict=True), key=lambda pair: pair[1])
    }
    judgement = Guard(FedAvg(), names=names)(MODEL, make_replies(IDS), IDS)
    assert judgement.entry["averaged"] == sorted(CITIES)
    assert judgement.averaged == (IDS[1], IDS[2], IDS[3], IDS[0])
    assert set(judgement.examples) == set(IDS)


def test_a_site_added_during_a_run_has_its_name_from_the_next_round(names: Path) -> None:
    guard = Guard(FedAvg(), names=names)
    assert "42" in guard(MODEL, make_replies([*IDS, "42"])).entry["averaged"]
    write_names(names, {**dict(zip(IDS, CITIES, strict=True)), "42": "Kiel"})
    entry = guard(MODEL, make_replies([*IDS, "42"])).entry
    assert "Kiel" in entry["averaged"]
    assert entry["ids"]["Kiel"] == "42"


def test_a_broken_file_leaves_the_names_as_they_were(names: Path, caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(FedAvg(), names=names)
    names.write_text("[sites]\n1 = 2")
    with caplog.at_level(logging.WARNING, "snowball"):
        assert guard(MODEL, make_replies(IDS)).entry["averaged"] == sorted(CITIES)
    assert "the name of '1' must be a printable text" in caplog.text


def test_a_node_with_a_new_id_keeps_its_history(names: Path, tmp_path: Path) -> None:
    guard = Guard(FoolsGold(), names=names)
    guard(MODEL, make_replies(IDS))
    guard.save(tmp_path / "state")
    write_names(names, {**dict(zip(IDS[1:], CITIES[1:], strict=True)), "99": "Ulm"})
    restarted = Guard(FoolsGold(), names=names)
    restarted.load(tmp_path / "state")
    judgement = restarted(MODEL, make_replies(["99", *IDS[1:]]))
    assert judgement.entry["ids"]["Ulm"] == "99"
    assert "99" in judgement.averaged
    assert restarted.state is not None
    assert sorted(restarted.state["clients"]) == sorted(CITIES)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("defense", [FoolsGold(), Intersection((FoolsGold(), FedAvg()))])
def test_a_site_that_gets_a_name_takes_its_history_along(
    defense: Any, restart: bool, names: Path, tmp_path: Path
) -> None:
    one, two = write_names(names, {IDS[0]: "Ulm"}), {IDS[0]: "Neu-Ulm", IDS[1]: IDS[0], IDS[2]: "Bonn"}
    guard, plain = Guard(defense, seed=1, names=one), Guard(defense, seed=1)
    for number in range(4):
        if number == 2:
            write_names(names, two)
        if restart:
            guard.save(tmp_path / "state")
            guard = Guard(defense, names=names)
            guard.load(tmp_path / "state")
        judged = [each(MODEL, make_replies(IDS)) for each in (guard, plain)]
    state = guard.state or {}
    clients = (state["members"][0] if "members" in state else state)["clients"]
    assert sorted(clients) == sorted(["Neu-Ulm", IDS[0], "Bonn", IDS[3]])
    before = plain.state or {}
    known = (before["members"][0] if "members" in before else before)["clients"]
    for client in IDS:
        assert torch.equal(clients[two.get(client, client)]["sum"], known[client]["sum"])
    assert set(judged[0].averaged) == set(judged[1].averaged)


def test_a_name_does_not_lift_a_blacklist() -> None:
    state = {"clients": {}, "blacklist": ["7", 5, ["x"]], "members": [None, {"blacklist": ["7"]}]}
    renamed = rename_clients(state, find_renames({}, {"7": "Ulm"})) or {}
    assert renamed == {"clients": {}, "blacklist": ["Ulm", 5, ["x"]], "members": [None, {"blacklist": ["Ulm"]}]}
    assert state["blacklist"] == ["7", 5, ["x"]]


def test_a_site_that_gets_a_name_stays_as_suspect_as_it_was(names: Path, tmp_path: Path) -> None:
    alerts: list[Any] = []
    for number in range(3):
        write_names(names, {"1": "Ulm"} if number < 2 else {"1": "Neu-Ulm"})
        guard = Guard(FedAvg(), names=names, listeners=alerts.append)
        guard.load(tmp_path / "state")
        guard(MODEL, [Reply("1", 20, {}), *make_replies(IDS)])
        guard.save(tmp_path / "state")
    assert [event.client for event in alerts if event.kind == "malformed"] == ["Neu-Ulm"]


@pytest.mark.parametrize(
    ("before", "now", "renames"),
    [
        ({}, {"1": "Ulm"}, {"1": "Ulm"}),
        ({"1": "Ulm"}, {"1": "Kiel"}, {"Ulm": "Kiel"}),
        ({"1": "Ulm"}, {"2": "Ulm"}, {}),
        ({}, {"a": "b", "b": "a"}, {"a": "b", "b": "a"}),
        ({"a": "b", "b": "a"}, {"a": "b", "b": "a"}, {}),
        ({"1": "Ulm"}, {}, {}),
        ({}, {"1": "1"}, {}),
    ],
)
def test_a_history_moves_only_to_a_new_name(before: Any, now: Any, renames: dict[str, str]) -> None:
    assert find_renames(before, now) == renames


def test_an_unknown_id_is_not_taken_for_the_site_that_it_is_called_like(names: Path) -> None:
    guard = Guard(FoolsGold(), names=names)
    judgement = guard(MODEL, make_replies([*IDS, "Aachen"]), [*IDS, "Aachen"])
    (fault,) = judgement.entry["dropped"]
    assert (fault["client"], fault["reason"]) == ("Aachen (an unknown id)", "identity")
    assert judgement.entry["ids"]["Aachen"] == IDS[1]
    assert judgement.averaged == (IDS[1], IDS[2], IDS[3], IDS[0])
    assert guard.state is not None
    assert sorted(guard.state["clients"]) == sorted(CITIES)
    alone = Guard(FoolsGold(), names=names)(MODEL, make_replies(["Aachen"]), [*IDS, "Aachen"]).entry
    assert "Aachen" in alone["silent"]
    assert "Aachen" not in alone["answered"]


def test_such_an_id_does_not_count_as_asked(names: Path) -> None:
    asked = [*IDS[:2], "Bonn", "Jena", "Ulm"]
    assert not Guard(FedAvg(), names=names, min_answers=1)(MODEL, make_replies(IDS[:2]), asked).kept


def test_names_may_be_exchanged(tmp_path: Path) -> None:
    swapped = write_names(tmp_path / "sites.toml", {"a": "b", "b": "a"})
    judgement = Guard(FedAvg(), names=swapped)(MODEL, make_replies(["a", "b"]))
    assert judgement.entry["ids"] == {"a": "b", "b": "a"}
    assert judgement.averaged == ("b", "a")


BAD_NAMES: dict[str, tuple[str, str]] = {
    "no table": ('"1" = "Aachen"', "one table"),
    "another table": ('[names]\n"1" = "Aachen"', "one table"),
    "a second table": ('[sites]\n"1" = "Aachen"\n[more]', "one table"),
    "a number": ('[sites]\n"1" = 7', "name of '1' must be a printable text"),
    "a table for a name": ("[sites.1]\na = 1", "name of '1' must be a printable text"),
    "two of one name": ('[sites]\n"1" = "Ulm"\n"2" = "Ulm"', "'Ulm' names both '1' and '2'"),
    "an empty name": ('[sites]\n"1" = " "', "printable text of 1 to 100"),
    "an empty id": ('[sites]\n"" = "Ulm"', "an id must be a printable text"),
    "a long name": (f'[sites]\n"1" = "{"x" * 101}"', "printable text of 1 to 100"),
    "a line break": ('[sites]\n"1" = "Ulm\\nBonn"', "printable text"),
    "an escape": ('[sites]\n"1" = "Ulm\\u001b[2J"', "printable text"),
    "another direction": ('[sites]\n"1" = "Ulm\\u202e"', "printable text"),
}


@pytest.mark.parametrize("case", BAD_NAMES)
def test_names_that_cannot_be_are_refused_at_the_start(case: str, tmp_path: Path) -> None:
    content, words = BAD_NAMES[case]
    (tmp_path / "sites.toml").write_text(content)
    with pytest.raises(SettingError, match=words):
        Guard(names=tmp_path / "sites.toml")


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no such file"):
        Guard(names=tmp_path / "sites.toml")


TEXTS = st.sampled_from(["a", "b", "c", "a (an unknown id)", "b (an unknown id)", "a (an unknown id) (an unknown id)"])


@settings(max_examples=300, deadline=None, database=None)
@given(pairs=st.dictionaries(TEXTS, TEXTS, max_size=5), ids=st.lists(TEXTS, max_size=6))
def test_no_two_clients_ever_share_a_name(pairs: dict[str, Any], ids: list[str]) -> None:
    unique = {name: client for client, name in pairs.items()}
    names = parse_names({"sites": {client: name for name, client in unique.items()}})
    named = name_clients(names, ids)
    assert set(named) == set(ids)
    assert len(set(named.values())) == len(named)
    for client, name in named.items():
        assert name == names.get(client, name)
        assert client in names or name not in names.values()
