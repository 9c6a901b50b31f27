from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import HDBSCAN

from snowball.defenses import Context
from snowball.defenses.fedsurrogate import (
    SUSPECT,
    TRUSTED,
    FedSurrogate,
    choose_critical,
    find_critical,
    find_donors,
    mark_outliers,
    measure_compromise,
    measure_divergence,
    read_records,
    record_scores,
    scale_to_range,
)
from snowball.errors import RunError, SettingError
from snowball.layout import Layout
from snowball.rng import stream
from snowball.testing import check_defense
from snowball.updates import Updates

LAYOUT = Layout(("first.weight", "middle.weight", "middle.bias", "last.weight"), ((6, 5), (5, 6), (5,), (4, 5)))
BASE = torch.randn(LAYOUT.width, generator=stream(0, "base"), dtype=torch.float64)
FIRST = Context(round=1, base=BASE, seed=3)


def make_round(round: int, clients: int = 14, infected: int = 4) -> Updates:
    """Make a round in which the last clients move the last layer, and the first one goes further than all others."""
    rng = stream(round, "round")
    rows = 0.05 + 0.1 * torch.randn(clients, LAYOUT.width, generator=rng, dtype=torch.float64)
    rows[0, LAYOUT.columns["middle.weight"]] += 0.08
    rows[clients - infected :, LAYOUT.columns["last.weight"]] += 1.5
    examples = torch.randint(10, 60, (clients,), generator=rng).double()
    return Updates(rows, examples, tuple(f"c{row:02}" for row in range(clients)), LAYOUT)


class Reference:
    """The whole method in NumPy and scikit-learn, one client at a time, with its own memory."""

    def __init__(self) -> None:
        self.trusted_scores: dict[str, list[float]] = {}
        self.suspect_scores: dict[str, list[float]] = {}

    def __call__(self, updates: Updates, base: np.ndarray, critical: int) -> tuple[np.ndarray, list[int], list[int]]:
        """Return the average, the trusted or rescued rows, and the confirmed ones."""
        rows, examples = updates.values.numpy(), updates.examples.numpy()
        columns = updates.layout.columns
        names = self.choose_names(rows, columns, critical)
        models = np.concatenate([(rows + base)[:, columns[name]] for name in names], 1)
        units = models / np.linalg.norm(models, axis=1, keepdims=True)
        distances = np.clip(1 - units @ units.T, 0, None)
        np.fill_diagonal(distances, 0)
        distances = np.maximum(distances, distances.T)
        clusterer = HDBSCAN(
            min_cluster_size=len(rows) // 2 + 1,
            min_samples=1,
            metric="precomputed",
            allow_single_cluster=True,
            copy=True,
        )
        labels = clusterer.fit_predict(distances)
        sizes = {label: int((labels == label).sum()) for label in set(labels.tolist()) - {-1}}
        best = max(sizes, key=lambda label: sizes[label])
        trusted = [row for row in range(len(rows)) if labels[row] == best]
        scored = np.concatenate([rows[:, columns[name]] for name in ("middle.weight", "last.weight")], 1)
        mean = examples @ scored / examples.sum()
        raw = [float((row - mean) @ mean / np.linalg.norm(row - mean) / np.linalg.norm(mean)) for row in scored]
        screened = self.remember(self.trusted_scores, updates, trusted, raw)
        lower, upper = np.quantile(screened, [0.25, 0.75])
        demoted = [row for row, score in zip(trusted, screened, strict=True) if score > upper + 1.5 * (upper - lower)]
        trusted = [row for row in trusted if row not in demoted]
        suspects = [row for row in range(len(rows)) if row not in trusted]
        scores = self.remember(self.suspect_scores, updates, suspects, raw)
        bound = min(0.4, sorted(scores)[(len(scores) - 1) // 2]) if suspects else 0
        rescued = [row for row, score in zip(suspects, scores, strict=True) if score <= bound]
        confirmed = [row for row in suspects if row not in rescued]
        parts = [(row, 1.0, row) for row in trusted] + [(row, 0.7, row) for row in rescued]
        donors = {row: min(trusted + rescued, key=lambda kept, row=row: distances[row, kept]) for row in confirmed}
        parts += [(row, 0.3, donors[row]) for row in confirmed]
        weights = np.array([examples[row] * share for row, share, _ in parts])
        average = weights @ np.stack([rows[donor] for *_, donor in parts]) / weights.sum()
        return average, sorted(trusted + rescued), confirmed

    @staticmethod
    def choose_names(rows: np.ndarray, columns: dict[str, slice], critical: int) -> list[str]:
        """Choose the critical tensors among those of at least 20 numbers."""
        names = [name for name, own in columns.items() if own.stop - own.start >= 20]
        scores = {}
        for name in names:
            units = rows[:, columns[name]] / np.linalg.norm(rows[:, columns[name]], axis=1, keepdims=True)
            scores[name] = float((1 - units @ units.T)[np.triu_indices(len(rows), 1)].mean())
        median = np.median(list(scores.values()))
        deviation = np.median([abs(score / median - 1) for score in scores.values()])
        chosen = [name for name in names if scores[name] / median > 1 + 1.5 * deviation]
        for name in sorted(names, key=lambda name: -scores[name]):
            if sum(columns[own].stop - columns[own].start for own in chosen) < critical and name not in chosen:
                chosen.append(name)
        return chosen if len(chosen) >= 3 else sorted(names, key=lambda name: -scores[name])[:3]

    @staticmethod
    def remember(known: dict[str, list[float]], updates: Updates, members: list[int], raw: list[float]) -> list[float]:
        """Add the members' scores between the lowest and the highest of them; return their means."""
        low, high = min(raw[row] for row in members), max(raw[row] for row in members)
        for row in members:
            share = (raw[row] - low) / (high - low) if high > low else 0.0
            known.setdefault(updates.clients[row], []).append(share)
        return [float(np.mean(known[updates.clients[row]])) for row in members]


def test_four_rounds_are_those_of_numpy_and_scikit_learn() -> None:
    defense, reference, state = FedSurrogate(candidate=20, critical=40), Reference(), None
    for round in range(1, 5):
        updates = make_round(round)
        verdict = defense(updates, replace(FIRST, round=round, state=state))
        average, kept, confirmed = reference(updates, BASE.numpy(), 40)
        np.testing.assert_allclose(verdict.delta, average, rtol=1e-9, atol=1e-12)
        assert verdict.elected.nonzero()[:, 0].tolist() == kept
        assert verdict.suspects is not None
        assert verdict.suspects.nonzero()[:, 0].tolist() == confirmed
        assert confirmed
        state = verdict.state
    assert state is not None
    in_trust, in_doubt = read_records(state, 4)["c00"][:, 1].tolist()
    assert in_trust + in_doubt > 4  # in some rounds it was demoted


def test_the_least_compromised_suspects_are_rescued_and_the_others_replaced() -> None:
    verdict = FedSurrogate(candidate=20)(make_round(1), FIRST)
    assert verdict.suspects is not None
    assert verdict.suspects[10:].all()
    assert not (verdict.suspects & verdict.elected).any()
    assert (verdict.suspects | verdict.elected).all()
    weights = torch.as_tensor(verdict.facts["weights"])
    assert weights[verdict.elected].min() > 0
    assert not weights[verdict.suspects].any()
    assert float(weights.sum()) == pytest.approx(1)


def test_who_stands_in_gets_what_is_left_of_the_weight_of_the_replaced() -> None:
    """Three equal rows, a near one and a far one; the far one scores higher, so that the nearest of the rest gains."""
    rows = torch.tensor([[1.0, 0.1], [1, 0.1], [1, 0.1], [1, 0.2], [9, 9]], dtype=torch.float64)
    updates = Updates.from_layers({"w": rows}, examples=[1.0, 1, 1, 2, 4])
    verdict = FedSurrogate()(updates, Context(round=1, base=torch.zeros(2, dtype=torch.float64)))
    assert verdict.elected.tolist() == [True, True, True, True, False]
    weights = torch.tensor([1, 1, 1, 0.7 * 2 + 0.3 * 4, 0]).double()
    torch.testing.assert_close(verdict.facts["weights"], weights / weights.sum())
    torch.testing.assert_close(verdict.delta, weights @ rows / weights.sum())


def test_a_lone_suspect_is_always_rescued() -> None:
    """It is the lowest of its group, so that its score is 0."""
    rows = torch.cat([torch.tensor([[1.0, 0.1]]).repeat(5, 1), torch.tensor([[-50.0, 60]])]).double()
    updates = Updates.from_layers({"w": rows})
    verdict = FedSurrogate()(updates, Context(round=1, base=torch.zeros(2, dtype=torch.float64)))
    assert verdict.elected.all()
    torch.testing.assert_close(verdict.facts["weights"], torch.tensor([1.0, 1, 1, 1, 1, 0.7]).double() / 5.7)


def test_tensors_stand_out_by_their_deviation() -> None:
    """Of 1, 2, 3, 4 and 10 the median is 3 and the median deviation 1: beyond 4.5 is only the last."""
    names, scores = list("abcde"), torch.tensor([1.0, 2, 3, 4, 10]).double()
    sizes = [100] * 5
    assert choose_critical(names, sizes, scores, 1.5, 100) == ["e", "d", "c"]  # three at least
    assert choose_critical(names, sizes, scores, 0.5, 100) == ["e", "d", "c"]
    assert choose_critical(names, sizes, scores, 1.5, 400) == ["e", "d", "c", "b"]
    assert choose_critical(names, sizes, scores, 1.5, 9999) == ["e", "d", "c", "b", "a"]
    assert choose_critical(names[:2], sizes[:2], scores[:2], 1.5, 1) == ["b", "a"]
    high = torch.tensor([3.0, 3, 3, 3, 3, 8, 9, 9, 9]).double()
    assert choose_critical(list("abcdefghi"), [1] * 9, high, 1.5, 1) == ["g", "h", "i", "f"]
    assert choose_critical(names, sizes, torch.zeros(5).double(), 1.5, 300) == ["a", "b", "c"]


def test_the_divergence_is_the_mean_cosine_distance() -> None:
    """Of directions at 0, 60 and 180 degrees the distances are 1/2, 2 and 3/2."""
    rows = torch.tensor([[2.0, 0], [0.5, 0.75**0.5], [-3, 0]], dtype=torch.float64)
    updates = Updates.from_layers({"w": rows})
    assert measure_divergence(updates, slice(0, 2)) == pytest.approx(4 / 3)
    assert measure_divergence(updates.select(torch.tensor([True, False, False])), slice(0, 2)) == 0


def test_small_tensors_are_no_candidates_unless_all_are_small() -> None:
    updates = make_round(1)
    assert "middle.bias" not in find_critical(updates, 20, 1.5, 1000)
    assert set(find_critical(updates, 1000, 1.5, 1000)) == set(LAYOUT.names)


def test_compromise_by_hand() -> None:
    """The weighted mean is (2, 0): what lies beyond it scores 1, beside it 0, before it -1, and itself 0."""
    rows = torch.tensor([[3.0, 0], [2, 1], [2, -1], [1, 0], [2, 0]], dtype=torch.float64)
    updates = Updates.from_layers({"w": rows}, examples=[2.0, 1, 1, 2, 7])
    assert measure_compromise(updates, ["w"]).tolist() == pytest.approx([1, 0, 0, -1, 0])
    assert measure_compromise(updates.replace_values(rows * 0 + 1 / 3), ["w"]).tolist() == [0] * 5
    assert measure_compromise(updates.replace_values(rows * 0), ["w"]).tolist() == [0] * 5


def test_scores_are_averaged_by_role_over_the_rounds_in_it() -> None:
    records = torch.zeros(3, 2, 2, dtype=torch.float64)
    everyone = torch.tensor([True, True, True])
    assert record_scores(records, TRUSTED, everyone, torch.tensor([-1.0, 0, 1]).double()).tolist() == [0, 0.5, 1]
    some = torch.tensor([True, True, False])
    assert record_scores(records, TRUSTED, some, torch.tensor([4.0, 3, 9]).double()).tolist() == [0.5, 0.25, 1]
    assert record_scores(records, SUSPECT, ~some, torch.tensor([4.0, 3, 9]).double()).tolist() == [0, 0, 0]
    assert records[:, TRUSTED, 1].tolist() == [2, 2, 1]
    assert records[:, SUSPECT, 1].tolist() == [0, 0, 1]


def test_equal_scores_are_all_zero() -> None:
    assert scale_to_range(torch.tensor([0.3, 0.3, 0.3 + 1e-12])).tolist() == [0, 0, 0]


def test_outliers_lie_beyond_the_whiskers_and_among_four_at_least() -> None:
    """Of 0, 0.1, 0.2, 0.3 and 1 the quartiles are 0.1 and 0.3, and the whisker ends at 0.6."""
    scores, members = torch.tensor([0, 0.1, 0.2, 0.3, 1, 9]).double(), torch.ones(6, dtype=torch.bool)
    members[5] = False
    assert mark_outliers(scores, members).tolist() == [False, False, False, False, True, False]
    members[0] = members[1] = False
    assert not mark_outliers(scores, members).any()


def test_the_nearest_kept_row_stands_in_and_the_lower_lot_breaks_ties() -> None:
    distances = torch.tensor([[0, 1, 2, 2], [1, 0, 1, 3], [2, 1, 0, 3], [2, 3, 2, 0]]).double()
    kept = torch.tensor([True, False, True, False])
    assert find_donors(distances, kept, torch.tensor([1, 2, 3, 4])).tolist() == [0, 0, 2, 0]
    assert find_donors(distances, kept, torch.tensor([4, 3, 2, 1])).tolist() == [0, 2, 2, 2]


def test_it_remembers_the_clients_seen_last() -> None:
    defense = FedSurrogate(remember=14, forget_after=2)
    state = defense(make_round(1), FIRST).state
    other = make_round(2)
    other = Updates(other.values, other.examples, tuple(f"d{row:02}" for row in range(14)), LAYOUT)
    after = defense(other, replace(FIRST, round=2, state=state)).state
    assert after is not None
    assert set(after["clients"]) == set(other.clients)


def test_small_tensors_and_few_numbers_pass_every_check() -> None:
    check_defense(FedSurrogate(candidate=1, critical=10, remember=None), examples=5)


def set_scores(*scores: float) -> dict[str, Any]:
    return {"clients": {"c00": {"round": 2, "scores": torch.tensor(scores).double()}}}


@pytest.mark.parametrize(
    "scores",
    [(1.5, 1, 0, 0), (-0.1, 1, 0, 0), (0, 3, 0, 0), (0, 0.5, 0, 0), (0, 0, float("nan"), 1), (0, 0, 0.5, -1)],
)
def test_impossible_scores_are_refused(scores: tuple[float, ...]) -> None:
    with pytest.raises(RunError, match="the defense's state is damaged"):
        FedSurrogate().check_state(set_scores(*scores), 2, LAYOUT)


def test_possible_scores_are_read() -> None:
    state = set_scores(0.5, 1, 2, 2)
    FedSurrogate().check_state(state, 2, LAYOUT)
    assert read_records(state, 2)["c00"].tolist() == [[0.5, 1], [2, 2]]
    with pytest.raises(RunError, match="scores of client 'c00' is not 4 numbers"):
        read_records(set_scores(0.5, 1), 2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"spread": -0.1}, "spread must be 0 or more, got -0.1"),
        ({"candidate": 0}, "candidate and critical must be 1 number or more, got 0 and 200000"),
        ({"critical": 0}, "got 1000 and 0"),
        ({"rescue": 1.1}, r"rescue must lie in 0\.\.1, got 1.1"),
        ({"rescued_weight": -1.0}, r"rescued_weight must lie in 0\.\.1, got -1"),
        ({"surrogate_weight": float("nan")}, r"surrogate_weight must lie in 0\.\.1, got nan"),
        ({"remember": 0}, "remember must be 1 client or more, got 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        FedSurrogate(**settings)
