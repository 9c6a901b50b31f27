import json
import logging
import runpy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball.defenses import Context, FedAvg, Snowball, Verdict
from snowball.errors import RunError
from snowball.guard import AuditLog, Dropped, Guard, Reply
from snowball.guard.audit_log import encode_facts, hash_model
from snowball.records.audit import FIELDS, LATER_FIELDS, REASONS, read_audit
from snowball.updates import Updates

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply = SHARED["MODEL"], SHARED["make_honest_reply"]


def test_a_line_a_round_with_every_field(tmp_path: Path, replies: list[Reply]) -> None:
    guard = Guard(Snowball(clusters=3), audit=tmp_path / "deep" / "audit.jsonl")
    asked = [reply.client for reply in replies] + ["site-08", "site-09"]
    failed = [Dropped("site-09", "error", "timeout")]
    first = guard(MODEL, [*replies, Reply("site-00", 1, {})], asked, failed)
    guard(first.tensors, [])
    entries = AuditLog(tmp_path / "deep" / "audit.jsonl").read_entries()
    assert [entry["round"] for entry in entries] == [1, 2]
    entry = entries[0]
    assert set(entry) == set(FIELDS)
    assert (entry["silent"], entry["mode"], entry["outcome"], entry["reason"]) == (
        ["site-08"],
        "enforce",
        "aggregated",
        None,
    )
    assert {(fault["client"], fault["reason"]) for fault in entry["dropped"]} == {
        ("site-09", "error"),
        ("site-00", "duplicate"),
    }
    assert sorted(entry["elected"] + entry["left_out"]) == [reply.client for reply in replies]
    assert entry["averaged"] == entry["elected"]
    assert set(entry["facts"]["votes"]) == {reply.client for reply in replies}
    assert entry["facts"]["clusters"] == 3
    assert entry["model_after"] == hash_model(first.tensors) == entries[1]["model_before"] == entries[1]["model_after"]
    assert (entry["defense"], entry["settings"]["clusters"], entry["version"]) == (
        "snowball",
        3,
        version("snowball-fl"),
    )
    assert entries[1]["asked"] is None
    assert entries[1]["outcome"] == "kept"


@settings(max_examples=40, deadline=None, database=None)
@given(
    name=st.sampled_from(list(MODEL)),
    index=st.integers(0, 11),
    bit=st.integers(0, 7),
)
def test_the_hash_changes_if_and_only_if_the_model_does(name: str, index: int, bit: int) -> None:
    before = hash_model(MODEL)
    copy = {each: tensor.clone() for each, tensor in reversed(MODEL.items())}
    assert hash_model(copy) == before
    raw = copy[name].view(-1).view(torch.uint8)
    raw[index % len(raw)] ^= 1 << bit
    assert hash_model(copy) != before
    raw[index % len(raw)] ^= 1 << bit
    assert hash_model(copy) == before


def test_the_hash_knows_names_types_and_shapes() -> None:
    models = [{"a": torch.zeros(4)}, {"b": torch.zeros(4)}, {"a": torch.zeros(2, 2)}, {"a": torch.zeros(4).int()}, {}]
    assert len(set(map(hash_model, models))) == 5


def test_strange_facts_never_cost_a_line(tmp_path: Path, replies: list[Reply]) -> None:
    loop: list[Any] = []
    loop.append(loop)
    facts: dict[Any, Any] = {
        "each": torch.arange(8.0), "nan": torch.tensor(torch.nan), "matrix": torch.eye(2),
        "complex": torch.ones(8) * 1j,
        "object": object(), "loop": loop, 7: 1, "text": "\ud800\x1b[31m",
    }  # fmt: skip

    def defense(updates: Updates, context: Context) -> Verdict:
        plain = FedAvg()(updates, context)
        return Verdict(plain.delta, plain.elected, facts)

    Guard(defense, audit=tmp_path / "audit")(MODEL, replies)
    (entry,) = read_audit(tmp_path / "audit")
    assert entry["facts"]["each"] == {reply.client: float(row) for row, reply in enumerate(replies)}
    assert (entry["facts"]["nan"], entry["facts"]["matrix"]) == (None, [[1, 0], [0, 1]])
    assert entry["facts"]["object"].startswith("<object object")
    assert set(entry["facts"]) == {str(name) for name in facts}


def test_a_fact_of_another_length_is_no_fact_of_clients() -> None:
    verdict = Verdict(torch.zeros(1), torch.ones(2, dtype=torch.bool), {"three": torch.ones(3), "two": torch.ones(2)})
    assert encode_facts(verdict, ["a", "b"]) == {"three": [1, 1, 1], "two": {"a": 1, "b": 1}}


@pytest.mark.parametrize("path", ["folder", "file/audit"])
def test_an_audit_that_cannot_be_written_ends_nothing(
    path: str, tmp_path: Path, replies: list[Reply], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("here")
    guard = Guard(FedAvg(), audit=tmp_path / path)
    with caplog.at_level(logging.WARNING, "snowball"):
        judgements = [guard(MODEL, replies) for _ in range(2)]
    assert [judgement.entry["outcome"] for judgement in judgements] == ["aggregated"] * 2
    assert "Round 2: its line of the audit is not saved: " in caplog.text
    entry = guard.record(judgements[1], judgements[1].tensors)
    assert entry["model_after"] == hash_model(judgements[1].tensors)


def test_an_audit_goes_on_when_there_is_room_again(tmp_path: Path, replies: list[Reply], monkeypatch: Any) -> None:
    guard = Guard(FedAvg(), audit=tmp_path / "audit")
    guard(MODEL, replies)
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        guard(MODEL, replies)
    guard(MODEL, replies)
    assert [entry["round"] for entry in read_audit(tmp_path / "audit")] == [1, 3]


def make_entry(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "round": 1, "time": "2026-01-01T00:00:00+00:00", "version": "0.1.0", "defense": "fedavg", "settings": {},
        "mode": "enforce", "outcome": "aggregated", "reason": None, "asked": None, "answered": [], "silent": [],
        "dropped": [], "elected": [], "left_out": [], "suspects": [], "clarity": None, "averaged": [], "shares": {},
        "decisions": [], "ids": {}, "facts": {}, "seconds": 0.5, "model_before": "", "model_after": "",
        "previous": None, "signature": None,
    }  # fmt: skip
    return whole | changes


def write_audit(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    path = write_audit(tmp_path / "audit", make_entry(), make_entry(round=2))
    path.write_bytes(path.read_bytes() + b'{"round": 3, "ti')
    assert [each["round"] for each in read_audit(path)] == [1, 2]


BAD: dict[str, list[Any]] = {
    "round": [0, -1, 1.5, True, None, "1", 1 << 60],
    "time": [None, 5],
    "version": [None, 0.1],
    "defense": [None, ["fedavg"]],
    "settings": [None, [], "clusters=3"],
    "mode": ["watch", None, ["enforce"]],
    "outcome": ["lost", {}],
    "reason": [5, []],
    "asked": ["a", [1], {}],
    "answered": [None, "ab", [None]],
    "silent": [None],
    "dropped": [None, ["a"], [{}], [{"client": 1, "reason": "names", "detail": ""}], {"client": "a"}],
    "elected": [None, [["a"]]],
    "left_out": [5],
    "suspects": [None, "ab", [1]],
    "clarity": ["1", True, []],
    "averaged": [True],
    "shares": [None, [], {"a": None}, {"a": True}],
    "decisions": [None, {}, ["a"], [{"client": "a", "rule": "ban", "reason": "", "by": "", "until": None}]],
    "ids": [None, {"a": 1}],
    "facts": [None, [], 5],
    "seconds": ["1", True],
    "model_before": [None],
    "model_after": [5],
    "previous": [5, "0" * 63, "G" * 64, "A" * 64],
    "signature": [5, "0" * 64, "F" * 128],
}


def test_an_audit_of_an_earlier_version_can_be_read(tmp_path: Path) -> None:
    earlier = {name: value for name, value in make_entry().items() if name not in LATER_FIELDS}
    (entry,) = read_audit(write_audit(tmp_path / "audit", earlier))
    assert entry == {**earlier, **LATER_FIELDS}


def test_every_field_has_a_bad_case_here() -> None:
    assert set(BAD) == set(FIELDS) == set(make_entry())


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_what_a_field_cannot_be_is_one_sentence(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"line 2 of .* is not a round of an audit: its '{name}' cannot be"):
        read_audit(write_audit(tmp_path / "audit", make_entry(), make_entry(**{name: value})))


@pytest.mark.parametrize("name", sorted(set(FIELDS) - set(LATER_FIELDS)))
def test_a_missing_field_is_one_sentence(name: str, tmp_path: Path) -> None:
    lacking = {key: value for key, value in make_entry().items() if key != name}
    with pytest.raises(RunError, match=f"line 1 of .* it has no '{name}'"):
        read_audit(write_audit(tmp_path / "audit", lacking))


@pytest.mark.parametrize("line", [b"[]", b"7", b"null", b"", b"{", b"\xff\xfe", b"[" * 10**5, b"1" * 5000])
def test_a_line_that_is_no_entry_is_one_sentence(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "audit").write_bytes(line + b"\n")
    with pytest.raises(RunError, match="line 1 of") as fault:
        read_audit(tmp_path / "audit")
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_no_file_is_no_audit(name: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no audit in"):
        read_audit(tmp_path / name)


def test_a_sentence_obeys_no_terminal(tmp_path: Path) -> None:
    with pytest.raises(RunError) as fault:
        read_audit(write_audit(tmp_path / "audit", make_entry(mode="\x1b[2J\n\u202e")))
    assert str(fault.value).isprintable()


def test_every_reason_is_said_in_words() -> None:
    assert all(words and not words.endswith(".") for words in REASONS.values())


def test_a_device_is_no_audit(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="it exists and is not a regular file"):
        AuditLog(Path("/dev/null")).append({"round": 1})
