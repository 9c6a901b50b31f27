"""The clients that FLDetector and FoolsGold remember: no more than the bound, and no damaged entries."""

from collections.abc import Callable
from math import nan
from typing import Any

import pytest
import torch

from snowball.defenses import Context, Defense, FLDetector, FoolsGold, Verdict
from snowball.defenses.base import State
from snowball.defenses.build import make_defense
from snowball.defenses.history import MAX_REMEMBERED_CLIENTS, extend_barred
from snowball.errors import RunError, SettingError
from snowball.guard import Guard, Reply
from snowball.rng import stream
from snowball.serialization import pack
from snowball.updates import Updates

WIDTH = 3
BOTH = [FLDetector, FoolsGold]


def judge(
    defense: Defense, clients: list[str], round: int, state: State | None = None, seed: int = 0
) -> tuple[Verdict, State]:
    """A round of these clients, whose updates are made up."""
    rows = torch.randn(len(clients), WIDTH, generator=stream(round, "history"))
    updates = Updates.from_layers({"w": rows}, clients=clients)
    verdict = defense(updates, Context(round=round, base=torch.full((WIDTH,), float(round)), seed=seed, state=state))
    assert verdict.state is not None
    return verdict, verdict.state


def remembered(defense: Defense, rounds: list[list[str]], seed: int = 0) -> set[str]:
    """Whose history is kept after rounds of these clients."""
    state = None
    for round, clients in enumerate(rounds, start=1):
        _, state = judge(defense, clients, round, state, seed)
    assert state is not None
    return set(state["clients"])


@pytest.mark.parametrize("make", BOTH)
def test_twenty_thousand_fresh_ids_take_no_more_than_the_bound(make: Callable[..., Defense]) -> None:
    defense, state, most = make(), None, 0.0
    for round in range(1, 101):
        clients = [f"{round} {number}" for number in range(200)]
        verdict, state = judge(defense, clients, round, state)
        assert len(state["clients"]) == min(200 * round, MAX_REMEMBERED_CLIENTS)
        most = max(most, float(verdict.facts["history_mib"]))
    rows = MAX_REMEMBERED_CLIENTS + (3 + 2 * 10 + 1 if make is FLDetector else 0)  # models of 3 rounds, 10 steps
    assert most * 2**20 == rows * WIDTH * 4


@pytest.mark.parametrize("make", BOTH)
def test_whoever_was_not_seen_for_longest_goes_first(make: Callable[..., Defense]) -> None:
    rounds = [["a", "b"], ["c", "d"], ["a", "e"]]
    assert remembered(make(remember=3), [*rounds, ["f"]]) == {"a", "e", "f"}
    assert remembered(make(remember=5), rounds) == {"a", "b", "c", "d", "e"}
    assert remembered(make(remember=5, forget_after=2), rounds) == {"a", "c", "d", "e"}


@pytest.mark.parametrize("make", BOTH)
def test_ties_are_broken_by_the_seed_and_not_by_the_order_of_rows_or_ids(make: Callable[..., Defense]) -> None:
    clients = [f"{number:02d}" for number in range(40)]
    kept = {seed: remembered(make(remember=20), [clients], seed) for seed in range(4)}
    assert kept == {seed: remembered(make(remember=20), [clients[::-1]], seed) for seed in range(4)}
    assert len({frozenset(names) for names in kept.values()}) == 4
    assert set(clients[:20]) not in kept.values()
    assert remembered(make(remember=2), [["\ud800", "a", "b"]]) < {"\ud800", "a", "b"}  # an id that UTF-8 does not know


@pytest.mark.parametrize("make", BOTH)
def test_a_bound_that_is_not_reached_changes_no_bit(make: Callable[..., Defense]) -> None:
    states: list[State | None] = [None, None]
    for round in range(1, 9):
        clients = [str(client) for client in torch.randperm(20, generator=stream(round)).tolist()[:10]]
        verdicts = []
        for number, bound in enumerate((20, None)):
            verdict, states[number] = judge(make(remember=bound), clients, round, states[number])
            verdicts.append(verdict)
        assert pack([dict(verdict.facts) for verdict in verdicts[:1]]) == pack([dict(verdicts[1].facts)])
        assert torch.equal(verdicts[0].delta, verdicts[1].delta)
        assert pack(states[0]) == pack(states[1])


def test_the_forgotten_are_taken_unseen() -> None:
    verdicts, state = [], None
    for round, clients in enumerate((["a", "b", "c"], ["c", "d", "e"], ["a", "c", "e"]), start=1):
        verdict, state = judge(FLDetector(remember=3), clients, round, state)
        verdicts.append(torch.as_tensor(verdict.facts["scores"]).isnan().tolist())
    assert verdicts == [[True, True, True], [False, True, True], [True, False, False]]


def test_the_blacklisted_take_no_place_of_others() -> None:
    _, state = judge(FLDetector(), ["a", "b", "c", "d"], 1)
    state = {**state, "blacklist": ["c", "d"]}
    _, state = judge(FLDetector(on_detect="blacklist", remember=2), ["c", "d"], 2, state)
    assert set(state["clients"]) == {"a", "b"}


def test_a_guard_keeps_no_more_than_the_bound_of_a_longer_history() -> None:
    def answer(guard: Guard, round: int) -> None:
        replies = [Reply(f"{round} {number}", 1, {"w": torch.ones(WIDTH) * number}) for number in range(1, 6)]
        assert not guard({"w": torch.zeros(WIDTH)}, replies).kept

    former, guard = Guard(FoolsGold(remember=None)), Guard(FoolsGold(remember=7))
    answer(former, 1)
    answer(former, 2)
    guard.load_state_dict(former.state_dict())
    answer(guard, 3)
    assert former.state is not None
    assert guard.state is not None
    assert (len(former.state["clients"]), len(guard.state["clients"])) == (10, 7)


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("bound", [0, -1, nan, 1.5, True])
def test_bounds_that_bound_nothing_are_refused(make: Callable[..., Defense], bound: Any) -> None:
    with pytest.raises(SettingError, match=f"remember must be 1 client or more, got {bound}"):
        make(remember=bound)
    with pytest.raises(SettingError, match=f"forget_after must be 1 round or more, got {bound}"):
        make(forget_after=bound)


@pytest.mark.parametrize("name", ["fldetector", "foolsgold"])
@pytest.mark.parametrize("bound", [0, -1, nan, 1.5, True, "many"])
def test_bounds_in_a_file_are_refused_too(name: str, bound: Any) -> None:
    with pytest.raises(SettingError, match="remember"):
        make_defense("defense", name, {"remember": bound})


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "no clients": ({"clients": None}, "its clients cannot be a NoneType"),
    "a list of clients": ({"clients": [1]}, "its clients cannot be a list"),
    "a client that is nothing": ({"clients": {"a": 5}}, "in which of 2 rounds client 'a' was last seen"),
    "a client of no round": ({"clients": {"a": {}}}, "in which of 2 rounds client 'a' was last seen"),
    "a client of the future": ({"clients": {"a": {"round": 3}}}, "in which of 2 rounds client 'a' was last seen"),
    "a long name": ({"clients": {"a" * 9999: {}}}, f"client 'a{'a' * 58} was last seen"),
    "no row": ({"clients": {"a": {"round": 1}}}, "of client 'a' is not 3 numbers"),
    "a row of another model": (
        {"clients": {"a": {"round": 1, "row": torch.ones(4), "sum": torch.ones(4)}}},
        "of client 'a' is not 3 numbers",
    ),
    "a row of integers": (
        {"clients": {"a": {"round": 1, "row": torch.ones(3).int(), "sum": torch.ones(3).int()}}},
        "of client 'a' is not 3 numbers",
    ),
}

KNOWN = {"round": 1, "row": torch.ones(3), "errors": []}
DETECTOR: dict[str, tuple[dict[str, Any], str]] = {
    "no errors": ({"clients": {"a": {**KNOWN, "errors": None}}}, "blacklist and errors are not lists"),
    "errors of text": ({"clients": {"a": {**KNOWN, "errors": ["1"]}}}, "its errors are not possible numbers"),
    "no steps": ({"steps": None}, "its steps, changes, blacklist and errors are not lists"),
    "no blacklist": ({"blacklist": None}, "its steps, changes, blacklist and errors are not lists"),
    "a step more": ({"steps": [torch.ones(3)]}, "steps and changes are not rows of 3 numbers"),
    "a long step": ({"steps": [torch.ones(4)], "changes": [torch.ones(3)]}, "are not rows of 3 numbers"),
    "no models": ({"bases": {}}, "it lacks models that updates were trained from"),
    "a list of models": ({"bases": [1]}, "it lacks models that updates were trained from"),
    "a model of numbers": ({"bases": {"1": 5}}, "its models, mean, steps and changes are not rows of 3 numbers"),
    "no mean": ({"mean": None}, "its models, mean, steps and changes are not rows of 3 numbers"),
    "another round": ({"round": 7}, "its last round is not one of 2"),
    "a barred client without an id": ({"blacklist": [["a"]]}, "its blacklist does not consist of client ids"),
    "a huge error": ({"clients": {"a": {**KNOWN, "errors": [1e308]}}}, "its errors are not possible numbers"),
    "a client without an id": ({"clients": {5: KNOWN}}, "the id of a client cannot be a int"),
}


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_history_is_refused(make: Callable[..., Defense], case: str) -> None:
    check_refusal(make(), *DAMAGED[case])


@pytest.mark.parametrize("case", DETECTOR)
def test_a_damaged_memory_of_the_detector_is_refused(case: str) -> None:
    check_refusal(FLDetector(), *DETECTOR[case])


def check_refusal(defense: Defense, damage: dict[str, Any], sentence: str) -> None:
    """What a round left is refused after this damage, in one sentence."""
    _, state = judge(defense, ["a", "b"], 1)
    with pytest.raises(RunError) as caught:
        judge(defense, ["a", "b"], 2, {**state, **damage})
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("the defense's state is damaged or of another federation: ")


def test_barred_clients_are_bounded_and_the_latest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snowball.defenses.history.MAX_BARRED_CLIENTS", 5)
    former = [f"client-{number}" for number in range(9)]
    kept = {seed: extend_barred(former, ["a", "b"], Context(round=3, seed=seed)) for seed in range(4)}
    assert all(len(barred) == 5 and {"a", "b"} <= set(barred) and barred == sorted(barred) for barred in kept.values())
    assert len({tuple(barred) for barred in kept.values()}) > 1  # nobody can choose an id that is certain to be kept
    assert extend_barred(["b"], ["a", "b"], Context(round=3, seed=1)) == ["a", "b"]
