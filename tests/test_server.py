"""One round on a server: which replies are dropped, what happens to the rest, and when the model stays unchanged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from snowball.buffers import Buffers
from snowball.defenses import (
    Context,
    Defense,
    FedAvg,
    FLDetector,
    FLTrust,
    FoolsGold,
    Krum,
    Median,
    Snowball,
    Verdict,
)
from snowball.differences import Differences
from snowball.errors import RunError, UpdateError
from snowball.guard import Guard, Reply
from snowball.layout import Layout
from snowball.records.audit import REASONS
from snowball.server import NOT_FINITE, Dropped, Outcome, Received, judge_round
from snowball.updates import Updates

LAYOUT = Layout(("first.weight", "last.bias"), ((3, 2), (2,)))
BASE = torch.arange(LAYOUT.width) / 8
BUFFERS = {"norm.running_mean": torch.ones(3), "norm.num_batches_tracked": torch.tensor(7)}
BROKEN = (torch.nan, torch.inf, -torch.inf)


def receive(numbers: Sequence[int]) -> Received:
    """What clients of these numbers send: multiples of 1/64, so that sums and differences are exact."""
    rngs = [torch.Generator().manual_seed(number) for number in numbers]
    return Received(
        values=torch.stack([torch.randint(-64, 65, (LAYOUT.width,), generator=rng) / 64 for rng in rngs]),
        examples=torch.tensor([20 + number % 7 for number in numbers], dtype=torch.float64),
        clients=tuple(f"site-{number:02}" for number in numbers),
        layout=LAYOUT,
        buffers=[make_buffers(number, rng) for number, rng in zip(numbers, rngs, strict=True)],
    )


def make_buffers(number: int, rng: torch.Generator) -> Buffers:
    mean = 1 + torch.randint(1, 9, (3,), generator=rng) / 64
    return {"norm.running_mean": mean, "norm.num_batches_tracked": torch.tensor(8 + number)}


def judge(received: Received, defense: Defense, round: int = 1, state: Any = None) -> Outcome:
    return judge_round(received, defense, Context(round=round, rounds=None, base=BASE, seed=7, state=state), BUFFERS)


def is_same(one: Outcome, other: Outcome) -> bool:
    buffers = all(torch.equal(one.buffers[name], other.buffers[name]) for name in BUFFERS)
    return torch.equal(one.base, other.base) and torch.equal(one.elected, other.elected) and buffers


@pytest.mark.parametrize("number", BROKEN)
def test_who_sends_what_is_not_finite_is_dropped_with_the_name_of_the_tensor(number: float) -> None:
    received = receive(range(5))
    received.values[1, 7] = number
    received.buffers[3]["norm.running_mean"][2] = number
    outcome = judge(received, FedAvg())
    assert outcome.dropped == (
        Dropped("site-01", "not-finite", "'last.bias' holds NaN or infinite numbers"),
        Dropped("site-03", "not-finite", "'norm.running_mean' holds NaN or infinite numbers"),
    )
    assert outcome.updates.clients == ("site-00", "site-02", "site-04")
    assert outcome.kept is None
    assert NOT_FINITE in REASONS


def test_a_row_whose_length_overflows_is_dropped() -> None:
    received = receive(range(3))
    received = replace(received, values=received.values.double())
    received.values[0] = 1e200
    assert judge(received, FedAvg()).dropped == (Dropped("site-00", "not-finite", "its length overflows"),)


@pytest.mark.parametrize("defense", [FedAvg(), Krum(), Median(), Snowball(clusters=3), FoolsGold()])
@settings(max_examples=10, deadline=None, database=None)
@given(broken=st.sets(st.integers(0, 7), max_size=3), number=st.sampled_from(BROKEN), in_buffers=st.booleans())
def test_a_round_is_as_if_the_dropped_had_not_been_there(
    defense: Defense, broken: set[int], number: float, in_buffers: bool
) -> None:
    received = receive(range(8))
    for place in broken:
        target = received.buffers[place]["norm.running_mean"] if in_buffers else received.values[place]
        target[0] = number
    outcome = judge(received, defense)
    assert is_same(outcome, judge(receive([place for place in range(8) if place not in broken]), defense))
    assert [fault.client for fault in outcome.dropped] == [f"site-{place:02}" for place in sorted(broken)]


def test_there_is_no_second_copy_of_the_rows() -> None:
    received = receive(range(6))
    received.values[2] = torch.nan
    assert judge(received, FedAvg()).updates.values.data_ptr() == received.values.data_ptr()


def test_differences_are_judged_like_the_matrix_of_their_rows() -> None:
    received, plain = receive(range(6)), receive([0, 1, 3, 4, 5])
    models = [LAYOUT.split(BASE + row) for row in received.values]
    models[2]["last.bias"][1] = torch.nan
    norms = torch.tensor([1.0, 1.0, torch.nan, 1.0, 1.0, 1.0])
    deferred = replace(received, values=Differences(LAYOUT.split(BASE), models, norms, LAYOUT))
    for defense in (FedAvg(), Krum(), Median()):
        outcome = judge(deferred, defense)
        assert outcome.dropped == (Dropped("site-02", "not-finite", "'last.bias' holds NaN or infinite numbers"),)
        assert is_same(outcome, judge(plain, defense))


def test_a_round_that_leaves_nobody_is_an_error() -> None:
    received = receive(range(3))
    received.values[:] = torch.inf
    words = r"^nobody is left to judge: of client 'site-00', 'first\.weight' holds NaN or infinite numbers$"
    with pytest.raises(UpdateError, match=words):
        judge(received, FedAvg())


def test_so_is_an_own_update_of_the_server_that_is_not_finite() -> None:
    context = Context(round=1, rounds=None, base=BASE, trusted=torch.full((LAYOUT.width,), torch.nan))
    with pytest.raises(UpdateError, match=r"^the server's own update holds NaN or infinite numbers$"):
        judge_round(receive(range(3)), FLTrust(), context, BUFFERS)


@dataclass(frozen=True)
class Changing:
    """Changes what FedAvg decides."""

    changes: dict[str, Any]

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        return replace(FedAvg()(updates, context), state={"new": 1}, **self.changes)


@pytest.mark.parametrize(
    ("defense", "words"),
    [
        (Krum(tolerate=4), "tolerating 4 needs over 6 updates, got 6"),
        (Snowball(clusters=6), "6 clusters need over 6 updates, got 6"),
        (Changing({"delta": torch.full((8,), torch.nan)}), "the defense's average holds NaN or infinite numbers"),
        (Changing({"delta": torch.zeros(3)}), "the defense's average is torch.float32 (3,), 8 numbers are needed"),
        (lambda updates, context: 3, "the defense returned int, a Verdict is needed"),
        (Changing({"elected": torch.ones(6)}), "the defense elects by torch.float32 (6,), 6 bools are needed"),
    ],
)
def test_where_the_defense_cannot_judge_who_is_left_the_model_stays(defense: Defense, words: str) -> None:
    received, state = receive(range(7)), {"before": 1}
    received.values[2, 0] = torch.nan
    outcome = judge(received, defense, state=state)
    assert outcome.kept == words
    assert outcome.base is BASE
    assert outcome.buffers is BUFFERS
    assert outcome.state is state
    assert (outcome.elected.tolist(), outcome.facts) == ([False] * 6, {})
    assert [fault.client for fault in outcome.dropped] == ["site-02"]


def test_a_model_that_would_not_be_finite_stays() -> None:
    base = torch.full((LAYOUT.width,), 3e38)
    outcome = judge_round(
        receive(range(3)), Changing({"delta": base}), Context(round=1, rounds=None, base=base), BUFFERS
    )
    assert outcome.kept == "the average holds NaN or infinite numbers"
    assert outcome.base is base


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_the_new_row_takes_the_memory_of_the_delta_only_where_it_may(dtype: torch.dtype) -> None:
    delta = (torch.arange(LAYOUT.width) / 16).to(dtype)
    defense, context, before = Changing({"delta": delta}), Context(round=1, base=BASE), delta.clone()
    kept = judge_round(receive(range(3)), defense, context, BUFFERS)
    assert torch.equal(delta, before)
    assert torch.equal(kept.base, BASE + before)
    assert kept.base.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    overwritten = judge_round(receive(range(3)), defense, context, BUFFERS, overwrite=True)
    assert torch.equal(overwritten.base, kept.base)
    assert (overwritten.base.data_ptr() == delta.data_ptr()) == (dtype != torch.float16)
    assert torch.equal(BASE, torch.arange(LAYOUT.width) / 8)


def test_a_delta_with_gaps_in_its_memory_is_not_overwritten() -> None:
    delta = (torch.arange(2 * LAYOUT.width) / 16)[::2]
    outcome = judge_round(receive(range(3)), Changing({"delta": delta}), Context(round=1, base=BASE), BUFFERS, True)
    assert torch.equal(outcome.base, BASE + torch.arange(LAYOUT.width) / 8)


def test_a_model_that_would_not_be_finite_stays_even_if_it_was_half_made() -> None:
    received = receive(range(3))
    base = {name: torch.full_like(tensor, 3e38) for name, tensor in LAYOUT.split(BASE).items()}
    models = [{name: base[name].clone() for name in base} for _ in received.clients]
    received = replace(received, values=Differences(base, models, torch.ones(3), LAYOUT))
    context = Context(round=1, base=lambda: LAYOUT.to_row(base))
    defense = Changing({"delta": torch.full((LAYOUT.width,), 3e38)})
    outcome = judge_round(received, defense, context, BUFFERS, overwrite=True)
    assert outcome.kept == "the average holds NaN or infinite numbers"
    assert outcome.buffers is BUFFERS
    assert torch.equal(outcome.base, torch.full((LAYOUT.width,), 3e38))
    assert all((tensor == torch.tensor(3e38)).all() for tensors in (base, *models) for tensor in tensors.values())


def test_a_fault_in_the_code_of_a_defense_is_not_hidden() -> None:
    def divide(updates: Updates, context: Context) -> Verdict:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        judge(receive(range(3)), divide)


@pytest.mark.parametrize("defense", [FLDetector(window=1), FoolsGold()])
def test_a_defense_with_a_memory_has_none_of_the_dropped_until_they_come_back(defense: Defense) -> None:
    received = receive(range(6))
    received.values[4] = torch.nan
    first = judge(received, defense)
    assert first.state is not None
    assert "site-04" not in first.state["clients"]
    second = judge(receive(range(6)), defense, 2, first.state)
    assert second.kept is None
    assert second.state is not None
    assert "site-04" in second.state["clients"]
    assert all(entry.isfinite().all() for entry in tensors_in(second.state))


def tensors_in(state: Any) -> list[Tensor]:
    if isinstance(state, dict):
        return tensors_in(list(state.values()))
    if isinstance(state, list):
        return [tensor for entry in state for tensor in tensors_in(entry)]
    return [state] if isinstance(state, Tensor) else []


def reply_from(received: Received, place: int) -> Reply:
    """What a client of a real federation sends for the same update."""
    model = LAYOUT.split(BASE + received.values[place])
    return Reply(received.clients[place], received.examples[place].item(), {**model, **received.buffers[place]})


@pytest.mark.parametrize(
    "defense", [FedAvg(), Krum(), Krum(tolerate=5), Median(), Snowball(clusters=3), Snowball(clusters=7), FoolsGold()]
)
@settings(max_examples=10, deadline=None, database=None)
@given(
    numbers=st.lists(st.integers(0, 99), min_size=8, max_size=8, unique=True),
    broken=st.dictionaries(st.integers(0, 7), st.sampled_from(BROKEN), max_size=3),
    in_buffers=st.booleans(),
)
def test_a_guard_makes_the_same_model_of_the_same_replies_to_the_bit(
    defense: Defense, numbers: list[int], broken: dict[int, float], in_buffers: bool
) -> None:
    received = receive(numbers)
    for place, number in broken.items():
        target = received.buffers[place]["norm.running_mean"] if in_buffers else received.values[place]
        target[0] = number
    replies = [reply_from(received, place) for place in range(8)]
    outcome = judge(received, defense)
    judgement = Guard(defense, seed=7, max_share=1)({**LAYOUT.split(BASE), **BUFFERS}, replies)
    assert judgement.kept == (outcome.kept is not None)
    assert judgement.entry["reason"] == outcome.kept
    for name, tensor in {**LAYOUT.split(outcome.base), **outcome.buffers}.items():
        assert torch.equal(judgement.tensors[name], tensor)
    dropped = {fault["client"]: (fault["reason"], fault["detail"]) for fault in judgement.entry["dropped"]}
    assert dropped == {fault.client: (fault.reason, fault.detail) for fault in outcome.dropped}
    elected = [client for client, chosen in zip(outcome.updates.clients, outcome.elected, strict=True) if chosen]
    assert judgement.averaged == tuple(sorted(elected))


def test_a_state_that_no_round_left_is_an_error_and_not_a_reason_to_keep_the_model() -> None:
    with pytest.raises(RunError, match="the defense's state is damaged"):
        judge(receive(range(5)), FoolsGold(), round=2, state={"clients": {"site-00": {"round": 1, "sum": BASE[:2]}}})
