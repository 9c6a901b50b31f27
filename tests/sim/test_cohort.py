from collections.abc import Callable

import pytest

from snowball.errors import SettingError
from snowball.records.run_names import hash_settings
from snowball.sim.cohort import draw_cohort, is_attack_round, select_malicious_clients
from snowball.sim.experiment import Experiment

MakeExperiment = Callable[..., Experiment]
LARGE = ("data.clients=40", "cohort=20", "attack.malicious=0.3")


def test_the_first_clients_are_malicious(tiny: MakeExperiment) -> None:
    assert list(select_malicious_clients(tiny(*LARGE))) == list(range(12))
    assert not select_malicious_clients(tiny(*LARGE, "attack.name=none"))


@pytest.mark.parametrize("share", ["exact", "random"])
def test_a_cohort_has_distinct_clients_and_is_the_same_for_the_same_seed(tiny: MakeExperiment, share: str) -> None:
    experiment = tiny(*LARGE, f"attack.draw={share}")
    cohorts = [draw_cohort(experiment, round) for round in range(1, 30)]
    assert all(len(set(cohort)) == 20 and set(cohort) <= set(range(40)) for cohort in cohorts)
    assert cohorts == [draw_cohort(experiment, round) for round in range(1, 30)]
    assert len(set(map(tuple, cohorts))) == len(cohorts)
    assert set().union(*cohorts) == set(range(40))
    assert draw_cohort(tiny(*LARGE, f"attack.draw={share}", "seed=4"), 1) != cohorts[0]


def test_an_exact_draw_has_the_same_share_of_attackers_in_every_round(tiny: MakeExperiment) -> None:
    experiment = tiny(*LARGE)
    assert {count_attackers(experiment, round) for round in range(1, 30)} == {6}


def test_the_same_attackers_are_in_every_round_where_that_is_asked(tiny: MakeExperiment) -> None:
    experiment = tiny(*LARGE, "attack.draw=same")
    cohorts = [draw_cohort(experiment, round) for round in range(1, 30)]
    assert {tuple(sorted(set(cohort) & set(range(12)))) for cohort in cohorts} == {tuple(range(6))}
    assert {len(set(cohort)) for cohort in cohorts} == {20}
    assert set().union(*cohorts) == {*range(6), *range(12, 40)}


def test_a_random_draw_has_as_many_as_come(tiny: MakeExperiment) -> None:
    experiment = tiny(*LARGE, "attack.draw=random")
    counts = [count_attackers(experiment, round) for round in range(1, 100)]
    assert len(set(counts)) > 3
    assert 5 < sum(counts) / len(counts) < 7


def test_a_place_in_the_cohort_tells_nothing(tiny: MakeExperiment) -> None:
    experiment = tiny(*LARGE)
    firsts = sum(draw_cohort(experiment, round)[0] in select_malicious_clients(experiment) for round in range(1, 200))
    assert 40 < firsts < 80  # 60 expected


def list_attacked(experiment: Experiment) -> list[int]:
    return [round for round in range(1, 31) if is_attack_round(experiment, round)]


def test_attackers_may_attack_in_listed_rounds_alone(tiny: MakeExperiment) -> None:
    assert list_attacked(tiny("attack.in_rounds=[9, 2, 9]")) == [2, 9]
    bounds = ("attack.first_round=3", "attack.last_round=20")
    assert list_attacked(tiny("attack.in_rounds=[2, 9, 20, 21]", *bounds)) == [9, 20]
    assert list_attacked(tiny("attack.in_rounds=[]", *bounds)) == list(range(3, 21))
    listed = f"attack.in_rounds={list(range(1, 25))}"
    drawn = list_attacked(tiny("attack.share_of_rounds=0.5"))
    assert list_attacked(tiny(listed, "attack.share_of_rounds=0.5")) == [round for round in drawn if round < 25]


def test_the_same_rounds_are_the_same_settings_and_none_those_of_before(tiny: MakeExperiment) -> None:
    assert tiny("attack.in_rounds=[9, 2, 9]") == tiny("attack.in_rounds=[2, 9]")
    settings = tiny().dump_settings()
    assert settings["attack"].pop("in_rounds") == []
    assert hash_settings(settings) == hash_settings(tiny().dump_settings())
    assert hash_settings(settings) != hash_settings(tiny("attack.in_rounds=[1]").dump_settings())
    assert Experiment.parse(settings) == tiny()
    listed = tiny("attack.in_rounds=[2, 9]")
    assert Experiment.parse(listed.dump_settings()) == listed


@pytest.mark.parametrize("rounds", ["5", "[1.5]", "[true]", '"5"', "[0]", "[-1, 3]"])
def test_rounds_that_cannot_be_are_refused(tiny: MakeExperiment, rounds: str) -> None:
    with pytest.raises(
        SettingError, match=r"^attack\.in_rounds (must be a list of whole numbers|counts rounds from 1)"
    ):
        tiny(f"attack.in_rounds={rounds}")


@pytest.mark.parametrize("malicious", [0.5, 0.9, 1.0])
def test_a_cohort_of_all_clients_is_all_clients(tiny: MakeExperiment, malicious: float) -> None:
    experiment = tiny("cohort=8", f"attack.malicious={malicious}")
    assert sorted(draw_cohort(experiment, 1)) == list(range(8))


def count_attackers(experiment: Experiment, round: int) -> int:
    return len(set(draw_cohort(experiment, round)) & set(select_malicious_clients(experiment)))
