"""What holds, what fails, what says nothing, and what is recommended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowball.rehearsal.verdict import Measured, Numbers, judge_cell, judge_cells, recommend_defense

CLEAN = Numbers(0.01, 0.0, 0.0, 0.0)
LEARNED = Numbers(0.98, 0.97, 0.0, 0.0)
DAMAGED = Numbers(None, None, 0.6, 0.0)
KEPT = Numbers(0.02, 0.01, 0.01, 0.05)

fractions = st.floats(0, 1)
numbers = st.builds(
    lambda backdoor, clean, lost, left_out: Numbers(backdoor, backdoor - clean, lost, left_out),
    fractions,
    fractions,
    st.floats(-1, 1),
    fractions,
)


def measure(**cells: list[Numbers] | str) -> Measured:
    """Return numbers under `cba`, and clean ones of the same defenses."""
    clean = {(defense, "none"): [CLEAN] for defense in cells}
    return {**clean, **{(defense, "cba"): runs for defense, runs in cells.items()}}


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ([KEPT], "holds"),
        ([Numbers(0.05, 0.05, 0.02, 0.1)], "holds"),
        ([Numbers(0.3, 0.051, 0.0, 0.0)], "fails: backdoor 30.0%"),
        ([Numbers(0.3, 0.05, 0.0, 0.0)], "holds"),  # a clean model has nearly as much
        ([Numbers(0.0, 0.0, 0.021, 0.0)], "fails: loses 2.1 points"),
        ([Numbers(0.0, 0.0, 0.0, 0.101)], "fails: leaves out 10.1% of the honest"),
        ([KEPT, LEARNED], "fails: backdoor 98.0%"),  # the worst seed counts
        ([Numbers(0.9, 0.9, 0.5, 0.5)], "fails: backdoor 90.0%, loses 50.0 points, leaves out 50.0% of the honest"),
        ("training diverged in round 5: NaN", "fails: training diverged in round 5: NaN"),
        ("4 clusters need over 4 updates, got 4", "not run: 4 clusters need over 4 updates, got 4"),
    ],
)
def test_a_defense_holds_within_the_bounds(runs: list[Numbers] | str, verdict: str) -> None:
    assert judge_cell("median", "cba", measure(fedavg=[LEARNED], median=runs)).verdict == verdict


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ([Numbers(0.2, 0.19, 0.0, 0.0)], "fedavg learns only 20.0% of it"),
        ([Numbers(None, None, 0.03, 0.0)], "fedavg loses only 3.0 points"),
        ([Numbers(None, None, -0.03, 0.0)], "fedavg loses only 0.0 points"),
        ("its process was killed", "its run with fedavg failed"),
    ],
)
def test_an_attack_that_does_not_work_on_a_plain_average_says_nothing(
    reference: list[Numbers] | str, reason: str
) -> None:
    measured = measure(fedavg=reference, median=[KEPT])
    assert judge_cell("median", "cba", measured).verdict == f"says nothing: {reason}"
    assert judge_cell("median", "none", measured).word == "holds"
    assert judge_cell("median", "cba", {**measured, ("median", "cba"): [LEARNED]}).word == "fails"  # that says much


def test_damage_without_a_backdoor_and_one_seed_that_learns_are_enough_to_say_something() -> None:
    assert judge_cell("median", "cba", measure(fedavg=[DAMAGED], median=[KEPT])).word == "holds"
    assert judge_cell("median", "cba", measure(fedavg=[CLEAN, LEARNED], median=[KEPT, KEPT])).word == "holds"
    assert judge_cell("median", "cba", measure(fedavg="training diverged: NaN", median=[KEPT])).word == "holds"


@given(st.lists(numbers, min_size=1, max_size=3), st.lists(numbers, min_size=1, max_size=3))
def test_more_seeds_never_turn_a_failure_into_success(some: list[Numbers], more: list[Numbers]) -> None:
    before, after = (
        judge_cell("median", "cba", measure(fedavg=[LEARNED], median=runs)) for runs in (some, [*some, *more])
    )
    assert (before.word, after.word) != ("fails", "holds")


def test_the_first_defense_that_holds_is_recommended_and_a_plain_average_last() -> None:
    cells = judge_cells(measure(fedavg=[LEARNED], plus=[KEPT], median=[KEPT]))
    assert recommend_defense(cells) == (
        "plus",
        "Choose plus: it holds against plain backdoor (cba), and while nobody attacks.",
    )
    cells = judge_cells(measure(fedavg=[LEARNED], plus=[LEARNED], median=[KEPT]))
    assert recommend_defense(cells)[0] == "median"
    cells = judge_cells(measure(fedavg=[LEARNED], plus=[LEARNED]))
    assert recommend_defense(cells) == (
        "plus",
        "Nothing holds throughout; plus comes closest (plain backdoor (cba): backdoor 98.0%).",
    )


def test_nothing_is_recommended_if_no_attack_works() -> None:
    defense, why = recommend_defense(judge_cells(measure(fedavg=[CLEAN], plus=[KEPT])))
    assert defense is None
    assert why.startswith("No attack works on a plain average here")


def test_a_defense_whose_run_failed_is_not_preferred() -> None:
    assert recommend_defense(judge_cells(measure(fedavg=[LEARNED], plus="killed", median=[KEPT])))[0] == "median"


def test_to_lose_a_few_points_is_better_than_to_lose_the_model() -> None:
    costly = Numbers(0.0, 0.0, 0.03, 0.0)
    measured = {**measure(fedavg=[LEARNED], plus=[costly]), ("plus", "none"): [costly]}
    assert recommend_defense(judge_cells(measured)) == (
        "plus",
        "Nothing holds throughout; plus comes closest "
        "(nobody attacks: loses 3.0 points; plain backdoor (cba): loses 3.0 points).",
    )
    measured |= {("fedavg", "cba"): [DAMAGED], ("plus", "cba"): "killed"}
    assert recommend_defense(judge_cells(measured))[0] == "fedavg"
