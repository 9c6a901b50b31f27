from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.fldetector import FLDetector, compute_shares
from snowball.defenses.lbfgs import Hessian
from snowball.defenses.score_clusters import count_clusters, find_least_scatter, select_upper_cluster
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.serialization import pack, unpack
from snowball.testing import make_toy_round
from snowball.updates import Updates

WIDTH = 8
STEPS = [torch.tensor([1.0, 1, 0]), torch.tensor([0.0, 1, 1])]
CHANGES = [torch.tensor([1.0, 2, 0]), torch.tensor([0.0, 2, 3])]  # of a loss with the Hessian diag(1, 2, 3)
TWO_GROUPS = [0.018, 0.019, 0.02, 0.021, 0.022, 0.0205, 0.0195, 0.0188, 0.0212, 0.0207, 0.05, 0.052, 0.049]


def dense_hessian(steps: Sequence[np.ndarray], changes: Sequence[np.ndarray], width: int = WIDTH) -> np.ndarray:
    """BFGS as it is taught: a matrix that every step corrects by two outer products."""
    if not steps:
        return np.zeros((width, width))
    hessian = np.eye(width) * (changes[-1] @ steps[-1]) / (steps[-1] @ steps[-1])
    for step, change in zip(steps, changes, strict=True):
        along = hessian @ step
        hessian = hessian - np.outer(along, along) / (step @ along) + np.outer(change, change) / (change @ step)
    return hessian


def federation(
    rounds: int, present: int = 10, clients: int = 10, malicious: int = 3, drift: float = 0.3
) -> Iterator[tuple[Updates, Tensor]]:
    """Rounds of clients that go down a bowl each, of malicious ones that go anywhere, and the model of each round.

    The generator is sent what to add to the model.
    """
    rng = stream(0, "federation")
    curvature = torch.linspace(0.5, 2, WIDTH, dtype=torch.float64)
    goals = torch.randn(clients, WIDTH, generator=rng, dtype=torch.float64)
    base = torch.randn(WIDTH, generator=rng, dtype=torch.float64) * 5
    for _ in range(rounds):
        chosen = torch.randperm(clients, generator=rng)[:present]
        noise = torch.randn(clients, WIDTH, generator=rng, dtype=torch.float64)
        rows = 0.1 * curvature * (goals - base) + 0.01 * noise
        rows[clients - malicious :] += drift * noise[clients - malicious :]
        names = [f"c{client}" for client in chosen.tolist()]
        updates = Updates.from_layers({"w": rows[chosen]}, examples=(chosen + 1).tolist(), clients=names)
        base = base + (yield updates, base)


def run(defense: FLDetector, rounds: int, stored: bool = False, **setup: Any) -> list[tuple[Updates, Tensor, Verdict]]:
    """All rounds with their verdicts; `stored` writes the state to bytes and reads it back after each."""
    played = federation(rounds, **setup)
    updates, base = next(played)
    results, state = [], None
    for round in range(1, rounds + 1):
        verdict = defense(updates, Context(round=round, rounds=rounds, base=base, state=state))
        state = unpack(pack(verdict.state)) if stored else verdict.state
        results.append((updates, base, verdict))
        if round < rounds:
            updates, base = played.send(verdict.delta)
    return results


def expected_scores(results: list[tuple[Updates, Tensor, Verdict]], window: int) -> list[np.ndarray]:
    """The scores by the paper's formulas, client by client, with a dense Hessian."""
    last: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    history: dict[str, list[float]] = {}
    bases: list[np.ndarray] = []
    means: list[np.ndarray] = []
    scores = []
    for updates, base, verdict in results:
        steps, changes = np.diff(bases, axis=0)[-window:], np.diff(means, axis=0)[-window:]
        hessian = dense_hessian(list(steps), list(changes)) if len(bases) > 1 else dense_hessian([], [])
        rows = dict(zip(updates.clients, updates.values.numpy(), strict=True))
        errors = {
            client: np.linalg.norm(last[client][0] + hessian @ (base.numpy() - last[client][1]) - row)
            for client, row in rows.items()
            if client in last
        }
        for client, error in errors.items():
            history.setdefault(client, []).append(error / np.mean(list(errors.values())))
        present = [history.get(client, [])[-window:] for client in updates.clients]
        scores.append(np.array([np.mean(past) / len(errors) if past else np.nan for past in present]))
        last |= {client: (row, base.numpy()) for client, row in rows.items()}
        bases.append(base.numpy())
        means.append(verdict.delta.numpy())
    return scores


def found(updates: Updates, verdict: Verdict) -> set[str]:
    return {client for client, kept in zip(updates.clients, verdict.elected.tolist(), strict=True) if not kept}


def test_a_step_that_was_taken_changes_the_gradient_as_it_did() -> None:
    hessian = Hessian(STEPS, CHANGES)
    torch.testing.assert_close(hessian.times(STEPS[1]), CHANGES[1].double())
    expected = torch.tensor([1.5164, -0.2869, 0.2869], dtype=torch.float64)
    torch.testing.assert_close(hessian.times(torch.tensor([1.0, 0, 0])), expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("factor", [1.0, -0.01])
def test_the_compact_form_is_the_dense_one(count: int, factor: float) -> None:
    rng = np.random.default_rng(count)
    root = rng.normal(size=(30, 30))
    steps = [rng.normal(size=30) * 10.0 ** rng.integers(-3, 3) for _ in range(count)]
    changes = [factor * (root @ root.T + np.eye(30)) @ step for step in steps]
    hessian = Hessian([torch.tensor(step) for step in steps], [torch.tensor(change) for change in changes])
    for vector in (rng.normal(size=30), steps[-1]):
        expected = dense_hessian(steps, changes, 30) @ vector
        np.testing.assert_allclose(hessian.times(torch.tensor(vector)).numpy(), expected, rtol=1e-7, atol=1e-9)


def test_steps_that_say_nothing_new_do_no_harm() -> None:
    twice = Hessian([STEPS[0], STEPS[1], STEPS[1]], [CHANGES[0], CHANGES[1], CHANGES[1]])
    torch.testing.assert_close(twice.times(STEPS[1]), CHANGES[1].double())
    with_rest = Hessian([torch.zeros(3), STEPS[1]], [torch.zeros(3), CHANGES[1]])
    torch.testing.assert_close(with_rest.times(STEPS[1]), CHANGES[1].double())


@pytest.mark.parametrize("steps", [[], [torch.zeros(3)], [STEPS[0], torch.zeros(3)]])
def test_without_a_last_step_nothing_is_expected_to_change(steps: list[Tensor]) -> None:
    assert Hessian(steps, CHANGES[: len(steps)]).times(torch.ones(3)).tolist() == [0, 0, 0]


def test_errors_are_shared_out_by_hand() -> None:
    base, entry = torch.zeros(3), {"round": 5, "errors": []}
    last = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    state = {
        "round": 5,
        "mean": torch.zeros(3),
        "clients": {str(client): {**entry, "row": row} for client, row in enumerate(last)},
        "bases": {"5": base - torch.tensor([0, 0.1, 0.1])},
        "steps": STEPS,
        "changes": CHANGES,
        "blacklist": [],
    }
    surprise = torch.tensor([[0.1, 0, 0], [0, 0.1, 0], [0, 0, -0.1], [0.4, 0.3, 0]])
    updates = Updates.from_layers({"w": last + torch.tensor([0, 0.2, 0.3]) + surprise})
    verdict = FLDetector(window=5)(updates, Context(round=6, base=base, state=state))
    expected = torch.tensor([0.125, 0.125, 0.125, 0.625], dtype=torch.float64)
    torch.testing.assert_close(verdict.facts["scores"], expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        compute_shares(torch.tensor([1.0, torch.nan, 3])).nan_to_num(-1), torch.tensor([0.25, -1, 0.75])
    )


@pytest.mark.parametrize("seed", range(8))
def test_two_groups_of_scores_are_told_from_an_even_spread(seed: int) -> None:
    scores = torch.tensor(TWO_GROUPS, dtype=torch.float64)
    assert count_clusters(scores, stream(seed)) == 2
    assert select_upper_cluster(scores).nonzero().flatten().tolist() == [10, 11, 12]
    assert count_clusters(torch.linspace(0.01, 0.03, 13, dtype=torch.float64), stream(seed)) == 1


@pytest.mark.parametrize("scores", [(0.0, 0.0), (0.1, 0.1), (0.1, 0.1 + 1e-13)])
def test_equal_scores_are_no_attack(scores: tuple[float, float]) -> None:
    assert count_clusters(torch.tensor(scores, dtype=torch.float64).repeat(5), stream(0)) == 1


def test_scores_in_a_few_points_count_as_clusters() -> None:
    scores = torch.tensor([0.1] * 5 + [0.3] * 3, dtype=torch.float64)
    assert count_clusters(scores, stream(0)) == 2
    assert select_upper_cluster(scores).tolist() == [False] * 5 + [True] * 3


def test_clusters_of_numbers_are_the_best_there_are() -> None:
    numbers = torch.rand(9, generator=stream(1), dtype=torch.float64).sort().values
    for clusters, scatter in enumerate(find_least_scatter(numbers.flip(0), 5).tolist(), start=1):
        ways = ([0, *cuts, 9] for cuts in combinations(range(1, 9), clusters - 1))
        parts = ([numbers[start:end] for start, end in pairwise(cuts)] for cuts in ways)
        assert scatter == pytest.approx(
            min(sum(float(part.var(correction=0)) * len(part) for part in way) for way in parts)
        )


def test_the_largest_number_of_clusters_is_taken_where_none_fits() -> None:
    assert count_clusters(4.0 ** torch.arange(9, dtype=torch.float64), stream(0)) == 7


@pytest.mark.parametrize("setup", [{}, {"present": 7, "clients": 12}])
@pytest.mark.parametrize("window", [2, 4])
def test_scores_are_the_papers_for_whoever_is_there(setup: dict[str, int], window: int) -> None:
    results = run(FLDetector(window), 14, **setup)
    for (_, _, verdict), expected in zip(results, expected_scores(results, window), strict=True):
        np.testing.assert_allclose(verdict.facts["scores"], expected, rtol=1e-6)
    if not setup:
        assert float(results[-1][2].facts["scores"].sum()) == pytest.approx(1)


def test_detection_starts_with_a_full_window_and_finds_the_malicious() -> None:
    results = run(FLDetector(window=4), 12)
    clusters = [verdict.facts["clusters"] for _, _, verdict in results]
    assert np.isnan(clusters[:5]).all()
    assert not np.isnan(clusters[5:]).any()
    assert all(verdict.elected.all() for _, _, verdict in results[:5])
    assert all(found(updates, verdict) == {"c7", "c8", "c9"} for updates, _, verdict in results[5:])


def test_nobody_is_found_where_nobody_is_malicious() -> None:
    assert all(verdict.elected.all() for _, _, verdict in run(FLDetector(window=4), 12, malicious=0))


def test_the_malicious_are_found_when_they_come_and_go() -> None:
    for updates, _, verdict in run(FLDetector(window=4), 30, present=10, clients=20, malicious=5, drift=3.0)[6:]:
        assert found(updates, verdict) == {client for client in updates.clients if int(client[1:]) >= 15}


def test_the_elected_are_averaged_by_their_examples() -> None:
    updates, _, verdict = run(FLDetector(window=4), 12)[-1]
    torch.testing.assert_close(verdict.delta, updates.mean(updates.examples * verdict.elected))


@pytest.mark.parametrize("on_detect", ["exclude_round", "blacklist"])
def test_a_stored_history_goes_on_to_the_bit(on_detect: Any) -> None:
    defense, setup = FLDetector(3, on_detect, forget_after=6, remember=12), {"present": 8, "clients": 14}
    for (_, _, one), (_, _, other) in zip(
        run(defense, 16, **setup), run(defense, 16, stored=True, **setup), strict=True
    ):
        assert torch.equal(one.delta, other.delta)
        assert torch.equal(one.elected, other.elected)
        torch.testing.assert_close(one.facts["scores"], other.facts["scores"], rtol=0, atol=0, equal_nan=True)
        assert one.state is not None
        assert one.state.keys() == unpack(pack(other.state)).keys()


def test_the_order_of_rows_is_irrelevant_to_the_bit() -> None:
    results = run(FLDetector(window=3), 10, present=8, clients=12)
    (_, _, before), (updates, base, _) = results[-2:]
    order = torch.randperm(len(updates), generator=stream(0))
    clients = tuple(updates.clients[row] for row in order)
    moved = Updates(updates.values[order], updates.examples[order], clients, updates.layout)
    here, there = (
        FLDetector(window=3)(given, Context(round=10, rounds=10, base=base, state=before.state))
        for given in (updates, moved)
    )
    torch.testing.assert_close(here.facts["scores"], there.facts["scores"], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(here.delta, there.delta)
    assert here.state is not None
    assert there.state is not None
    assert {client: entry["errors"] for client, entry in here.state["clients"].items()} == {
        client: entry["errors"] for client, entry in there.state["clients"].items()
    }


def test_a_score_does_not_depend_on_how_many_others_are_known() -> None:
    def rows(count: int, value: float) -> Updates:
        return Updates.from_layers({"w": torch.full((count, 4), value, dtype=torch.float64)})

    defense, base = FLDetector(), torch.zeros(4)
    first = defense(rows(2, 1.0), Context(round=1, base=base))
    second = defense(rows(8, 2.0), Context(round=2, base=base, state=first.state))
    third = defense(rows(8, 3.0), Context(round=3, base=base, state=second.state))
    torch.testing.assert_close(third.facts["scores"], torch.full((8,), 1 / 8, dtype=torch.float64))


def test_three_scored_clients_are_too_few_to_cluster() -> None:
    results = run(FLDetector(window=1), 8, present=3, clients=3, malicious=1)
    assert all(verdict.elected.all() and np.isnan(verdict.facts["clusters"]) for _, _, verdict in results)


def test_the_blacklisted_never_come_back() -> None:
    results = run(FLDetector(4, "blacklist"), 20, present=20, clients=20, malicious=5)
    malicious = {f"c{client}" for client in range(15, 20)}
    for updates, _, verdict in results[5:]:
        assert found(updates, verdict) == malicious
        assert verdict.facts["blacklisted"] == 5
        assert verdict.state is not None
        assert not malicious & set(verdict.state["clients"])
    _, _, last = results[-1]
    alone = Updates.from_layers({"w": torch.ones(1, WIDTH)}, clients=["c15"])
    state = last.state
    for round in (21, 22):
        verdict = FLDetector(4, "blacklist")(alone, Context(round=round, base=torch.zeros(WIDTH), state=state))
        assert not verdict.elected.any()
        assert not verdict.delta.any()
        state = verdict.state


def test_models_are_kept_once_and_no_longer_than_somebody_needs_them() -> None:
    window, results = 3, run(FLDetector(3), 20, present=4, clients=9)
    state = results[-1][2].state
    assert state is not None
    needed = {str(entry["round"]) for entry in state["clients"].values()} | {"20"}
    assert set(state["bases"]) == needed
    rows = len(needed) + len(state["clients"]) + 2 * window + 1
    assert results[-1][2].facts["history_mib"] * 2**20 == rows * WIDTH * 8


def test_clients_that_stay_away_are_forgotten() -> None:
    results = run(FLDetector(3, forget_after=2), 20, present=3, clients=12)
    seen = {client: round for round, (updates, _, _) in enumerate(results, start=1) for client in updates.clients}
    state = results[-1][2].state
    assert state is not None
    assert set(state["clients"]) == {client for client, round in seen.items() if round in (19, 20)}


def test_what_is_kept_does_not_change_with_the_next_round() -> None:
    values = torch.ones(3, 4)
    updates, base = Updates.from_layers({"w": values}), torch.zeros(4)
    verdict = FLDetector()(updates, Context(round=1, base=base))
    before = pack(verdict.state)
    values.zero_(), base.fill_(9), verdict.delta.fill_(9)
    assert pack(verdict.state) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [0.0, 1e3, 1e12])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_many_odd_rounds_stay_finite(dtype: torch.dtype, distance: float, scale: float) -> None:
    base, state = torch.zeros(40, dtype=dtype), None
    for round in range(1, 9):
        updates = make_toy_round(7, 2, distance, seed=round % 3, dtype=dtype)
        values = updates.values * scale * (round != 5)  # a round of zeros: the model does not move
        values[3] = values[4]
        verdict = FLDetector(window=2)(updates.replace_values(values), Context(round=round, base=base, state=state))
        assert verdict.delta.isfinite().all()
        assert verdict.elected.any()
        assert not torch.as_tensor(verdict.facts["scores"]).isnan().any() or round == 1
        base, state = base + verdict.delta, verdict.state


def test_fldetector_needs_the_model() -> None:
    with pytest.raises(SettingError, match=r"fldetector needs Context\.base"):
        FLDetector()(make_toy_round(), Context(round=1))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"window": 0}, "window must be 1 round or more, got 0"),
        ({"on_detect": "restart"}, "on_detect 'restart' is not one of exclude_round, blacklist"),
        ({"forget_after": 0}, "forget_after must be 1 round or more, got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        FLDetector(**settings)
