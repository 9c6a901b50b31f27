"""The table of cases in `snowball.report.outcomes`."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from snowball.report import Row
from snowball.report.outcomes import Outcome, compute_exposure, judge_row, judge_rows
from snowball.report.prose import OUTCOMES, REASONS
from snowball.report.runs import Point

RISE = [0.05] * 8 + [0.3, 0.6] + [0.9] * 10
"""Backdoor accuracies of 20 rounds in which it takes hold in round 10."""

LOW = [0.02] * 20


def make_row(
    backdoor: Sequence[float | None],
    averaged: Sequence[int] | int,
    defense: str = "krum",
    main: Sequence[float] | float = 0.9,
    infected: Sequence[int] | int = 10,
    elected: int = 25,
) -> Row:
    """A run of 50 participants per round, 10 of them infected and 25 elected unless the numbers say otherwise."""
    rounds = len(backdoor)
    mains = [main] * rounds if isinstance(main, float) else main
    arrived = [infected] * rounds if isinstance(infected, int) else infected
    used = [averaged] * rounds if isinstance(averaged, int) else averaged
    points = [
        Point(round, mains[round - 1], backdoor[round - 1], 50, elected, arrived[round - 1], used[round - 1])
        for round in range(1, rounds + 1)
    ]
    last = points[-1] if points else None
    return Row(
        name=f"{defense}-1", defense=defense, rounds=rounds, finished=True, best_round=None, best_main_accuracy=None,
        best_backdoor_accuracy=None, last_main_accuracy=last and last.main_accuracy,
        last_backdoor_accuracy=last and last.backdoor_accuracy, false_positive_rate=None, false_negative_rate=None,
        seconds=0.0, conditions="same", points=points,
    )  # fmt: skip


def make_fedavg(backdoor: Sequence[float], main: float = 0.9) -> Row:
    return make_row(backdoor, 10, "fedavg", main, elected=50)


FOOLED, IMMUNE = make_fedavg(RISE), make_fedavg(LOW)

ALONE: dict[str, tuple[Row, Outcome]] = {
    "no round": (make_row([], []), Outcome("empty")),
    "no attack": (make_row([None] * 3, 0, infected=0), Outcome("none")),
    "an attack that starts later": (make_row(LOW, 0, infected=0), Outcome("none", reason="waiting")),
    "an attack without a backdoor": (make_row([None] * 20, 10), Outcome("damage")),
    "FedAvg that learned it": (FOOLED, Outcome("in", since=10)),
    "FedAvg in its first rounds": (make_fedavg(RISE[:3]), Outcome("low")),
    "FedAvg that never learned it": (IMMUNE, Outcome("low")),
    "half-way in": (make_row(RISE[:9], 10), Outcome("partly")),
    "in, but below the limit for a round": (make_row([*RISE, 0.4, 0.9], 10), Outcome("in", since=10)),
    "in, out and in again": (make_row([*RISE, 0.1, 0.9], 10), Outcome("in", since=22)),
    "in at first, partly at last": (make_row([*RISE, 0.4], 10), Outcome("partly")),
    "came and went": (make_row([*RISE, *LOW], 10), Outcome("gone", since=10, until=21)),
    "came and went, then flickered": (make_row([*RISE, 0.1, 0.6, 0.1], 10), Outcome("gone", since=10, until=21)),
    "a single high round is noise": (make_row([*LOW, 0.6, *LOW], [1, *[0] * 40]), Outcome("out")),
    "one target class for everything, untrained": (
        make_row([1.0, 1.0, *LOW], [10, *[0] * 21], main=[0.1, 0.1, *[0.9] * 20]),
        Outcome("out"),
    ),
    "untrained to the end": (make_row([1.0] * 3, 10, main=0.12), Outcome("unclear", reason="untrained")),
    "half-way in by chance": (make_row([0.4] * 2, 10, main=0.3), Outcome("unclear", reason="untrained")),
    "in, of a model that learned little": (make_row([0.9] * 20, 10, main=0.3), Outcome("in", since=1)),
    "in while untrained, and later": (make_row([1.0, 0.3, 0.9], 10, main=[0.1, 0.5, 0.9]), Outcome("in", since=3)),
    "all kept out": (make_row(LOW, 0), Outcome("out")),
    "all kept out, in few rounds": (make_row(LOW[:3], 0), Outcome("unclear", reason="short")),
    "all kept out, attacked in few rounds": (
        make_row(LOW, 0, infected=[0] * 12 + [10] * 8),
        Outcome("unclear", reason="short"),
    ),
    "all kept out, of a model that learned nothing": (
        make_row(LOW, 0, main=0.1),
        Outcome("unclear", reason="untrained"),
    ),
    "all kept out, clean model errs": (make_row([0.3] * 20, 0), Outcome("out")),
    "all kept out, clean model errs on most": (make_row([0.6] * 20, 0), Outcome("out")),
    "nearly all kept out": (make_row(LOW, [1, *[0] * 9] * 2), Outcome("out")),
    "all averaged during a warm-up": (make_row(LOW, [10] * 5 + [0] * 15), Outcome("out")),
    "one in ten averaged": (make_row(LOW, 1), Outcome("low", reason="alone")),
    "as many averaged as by chance": (make_row(LOW, 5), Outcome("low", reason="alone")),
    "Krum elects one infected update per round": (make_row(LOW, 1, elected=1), Outcome("low", reason="alone")),
    "all averaged, clipped or reversed": (make_row(LOW, 10, "rlr", elected=50), Outcome("low", reason="alone")),
    "lost though nearly all are kept out": (make_row(RISE, [1, *[0] * 9] * 2), Outcome("in", since=10)),
}

BESIDE_FEDAVG: dict[str, tuple[Row, Row, Outcome]] = {
    "kept out, FedAvg lost": (make_row(LOW, 0), FOOLED, Outcome("out")),
    "kept out in few rounds, FedAvg lost in fewer": (make_row(LOW[:10], 0), FOOLED, Outcome("out")),
    "kept out, FedAvg lost later": (make_row(LOW[:8], 0), FOOLED, Outcome("unclear", reason="harmless")),
    "kept out, FedAvg is on its way": (make_row(LOW[:9], 0), FOOLED, Outcome("unclear", reason="short")),
    "kept out, FedAvg did not learn it": (make_row(LOW, 0), IMMUNE, Outcome("unclear", reason="harmless")),
    "kept out, FedAvg stopped early": (make_row(LOW, 0), make_fedavg(LOW[:3]), Outcome("out")),
    "kept out, FedAvg untrained": (make_row(LOW, 0), make_fedavg([1.0] * 20, 0.1), Outcome("out")),
    "averaged, FedAvg lost": (make_row(LOW, 10, "rlr"), FOOLED, Outcome("out", reason="averaged")),
    "averaged, FedAvg lost and recovered": (
        make_row(LOW * 2, 10, "rlr"),
        make_fedavg([*RISE, *LOW]),
        Outcome("out", reason="averaged"),
    ),
    "averaged, FedAvg did not learn it": (make_row(LOW, 10, "rlr"), IMMUNE, Outcome("low", reason="harmless")),
    "averaged, FedAvg is on its way": (make_row(LOW[:9], 10, "rlr"), FOOLED, Outcome("low", reason="alone")),
    "averaged, little learned beside FedAvg": (
        make_row(LOW, 10, "rlr", main=0.4),
        FOOLED,
        Outcome("unclear", reason="untrained"),
    ),
    "lost like FedAvg": (make_row(RISE, 10), FOOLED, Outcome("in", since=10)),
}

BESIDE_IDEAL: dict[str, tuple[float, float, str]] = {
    "a little above a clean model that errs": (0.33, 0.3, "low"),
    "above a clean model that errs": (0.55, 0.3, "partly"),
    "far above a clean model that errs": (0.7, 0.3, "in"),
    "as usual above a clean model that is right": (0.25, 0.01, "partly"),
}


@pytest.mark.parametrize(("row", "outcome"), ALONE.values(), ids=ALONE)
def test_a_run_alone(row: Row, outcome: Outcome) -> None:
    assert judge_row(row) == outcome


@pytest.mark.parametrize(("row", "fedavg", "outcome"), BESIDE_FEDAVG.values(), ids=BESIDE_FEDAVG)
def test_a_run_beside_fedavg(row: Row, fedavg: Row, outcome: Outcome) -> None:
    assert judge_rows([row, fedavg])[0] == outcome


@pytest.mark.parametrize(("backdoor", "clean", "key"), BESIDE_IDEAL.values(), ids=BESIDE_IDEAL)
def test_a_run_beside_a_clean_model(backdoor: float, clean: float, key: str) -> None:
    row, ideal = make_row([backdoor] * 20, 10), make_row([clean] * 20, 0, "ideal")
    assert judge_rows([ideal, row])[1].key == key


def test_only_runs_of_the_same_settings_and_seed_count() -> None:
    row, other = make_row(LOW, 10, "rlr"), replace(FOOLED, conditions="another seed")
    assert judge_rows([row, other])[0] == Outcome("low", reason="alone")


def test_the_longest_fedavg_run_counts() -> None:
    row, short = make_row(LOW, 10, "rlr"), make_fedavg(LOW[:3])
    assert [outcome.key for outcome in judge_rows([short, row, FOOLED, short])] == ["low", "out", "in", "low"]


def test_exposure_is_the_weight_in_the_average() -> None:
    assert compute_exposure(FOOLED.points) == 1
    assert compute_exposure(make_row(LOW, 5).points) == 1
    assert compute_exposure(make_row(LOW, 1, elected=1).points) == 5
    assert compute_exposure(make_row(LOW, 0, elected=0).points) == 0
    assert compute_exposure(make_row(LOW, 0, infected=0).points) == 0


def test_the_cases_cover_every_outcome_and_reason() -> None:
    outcomes = [case[-1] for case in (*ALONE.values(), *BESIDE_FEDAVG.values())]
    assert {outcome.key for outcome in outcomes} == set(OUTCOMES)
    assert set(REASONS) <= {(outcome.key, outcome.reason) for outcome in outcomes}
