"""A guard with snowball-plus over several rounds: attackers, a restart, broken senders, and the audit's sentences."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses import SnowballPlus
from snowball.guard import Guard, Judgement, Reply
from snowball.records.audit import read_audit
from snowball.report import Audit
from snowball.report.web.audit_page import build_audit_payload
from snowball.rng import stream

SHAPES = {"first.weight": (12, 20), "first.bias": (12,), "last.weight": (10, 12), "last.bias": (10,)}
CLIENTS, INFECTED, ROUNDS, TARGET = 20, 4, 8, 1
SITES = [f"site-{number:02}" for number in range(CLIENTS)]
ATTACKERS = SITES[-INFECTED:]

Tensors = dict[str, Tensor]


def make_tensors(*name: str | int) -> Tensors:
    """Return random tensors of the model's shapes."""
    rng = stream(5, *name)
    return {each: torch.randn(shape, generator=rng) for each, shape in SHAPES.items()}


MODEL = make_tensors("model")
RAISED = torch.where(torch.arange(10) == TARGET, 1.0, -0.1)[:, None]
"""Added by the infected to every weight of an output: it favours one class."""
SHARED = {name: tensor - MODEL[name] for name, tensor in make_tensors("shared").items()}
SHARED["last.weight"] = RAISED - 0.5 * MODEL["last.weight"]
"""The direction that the infected share, which undoes the model as backdoors do."""


def make_reply(client: str, round: int, model: Tensors, strength: float = 0.8) -> Reply:
    """Return a client's reply: its own step, plus the shared one if it is infected."""
    own = make_tensors(client, round)
    shared = strength * (client in ATTACKERS)
    tensors = {name: tensor + 0.01 * (own[name] + shared * SHARED[name]) for name, tensor in model.items()}
    return Reply(client, 50, tensors)


def run_rounds(guard: Guard, cohorts: Iterable[Sequence[str]], extra: Sequence[str] = ()) -> list[Judgement]:
    """Judge rounds of these clients, each from the model before it; `extra` clients send NaN."""
    model, judged = MODEL, []
    for cohort in cohorts:
        broken = [Reply(name, 50, {each: tensor * torch.nan for each, tensor in model.items()}) for name in extra]
        replies = [make_reply(client, guard.round + 1, model) for client in cohort]
        judged.append(guard(model, [*broken, *replies]))
        model = judged[-1].tensors
    return judged


def describe_judgement(judgement: Judgement) -> str:
    """Return a verdict without its times as text, in which NaN equals NaN."""
    facts = {name: fact for name, fact in judgement.entry["facts"].items() if not name.startswith("seconds")}
    return json.dumps([judgement.entry["round"], judgement.entry["left_out"], facts])


def assert_same_state(one: Any, other: Any) -> None:
    """Compare nested states to the bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same_state(one[key], other[key])
    else:
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


def test_attackers_are_left_out_in_the_end_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    whole = run_rounds(Guard(SnowballPlus(), seed=3), [SITES] * ROUNDS)
    assert not any(judgement.kept for judgement in whole)
    assert [judgement.entry["left_out"] for judgement in whole[-3:]] == [ATTACKERS] * 3

    first = Guard(SnowballPlus(), seed=3)
    model = run_rounds(first, [SITES] * 4)[-1].tensors
    first.save(tmp_path / "guard.state")
    from_file, from_dict = Guard(SnowballPlus()), Guard(SnowballPlus())
    assert from_file.load(tmp_path / "guard.state")
    from_dict.load_state_dict(first.state_dict())
    for guard in (from_file, from_dict):
        later, base = [], model
        for round in range(5, ROUNDS + 1):
            later.append(guard(base, [make_reply(client, round, base) for client in SITES]))
            base = later[-1].tensors
        assert list(map(describe_judgement, later)) == list(map(describe_judgement, whole[4:]))
        assert_same_state(later[-1].tensors, whole[-1].tensors)


def test_without_attackers_nobody_is_left_out() -> None:
    judged = run_rounds(Guard(SnowballPlus(), seed=3), [SITES[:-INFECTED]] * ROUNDS)
    assert [judgement.entry["left_out"] for judgement in judged] == [[]] * ROUNDS
    assert not any("charge" in judgement.entry["facts"] for judgement in judged)


def test_senders_of_nan_are_dropped_and_leave_no_trace_in_the_memory() -> None:
    clean, disturbed = Guard(SnowballPlus(), seed=3), Guard(SnowballPlus(), seed=3)
    quiet = run_rounds(clean, [SITES] * ROUNDS)
    noisy = run_rounds(disturbed, [SITES] * ROUNDS, extra=["a-first", "z-last"])
    assert all({fault["client"] for fault in each.entry["dropped"]} == {"a-first", "z-last"} for each in noisy)
    assert all(fault["reason"] == "not-finite" for each in noisy for fault in each.entry["dropped"])
    assert list(map(describe_judgement, noisy)) == list(map(describe_judgement, quiet))
    assert_same_state(disturbed.state, clean.state)
    assert_same_state(noisy[-1].tensors, quiet[-1].tensors)


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
@pytest.mark.parametrize("count", [8, CLIENTS])
def test_the_audit_has_the_shares_of_every_average_also_with_decisions_of_people(
    mode: Any, count: int, tmp_path: Path
) -> None:
    rules, sites = {SITES[-1]: "allow", SITES[-2]: "probation", SITES[-3]: "deny"}, SITES[-count:]
    (tmp_path / "decisions.toml").write_text(
        "".join(
            f'[[decision]]\nsite = "{site}"\nrule = "{rule}"\nreason = "agreed"\nby = "me"\n'
            for site, rule in rules.items()
        )
    )
    guard = Guard(SnowballPlus(), mode, seed=3, decisions=tmp_path / "decisions.toml")
    averages = 0
    for judgement in run_rounds(guard, [sites] * (ROUNDS + 2)):
        entry = judgement.entry
        assert SITES[-1] in entry["averaged"]
        assert not {SITES[-2], SITES[-3]} & set(entry["averaged"])
        if entry["shares"]:  # a median of few has none
            averages += 1
            assert list(entry["shares"]) == entry["averaged"]
            assert sum(entry["shares"].values()) == pytest.approx(1)
            assert min(entry["shares"].values()) >= 0
    assert averages >= 4


def test_a_round_that_keeps_the_model_has_no_shares() -> None:
    (judgement,) = run_rounds(Guard(SnowballPlus(), min_elected=CLIENTS + 1), [SITES])
    assert judgement.kept
    assert (judgement.entry["averaged"], judgement.entry["shares"]) == ([], {})


def test_the_size_of_the_cohort_may_change_between_rounds() -> None:
    guard = Guard(SnowballPlus(), seed=3, low_turnout="aggregate")
    few, some = [*SITES[:2], SITES[-1]], [*SITES[:10], *SITES[-2:]]
    judged = run_rounds(guard, [SITES, few, some, SITES])
    assert not any(judgement.kept for judgement in judged)
    assert [len(judgement.entry["answered"]) for judgement in judged] == [20, 3, 12, 20]
    assert judged[1].entry["left_out"] == []  # of three, nobody can be told from the others
    assert judged[3].entry["left_out"] == ATTACKERS
    assert guard.state is not None
    assert set(guard.state["clients"]) == set(SITES)


def test_a_first_round_of_three_starts_no_memory() -> None:
    guard = Guard(SnowballPlus(), seed=3, low_turnout="aggregate")
    assert not run_rounds(guard, [SITES[:3]])[0].kept
    assert guard.state is None
    assert run_rounds(guard, [SITES] * 3)[-1].entry["left_out"] == ATTACKERS


Call = Callable[..., tuple[int, str, str]]
WORD = (
    r"(leans to class \d+ with \d+ others"
    r"|(moves with \d+ others in (all layers|the hidden layers|\S+)|points as those accused before), separation [\d.]+)"
)
WORDS = rf"{WORD}(; {WORD})*"
"""The charges that 20 clients can lead to."""


@pytest.mark.parametrize(("mode", "end"), [("enforce", ""), ("monitor", "; averaged nevertheless")])
def test_the_audit_says_in_words_why_an_attacker_was_left_out(mode: Any, end: str, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    run_rounds(Guard(SnowballPlus(), mode, seed=3, audit=path), [SITES] * ROUNDS)
    charges = {entry["round"]: entry["facts"].get("charge") for entry in read_audit(path)}

    code, output, _ = call("audit", path, "--client", ATTACKERS[0])
    lines = output.splitlines()[1:]
    assert (code, len(lines)) == (0, ROUNDS)
    for line in lines[-3:]:
        assert re.fullmatch(rf"round \d: suspect: {WORDS}{end} \(suspicion \S+ against \S+ to \S+\)", line), line

    moments = json.loads(call("audit", path, "--client", ATTACKERS[0], "--json")[1])
    out = [moment for moment in moments if moment["state"] == "suspect"]
    assert [moment["words"] for moment in out] == [f"suspect: {charges[moment['round']]}{end}" for moment in out]

    assert call("audit", path, "--html", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert str(charges[ROUNDS]) in page
    assert [each["charge"] for each in build_audit_payload(Audit(read_audit(path)))["rounds"]] == [
        charge or "" for charge in charges.values()
    ]

    honest = call("audit", path, "--client", SITES[0])[1].splitlines()[1:]
    assert all(re.fullmatch(r"round \d: elected( \(suspicion \S+\))?", line) for line in honest), honest


def test_the_audit_names_the_class_that_a_crowd_leans_to(call: Call, tmp_path: Path) -> None:
    path, leaning = tmp_path / "audit.jsonl", SITES[-8:]
    guard = Guard(SnowballPlus(), seed=3, audit=path)
    features, others = 1 + make_tensors("features")["last.weight"], [each for each in range(10) if each != TARGET]
    for round in range(1, ROUNDS + 1):
        replies = [make_reply(client, round, MODEL, strength=0) for client in SITES]
        for number, reply in enumerate(replies):
            own = torch.arange(10)[:, None] == others[number % 9]  # on features that all who raise it share
            infected = reply.client in leaning
            reply.tensors["last.weight"] += 0.01 * (RAISED if infected else 2 * own * features)
            reply.tensors["first.weight"] -= 0.005 * infected * MODEL["first.weight"]  # which undoes the model
        judged = guard(MODEL, replies)
    assert set(leaning) <= set(judged.entry["left_out"])
    line = call("audit", path, "--client", leaning[0])[1].splitlines()[-1]
    assert re.search(rf"suspect: .*leans to class {TARGET} with \d+ others", line), line


def test_the_audit_says_of_whom_only_the_reputation_speaks(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    guard = Guard(SnowballPlus(), seed=3, audit=path)
    model = run_rounds(guard, [SITES] * ROUNDS)[-1].tensors
    quiet = guard(model, [make_reply(client, ROUNDS + 1, model, strength=0) for client in SITES])
    assert quiet.entry["left_out"] == ATTACKERS
    last = call("audit", path, "--client", ATTACKERS[0])[1].splitlines()[-1]
    assert last == f"round {ROUNDS + 1}: suspect: was accused in most of its recent rounds"
