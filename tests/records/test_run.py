import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from snowball.errors import RunError
from snowball.records.files import parse_json, read_json, write_json
from snowball.records.rounds import RoundRecord, compute_error_rates
from snowball.records.run import RunFolder
from snowball.records.summary import RoundScores, TopDownErrors, summarise_rounds


def a_round(number: int, **changes: Any) -> RoundRecord:
    return {
        "round": number,
        "participants": ["a", "b", "c", "d"],
        "malicious": [True, True, False, False],
        "elected": [True, False, True, True],
        "main_accuracy": 0.5,
        "backdoor_accuracy": 0.25,
        "false_positive_rate": 0.5,
        "false_negative_rate": 0.0,
        "seconds": {"train": 1.5, "defense": 0.25},
        "facts": {"votes": [4, 1, 3, 3]},
        "map": [[0.0, 1.0]] * 4,
        "distances": {"benign": 0.5, "between": 1.5, "infected": None},
    } | changes


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"seed": 7})


def numbers(folder: RunFolder) -> list[int]:
    return [record["round"] for record in folder.read_rounds()]


def test_what_is_appended_is_read_back(folder: RunFolder) -> None:
    written = [a_round(1), a_round(2, backdoor_accuracy=None)]
    for record in written:
        folder.append(record)
    again = RunFolder.open(folder.path)
    assert (again.run, again.read_rounds(), again.read_summary()) == ({"seed": 7}, written, None)


def test_a_new_run_has_no_rounds(folder: RunFolder) -> None:
    assert folder.read_rounds() == []
    assert folder.write_summary().best is None


def test_facts_map_and_distances_may_be_left_out(folder: RunFolder) -> None:
    record = a_round(1)
    del record["facts"], record["map"], record["distances"]
    folder.append(record)
    read = folder.read_rounds()[0]
    assert (read["facts"], read["map"], read["distances"]) == ({}, None, None)


def test_a_round_may_drop_clients_and_leave_the_model_as_it_was(folder: RunFolder) -> None:
    written = [
        a_round(1, dropped={"b": "not-finite"}, map=[[0.0, 1.0], None, None, [0.0, 1.0]]),
        a_round(2, dropped={"b": "not-finite", "c": "not-finite"}, kept="4 are needed"),
    ]
    for record in written:
        folder.append(record)
    assert folder.read_rounds() == written
    summary = folder.write_summary()
    assert summary.dropped == {"b": {"not-finite": 2}, "c": {"not-finite": 1}}
    assert summary.kept == [2]
    assert not {"dropped", "kept"} & summarise_rounds([a_round(1)]).plain().keys()


@pytest.mark.parametrize(
    "change", [{"dropped": ["b"]}, {"dropped": {"b": 1}}, {"dropped": None}, {"kept": None}, {"kept": 1}]
)
def test_what_cannot_be_said_of_dropped_clients_is_refused(folder: RunFolder, change: dict[str, Any]) -> None:
    folder.append(a_round(1, **change))
    with pytest.raises(RunError, match=f"line 1 of .* is not a round's record: its '{next(iter(change))}' cannot be"):
        folder.read_rounds()


def test_lines_do_not_depend_on_the_order_of_keys(folder: RunFolder) -> None:
    folder.append(a_round(1, facts={"x": 0.1, "y": 1e-17}))
    folder.append(dict(reversed(a_round(1, facts={"y": 1e-17, "x": 0.1}).items())))
    first, second = (folder.path / "rounds.jsonl").read_bytes().splitlines()
    assert first == second
    assert b'"x": 0.1, "y": 1e-17' in first


@pytest.mark.parametrize("torn", [b"{", b'{"round": 3, "participants": ["a', json.dumps(a_round(3)).encode()])
def test_a_torn_last_line_is_not_read_and_goes_with_the_next_round(folder: RunFolder, torn: bytes) -> None:
    folder.append(a_round(1))
    folder.append(a_round(2))
    with (folder.path / "rounds.jsonl").open("ab") as file:
        file.write(torn)
    assert numbers(folder) == [1, 2]
    folder.append(a_round(3))
    assert numbers(folder) == [1, 2, 3]


def test_a_first_line_may_be_torn(folder: RunFolder) -> None:
    (folder.path / "rounds.jsonl").write_bytes(b'{"round"')
    folder.append(a_round(1))
    assert numbers(folder) == [1]


def test_a_round_that_does_not_reach_the_disk_leaves_nothing(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append(a_round(1))
    before = (folder.path / "rounds.jsonl").read_bytes()
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match=r"rounds\.jsonl cannot be used: No space left"):
        folder.append(a_round(2))
    monkeypatch.undo()
    assert (folder.path / "rounds.jsonl").read_bytes() == before
    folder.append(a_round(2))
    assert numbers(folder) == [1, 2]


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    write_json(tmp_path / "a.json", {"old": 1})
    monkeypatch.setattr(os, function, refuse)
    with pytest.raises(RunError, match=r"a\.json"):
        write_json(tmp_path / "a.json", {"new": 2})
    assert read_json(tmp_path / "a.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "a.json").symlink_to(tmp_path / "far" / "b.json")
    write_json(tmp_path / "a.json", {"x": 1})
    assert (tmp_path / "a.json").is_symlink()
    assert read_json(tmp_path / "far" / "b.json") == {"x": 1}


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises(RunError, match=f"{name} cannot be written: it exists and is not a regular file"):
            write_json(tmp_path / name, {})
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe"]


@pytest.mark.parametrize(
    "number",
    ["NaN", "Infinity", "-Infinity", "1e999", "-1E+0309", "0.01e00312", "9" * 400 + ".5", "9" * 250 + "e99"],
)
def test_numbers_in_a_file_that_no_float_holds_are_null(number: str) -> None:
    assert parse_json(f'{{"x": [1.5, {number}]}}'.encode(), "here") == {"x": [1.5, None]}


def test_numbers_that_are_not_finite_become_null(folder: RunFolder) -> None:
    write_json(folder.path / "a.json", {"x": [float("nan"), (float("inf"), 1.5)], "y": -float("inf")})
    assert json.loads((folder.path / "a.json").read_text(), parse_constant=pytest.fail) == {
        "x": [None, [None, 1.5]],
        "y": None,
    }
    folder.append(a_round(1, facts={"score": [float("nan"), 1.0, 2.0, 3.0]}))
    assert folder.read_rounds()[0]["facts"]["score"] == [None, 1.0, 2.0, 3.0]


def test_truncate_keeps_the_bytes_of_earlier_rounds(folder: RunFolder) -> None:
    folder.append(a_round(1))
    folder.append(a_round(2))
    kept = (folder.path / "rounds.jsonl").read_bytes()
    folder.append(a_round(3))
    folder.write_summary()
    folder.truncate(2)
    assert (folder.path / "rounds.jsonl").read_bytes() == kept
    assert folder.read_summary() is None
    folder.truncate(0)
    assert folder.read_rounds() == []


def test_summary_by_hand() -> None:
    rounds = [
        a_round(1, main_accuracy=0.6, backdoor_accuracy=0.1),
        a_round(2, main_accuracy=0.8, backdoor_accuracy=0.3),
        a_round(3, main_accuracy=0.8, backdoor_accuracy=0.0, elected=[True, True, True, False]),
        a_round(
            4,
            main_accuracy=0.7,
            backdoor_accuracy=0.9,
            malicious=[False] * 4,
            elected=[False] * 4,
            seconds={"train": 2.0},
        ),
    ]
    assert summarise_rounds(rounds).plain() == {
        "best": {"round": 2, "main_accuracy": 0.8, "backdoor_accuracy": 0.3},
        "last": {"round": 4, "main_accuracy": 0.7, "backdoor_accuracy": 0.9},
        "false_positive_rate": 4 / 6,
        "false_negative_rate": 5 / 10,
        "top_down": None,
        "seconds": {"defense": 0.75, "train": 6.5},
        "fading": {"stop": 3, "backdoor_accuracy": 0.0, "later_backdoor_accuracy": None, "half_rounds": None},
    }


@pytest.mark.parametrize("name", ["top_down", "top_down.2"])  # the latter of an intersection's second member
def test_rounds_with_a_top_down_election_have_rates_of_their_own(name: str) -> None:
    grown = {"seconds": {"train": 1.0, name: 0.0}}
    rounds = [
        a_round(1, elected=[True, True, False, False]),
        a_round(2, elected=[True, False, True, True], **grown),
        a_round(3, elected=[False, False, False, True], **grown),
        a_round(4, elected=[True, True, False, False], seconds={"top_downward": 1.0}),
    ]
    summary = summarise_rounds(rounds)
    assert summary.top_down == TopDownErrors(2, false_positive_rate=1 / 4, false_negative_rate=1 / 4)
    assert (summary.false_positive_rate, summary.false_negative_rate) == (5 / 8, 5 / 8)


def test_summary_is_written_as_it_is_computed(folder: RunFolder) -> None:
    folder.append(a_round(1))
    assert folder.write_summary() == folder.read_summary() == summarise_rounds([a_round(1)])


def test_a_round_that_was_not_evaluated_is_no_headline() -> None:
    summary = summarise_rounds([a_round(1, main_accuracy=0.4), a_round(2, main_accuracy=None, backdoor_accuracy=None)])
    assert summary.best == summary.last == RoundScores(1, main_accuracy=0.4, backdoor_accuracy=0.25)


@pytest.mark.parametrize(
    ("malicious", "elected", "rates"),
    [
        ([True, True, False, False, False], [True, False, False, True, True], (0.5, 1 / 3)),
        ([False, False], [True, False], (None, 0.5)),
        ([True], [True], (1.0, None)),
        ([], [], (None, None)),
    ],
)
def test_error_rates(malicious: list[bool], elected: list[bool], rates: tuple[float | None, float | None]) -> None:
    assert compute_error_rates(malicious, elected) == rates


def test_a_folder_that_holds_a_run_is_refused(folder: RunFolder) -> None:
    with pytest.raises(RunError, match=f"{folder.path} already holds a run: give --resume, --overwrite or another"):
        RunFolder.create(folder.path, {})


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["run.json", "rounds.jsonl", "summary.json", "checkpoint"])
def test_what_lies_in_a_folder_without_run_json_is_not_taken_for_a_run(
    tmp_path: Path, name: str, overwrite: bool
) -> None:
    (tmp_path / name / "precious").mkdir(parents=True)
    fault = "/run.json is a folder" if name == "run.json" else f" has a {name} and no run.json"
    with pytest.raises(RunError, match=f"{tmp_path}{fault}: move that away"):
        RunFolder.create(tmp_path, {}, overwrite)
    assert (tmp_path / name / "precious").is_dir()


def test_an_overwriting_that_breaks_off_can_be_done_again(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path / "checkpoint").mkdir()
    folder.append(a_round(1))
    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(RunError, match="No space left"):
        RunFolder.create(folder.path, {}, overwrite=True)
    monkeypatch.undo()
    assert not (folder.path / "checkpoint").exists()
    RunFolder.create(folder.path, {}, overwrite=True)
    assert [path.name for path in folder.path.iterdir()] == ["run.json"]


def test_overwriting_removes_the_files_of_a_run_and_nothing_else(folder: RunFolder) -> None:
    folder.append(a_round(1))
    folder.write_summary()
    (folder.path / "checkpoint").mkdir()
    (folder.path / "checkpoint" / "model.safetensors").write_bytes(b"")
    (folder.path / "notes.txt").write_text("mine")
    RunFolder.create(folder.path, {"seed": 8}, overwrite=True)
    assert sorted(path.name for path in folder.path.iterdir()) == ["notes.txt", "run.json"]
    assert RunFolder.open(folder.path).run == {"seed": 8}


def test_overwriting_does_not_follow_a_link_out_of_the_folder(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (folder.path / "checkpoint").symlink_to(tmp_path / "precious")
    RunFolder.create(folder.path, {}, overwrite=True)
    assert (tmp_path / "precious").is_dir()
    assert not (folder.path / "checkpoint").is_symlink()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file cannot be used: File exists"):
        RunFolder.create(tmp_path / "file", {})
    with pytest.raises(RunError, match=r"file is not a run's folder: it has no run\.json"):
        RunFolder.open(tmp_path / "file")


def test_run_json_must_be_an_object(folder: RunFolder) -> None:
    write_json(folder.path / "run.json", [1])
    with pytest.raises(RunError, match=r"run\.json must hold a JSON object, not a list"):
        RunFolder.open(folder.path)


BROKEN = {
    "not JSON": (b"{nope}", "not valid JSON"),
    "not text": (b'"\xff"', "not valid JSON"),
    "too deep": (b"[" * 100_000, "not valid JSON"),
    "no object": (b"[1]", "an object was expected, got list"),
    "no round": (json.dumps({"participants": []}).encode(), "it has no 'round'"),
    "rate above one": (json.dumps(a_round(2, main_accuracy=1.5)).encode(), "its 'main_accuracy' cannot be 1.5"),
    "rate beyond all": (json.dumps(a_round(2, main_accuracy=10**400)).encode(), "its 'main_accuracy' cannot be 1000"),
    "number as client": (json.dumps(a_round(2, participants=[1, 2, 3, 4])).encode(), "its 'participants' cannot be"),
    "too few elected": (json.dumps(a_round(2, elected=[True])).encode(), "4 participants and 1 of 'elected'"),
    "crooked map": (json.dumps(a_round(2, map=[[1, 2, 3]] * 4)).encode(), "its 'map' cannot be"),
    "short map": (json.dumps(a_round(2, map=[[1, 2]])).encode(), "4 participants and 1 of 'map'"),
    "no distances": (json.dumps(a_round(2, distances=[1, 2, 3])).encode(), "its 'distances' cannot be [1, 2, 3]"),
    "a distance too few": (json.dumps(a_round(2, distances={"benign": 1})).encode(), "its 'distances' cannot be"),
    "a negative distance": (
        json.dumps(a_round(2, distances={"benign": -1, "between": 1, "infected": 1})).encode(),
        "its 'distances' cannot be {'benign': -1",
    ),
    "a distance in words": (
        json.dumps(a_round(2, distances={"benign": "far", "between": 1, "infected": 1})).encode(),
        "its 'distances' cannot be {'benign': 'far'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_line_is_named(folder: RunFolder, case: str) -> None:
    line, fault = BROKEN[case]
    folder.append(a_round(1))
    with (folder.path / "rounds.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(RunError, match=r"line 2 of .*rounds\.jsonl is not") as caught:
        folder.read_rounds()
    assert fault in str(caught.value)


def test_a_broken_or_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{\n"x": }')
    with pytest.raises(RunError, match=r"a\.json is not valid JSON: .*line 2"):
        read_json(tmp_path / "a.json")
    with pytest.raises(RunError, match=r"b\.json cannot be used: No such file"):
        read_json(tmp_path / "b.json")


def test_names_with_line_breaks_stay_on_their_line(folder: RunFolder) -> None:
    hostile = ["a\nb", "a\u2028b", "a\x85b", "\ud800"]
    folder.append(a_round(1, participants=hostile))
    folder.append(a_round(2))
    assert folder.read_rounds()[0]["participants"] == hostile
    assert numbers(folder) == [1, 2]


def test_fields_of_run_json_of_another_type_are_not_read_and_unknown_ones_are(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"settings": "odd", "seed": "x", "data": [], "trigger": None, "later": [1]})
    assert RunFolder.open(tmp_path).run == {"trigger": None, "later": [1]}


@pytest.mark.parametrize("name", ["top_down", "top_down.2"])
def test_a_summary_of_an_earlier_version_is_completed_from_the_rounds(folder: RunFolder, name: str) -> None:
    folder.append(a_round(1, seconds={name: 1.0}))
    written = folder.write_summary()
    assert folder.is_summarised(folder.read_rounds())
    content = read_json(folder.path / "summary.json")
    del content["top_down"]
    write_json(folder.path / "summary.json", content)
    assert not folder.is_summarised(folder.read_rounds())
    assert folder.read_summary() == replace(written, top_down=None)
    assert folder.read_summary(complete=True) == written


def test_the_fields_of_a_summary_s_file_keep_names_and_order(folder: RunFolder) -> None:
    folder.append(a_round(1, dropped={"b": "not-finite"}, kept="too few", seconds={"train": 1.0, "top_down": 2.0}))
    folder.write_summary()
    scores = {"round": 1, "main_accuracy": 0.5, "backdoor_accuracy": 0.25}
    rates = {"false_positive_rate": 0.5, "false_negative_rate": 0.0}
    expected = {
        "best": scores, "last": scores, **rates, "top_down": {"rounds": 1, **rates},
        "seconds": {"top_down": 2.0, "train": 1.0}, "dropped": {"b": {"not-finite": 1}}, "kept": [1],
    }  # fmt: skip
    assert (folder.path / "summary.json").read_text() == json.dumps(expected, indent=2) + "\n"


def test_a_summary_that_is_none_is_refused(folder: RunFolder) -> None:
    write_json(folder.path / "summary.json", {"best": 1})
    with pytest.raises(RunError, match=r"summary\.json is of another version: its 'best' cannot be 1"):
        folder.read_summary()
