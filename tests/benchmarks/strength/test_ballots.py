"""The benchmark of ballots: the clients that a charge misses or wrongly names, and how traces order updates."""

from typing import get_args

import torch

from benchmarks.strength.ballots import (
    CELLS,
    Watch,
    judge_charge,
    make_benign_experiment,
    order_rightly,
    summarise_charges,
)
from benchmarks.strength.worlds import CLEAN, MODES, choose_worlds
from snowball.defenses.snowball_plus.ballots import Charge
from snowball.defenses.snowball_plus.evidence import gather_evidence
from snowball.defenses.snowball_plus.method import Ballot
from snowball.updates import Updates


def make_round(number: int) -> tuple[Updates, list[bool]]:
    """Twenty updates, the first five of which share a direction."""
    rng = torch.Generator().manual_seed(number)
    infected = torch.arange(20) < 5
    hidden, last = torch.randn(20, 12, 10, generator=rng), torch.randn(20, 5, 12, generator=rng)
    hidden[infected] += 3
    clients = [f"{row:02}" for row in range(20)]
    return Updates.from_layers({"hidden.weight": hidden, "last.weight": last}, clients=clients), infected.tolist()


def test_only_worlds_and_seeds_of_tuning_are_looked_at() -> None:
    assert {cell.world for cell in CELLS} <= set(choose_worlds(MODES["tune"]))
    for cell in CELLS:
        experiment = make_benign_experiment(cell)
        assert experiment.seed in MODES["tune"].seeds
        assert experiment.defense.name == ("fedavg" if cell.attack == CLEAN else "ideal")


def test_pairs_are_counted_as_they_are_ordered() -> None:
    scores, infected = torch.tensor([5.0, 1, 2, 3]), torch.tensor([True, True, False, False])
    assert abs(order_rightly(scores, infected) - 0.5) < 1e-12
    assert abs(order_rightly(scores, scores > 2) - 1) < 1e-12


def test_a_charge_is_held_against_the_truth() -> None:
    updates, infected = make_round(0)
    suspects = torch.arange(20) < 4
    suspects[10] = True
    found = judge_charge(
        gather_evidence(updates, None, None), Charge("split", suspects, 1.0, "", 1.0), torch.tensor(infected)
    )
    assert found["charged"] == 1
    assert (found["alone_missed"], found["alone_wrong"]) == (0.2, 1 / 15)
    assert (found["joint_missed"], found["joint_wrong"]) == (0, 0)
    assert judge_charge(gather_evidence(updates, None, None), None, torch.tensor(infected)) == {"charged": 0.0}


def test_means_are_of_the_rounds_that_have_a_number() -> None:
    charges = [{"charged": 1.0, "alone_missed": 0.5}, {"charged": 0.0}, {"charged": 1.0, "alone_missed": None}]
    assert summarise_charges(charges) == {"charged": 2 / 3, "alone_missed": 0.5}


def test_ballots_are_held_round_after_round_with_one_memory() -> None:
    watch = Watch(4)
    for number in range(1, 5):
        updates, infected = make_round(number)
        watch.see(updates, infected, number, -torch.ones(updates.layout.width))
    found = watch.summarise()
    assert found["ballots"]["split"]["charged"] == 1
    assert found["ballots"]["split"]["joint_missed"] == 0
    assert found["ballots"]["recalled"]["charged"] == 0.75  # nobody was accused before the first round
    assert found["ballots"]["reputation"]["charged"] > 0  # of those whom the split charged before
    assert found["ballots"]["strangers"]["charged"] == 0
    assert found["ballots"].keys() == set(get_args(Ballot))
    assert found["traces"]["direction hidden.weight"] == 1
