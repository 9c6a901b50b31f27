"""Which sites are hostile, how large they are, and which runs a rehearsal has."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import snowball
from snowball.data import ImageDataset, Split
from snowball.errors import SettingError
from snowball.rehearsal.plan import Rehearsal, plan_rehearsal
from snowball.rehearsal.settings import arrange_sites, read_federation


@dataclass(frozen=True)
class Hospitals:
    """Random images of six hospitals."""

    name: str = "hospitals"
    summary: str = "images of hospitals"
    needs: str = ""

    def locate(self) -> None:
        """Return nothing: the data is drawn."""

    def fetch(self) -> None:
        """Return nothing."""

    def load(self) -> ImageDataset:
        """Draw the images."""
        rng, labels = torch.Generator().manual_seed(0), torch.arange(120) % 2
        split = Split(torch.randint(256, (120, 1, 28, 28), generator=rng, dtype=torch.uint8), labels)
        groups = torch.arange(120) // 2 % 6
        return ImageDataset(self.name, 2, split, split, {}, groups, mean=(0.5,), std=(0.3,))


def plan(**settings: Any) -> Rehearsal:
    return plan_rehearsal(read_federation(None, settings))


def list_experiments(rehearsal: Rehearsal, name: str) -> list[Any]:
    return [run.experiment for run in rehearsal.grid.runs if run.experiment.attack.name == name]


@given(st.lists(st.integers(1, 10**15), min_size=4, max_size=40), st.data())
def test_hostile_sites_come_first_and_every_site_is_there_once(sizes: list[int], data: Any) -> None:
    hostile = data.draw(st.integers(1, (len(sizes) - 1) // 2))
    sites = arrange_sites(read_federation(None, {"sizes": sizes, "hostile": hostile}))
    assert sorted(sites.numbers) == list(range(1, len(sizes) + 1))
    assert [sizes[number - 1] for number in sites.numbers] == list(sites.sizes)
    chosen, others = sorted(sites.sizes[:hostile]), sorted(sites.sizes[hostile:])
    smaller = sum(size <= chosen[0] for size in others)
    larger = sum(size >= chosen[-1] for size in others)
    assert min(smaller, larger) >= (len(sizes) - hostile) // 2  # of middle size


def test_hostile_sites_can_be_named() -> None:
    sites = arrange_sites(read_federation(None, {"sizes": (5, 6, 7, 8, 9), "hostile_sites": (5, 1)}))
    assert sites.numbers == (5, 1, 2, 3, 4)
    assert sites.sizes[: sites.hostile] == (9, 5)


@pytest.mark.parametrize(("sites", "hostile"), [(4, 1), (5, 1), (8, 1), (20, 4), (50, 10), (500, 100)])
def test_a_fifth_of_the_sites_is_hostile(sites: int, hostile: int) -> None:
    assert arrange_sites(read_federation(None, {"sites": sites})).hostile == hostile


@pytest.mark.parametrize(
    ("sites", "defenses"),
    [
        (4, ["fedavg", "snowball-plus", "multi-krum:tolerate=1,elect=3", "median", "norm-clip"]),
        (8, ["fedavg", "snowball-plus", "multi-krum:tolerate=1,elect=7", "median", "norm-clip"]),
        (20, ["fedavg", "snowball-plus", "snowball", "multi-krum:tolerate=4,elect=16", "median", "norm-clip"]),
        (500, ["fedavg", "snowball-plus", "snowball", "multi-krum:tolerate=10,elect=40", "median", "norm-clip"]),
    ],
)
def test_candidates_fit_the_number_of_sites(sites: int, defenses: list[str]) -> None:
    rehearsal = plan(sites=sites)
    assert list(rehearsal.guards) == defenses
    assert len(rehearsal.trials) == len(rehearsal.grid.runs) == 5 * len(defenses)  # clean runs serve as probes


def test_sizes_are_scaled_down_to_the_stand_in() -> None:
    rehearsal = plan(sizes=[60_000, 190, 400, 640, 900, 1300, 2600, 5640])
    assert rehearsal.examples == 2400
    assert plan(sizes=[60] * 8).examples == 480
    assert plan(sites=500).examples == 12_000
    (clean, attacked, *_) = list_experiments(rehearsal, "cba")
    assert clean.data.own["sizes"] == attacked.data.own["sizes"]
    assert clean.data.own["sizes"][0] == 1300 or rehearsal.sites.numbers[0] == 5


def test_data_that_comes_with_its_clients_has_sites() -> None:
    rehearsal = plan(data=f"{__name__}:Hospitals", attacks=["cba"], defenses=["fedavg"])
    assert len(rehearsal.sites.sizes) == 6
    assert rehearsal.hostile_sites == ()  # drawn by lot
    assert {run.experiment.data.partition for run in rehearsal.grid.runs} == {"natural"}
    rehearsal = plan(data=f"{__name__}:Hospitals", sites=4, attacks=["cba"], defenses=["fedavg"])
    assert {run.experiment.data.partition for run in rehearsal.grid.runs} == {"sized"}
    assert rehearsal.examples == 120  # all of them: this is no stand-in
    with pytest.raises(SettingError, match="hostile_sites needs sizes"):
        plan(data=f"{__name__}:Hospitals", hostile_sites=[1])


def test_clean_runs_try_the_trigger_and_nobody_is_malicious_in_them() -> None:
    rehearsal = plan(sites=5, defenses=["median"], attacks=["ipm", "cba", "blended"])
    clean = [run.experiment for run in rehearsal.grid.runs if not run.experiment.attack.malicious]
    assert [(each.defense.name, each.attack.name) for each in clean] == [
        ("fedavg", "cba"),
        ("median", "cba"),
        ("fedavg", "blended"),  # another trigger
    ]


def test_damage_cancels_the_step_of_a_plain_average() -> None:
    (attacked,) = list_experiments(plan(sites=5, defenses=["fedavg"], attacks=["ipm"]), "ipm")[1:]
    assert attacked.attack.own["strength"] == 4.0  # one site of five, against four


def test_fewer_sites_per_round_draw_attackers_like_everybody_else() -> None:
    rehearsal = plan(sites=100, hostile=1, per_round=10)
    assert {run.experiment.attack.draw for run in rehearsal.grid.runs} == {"random"}
    assert {run.experiment.attack.draw for run in plan(sites=10).grid.runs} == {"exact"}


def test_settings_of_an_attack_or_a_defense_are_the_operator_s() -> None:
    rehearsal = plan(
        sites=8, attacks=[{"name": "cba", "poison_ratio": 0.9}], defenses=[{"name": "multi-krum", "tolerate": 2}]
    )
    assert {trial.attack for trial in rehearsal.trials} == {"none", "cba:poison_ratio=0.9"}
    assert rehearsal.guards["multi-krum:tolerate=2"].startswith("Guard(MultiKrum(tolerate=2), ")
    assert {each.attack.own["poison_ratio"] for each in list_experiments(rehearsal, "cba")} == {0.9}


def test_the_guard_s_line_names_what_goes_before_a_defense() -> None:
    rehearsal = plan(sites=8, attacks=["cba"], defenses=[{"name": "median", "before": ["arc", "nnm"]}])
    guard = rehearsal.guards["median:before=['arc', 'nnm']"]
    assert guard.startswith("Guard(Before(Median(), (ARC(tolerate=0.3), NNM(tolerate=0.3),)), ")


def test_the_guard_s_line_is_python_that_knows_the_largest_site() -> None:
    names = {name: getattr(snowball, name) for name in snowball.__all__}
    rehearsal = plan(sizes=[10, 20, 30, 940] * 5, rounds=30)
    for line in rehearsal.guards.values():
        guard = eval(line.replace(', audit="audit.jsonl"', ""), names)
        assert guard.max_examples == 940
        assert guard.mode == "monitor"
    assert "rounds=30" in rehearsal.guards["snowball"]
