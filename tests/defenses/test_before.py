"""Nearest-neighbour mixing, bucketing and ARC, and what their mixed rows mean for the clients."""

import pickle
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses import (
    ARC,
    CRFL,
    FLIP,
    NNM,
    Before,
    Bucketing,
    Context,
    Defense,
    FedAvg,
    FLTrust,
    FoolsGold,
    Ideal,
    Krum,
    LocalDefense,
    Median,
    Mixing,
    PredictionDefense,
    Snowball,
    SnowballPlus,
    TrustingDefense,
    Verdict,
)
from snowball.defenses.base import StatefulLocalDefense, check_state, explain_schedule, find_min_updates
from snowball.defenses.build import make_defense
from snowball.errors import RunError, SettingError
from snowball.guard import Guard, Reply
from snowball.records.run_names import hash_settings
from snowball.sim.experiment import Experiment
from snowball.sim.presets import load_experiment
from snowball.testing import check_defense, make_toy_round, run_two_rounds
from snowball.updates import Updates

NOW = Context(round=1)
LINE = Updates.from_matrix(torch.tensor([[0.0], [2.0], [4.0], [9.0], [26.0]]), examples=[1, 2, 3, 4, 5])
"""With f = 2, the three nearest of 0, 2 and 4 are these three, those of 9 are 2, 4 and 9, of 26 they are 4, 9, 26."""

LENGTHS = Updates.from_matrix(torch.tensor([[3.0, 4], [-6, 8], [16, -12], [24, 32], [0, 80]]))
"""Rows of length 5, 10, 20, 40 and 80."""


@dataclass(frozen=True)
class Judging:
    """Elects, suspects and reports what it is told to."""

    elect: tuple[bool, ...]
    suspect: tuple[bool, ...] | None = None
    shares: tuple[float, ...] = ()

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        facts: dict[str, Tensor | float | str] = {"scores": torch.arange(len(updates)).double(), "count": len(updates)}
        facts |= {"shares": torch.tensor(self.shares)} if self.shares else {}
        suspects = None if self.suspect is None else torch.tensor(self.suspect)
        return Verdict(torch.zeros(updates.layout.width), torch.tensor(self.elect), facts, {"known": 1}, suspects)


def judge(defense: Defense, mixing: Mixing, updates: Updates = LINE) -> Verdict:
    return Before(defense, (mixing,))(updates, NOW)


def test_nnm_averages_the_nearest_neighbours() -> None:
    mixed = NNM(tolerate=2)(LINE, NOW)
    assert mixed.updates.values[:, 0].tolist() == [2, 2, 2, 5, 13]
    assert mixed.updates.examples.tolist() == pytest.approx([2, 2, 2, 3, 4])
    assert mixed.updates.clients == LINE.clients
    assert mixed.members.int().tolist() == [[1, 1, 1, 0, 0]] * 3 + [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]


def test_the_neighbours_of_a_far_row_are_told_apart_exactly() -> None:
    rows = LINE.values.double() + torch.tensor([[0.0], [0.0], [0.0], [0.0], [1e9]], dtype=torch.float64)
    mixed = NNM(tolerate=2)(Updates.from_matrix(rows), NOW)
    assert mixed.members[:4].equal(NNM(tolerate=2)(LINE, NOW).members[:4])


def test_ties_between_neighbours_are_decided_by_lot() -> None:
    corners = Updates.from_matrix(torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    chosen = {tuple(NNM(2)(corners, Context(round=round)).members[0].tolist()) for round in range(1, 40)}
    assert len(chosen) == 6  # two of the four corners


@pytest.mark.parametrize(("tolerate", "expected"), [(1, [5, 10, 20, 40, 40]), (2, [5, 10, 20, 20, 20])])
def test_arc_clips_the_longest_to_the_next(tolerate: int, expected: list[float]) -> None:
    """With f = 1 of n = 5, k = floor(2 * 1 * 4 / 5) = 1; with f = 2, k = floor(2 * 2 * 3 / 5) = 2."""
    mixed = ARC(tolerate)(LENGTHS, NOW)
    assert mixed.updates.squared_norms.sqrt().tolist() == pytest.approx(expected)
    directions = mixed.updates.values / mixed.updates.values.norm(dim=1, keepdim=True)
    torch.testing.assert_close(directions, LENGTHS.values / LENGTHS.values.norm(dim=1, keepdim=True))
    assert torch.equal(mixed.members, torch.eye(5).bool())


def test_arc_counts_in_whole_numbers() -> None:
    lengths = torch.arange(1.0, 26.0).double()
    clipped = ARC(tolerate=5)(Updates.from_matrix(lengths[:, None]), NOW).updates.values[:, 0]
    assert clipped.max() == 17  # k = 2 * 5 * 20 / 25 = 8 exactly


@pytest.mark.parametrize(("rows", "size", "sizes"), [(5, 2, [2, 2, 1]), (6, 3, [3, 3]), (3, 4, [3]), (11, 1, [1] * 11)])
def test_buckets_divide_the_clients(rows: int, size: int, sizes: list[int]) -> None:
    updates = Updates.from_matrix(torch.arange(float(rows))[:, None], examples=torch.arange(1.0, rows + 1))
    mixed = Bucketing(size)(updates, NOW)
    assert mixed.members.sum(1).tolist() == sizes
    assert mixed.members.sum(0).tolist() == [1] * rows
    for bucket, members in enumerate(mixed.members):
        assert mixed.updates.values[bucket] == pytest.approx(updates.values[members, 0].mean().item())
        assert mixed.updates.examples[bucket] == pytest.approx(updates.examples[members].mean().item())
        assert (mixed.owners[members] == bucket).all()


def test_every_round_has_other_buckets_under_other_names() -> None:
    updates, rounds = make_toy_round(20), [Context(round=round) for round in (1, 2)]
    first, second = (Bucketing()(updates, context) for context in rounds)
    assert not torch.equal(first.members, second.members)
    assert not {*first.updates.clients, *updates.clients} & set(second.updates.clients)
    assert torch.equal(first.members, Bucketing()(updates, rounds[0]).members)


def test_over_the_rounds_any_two_share_a_bucket() -> None:
    together = torch.zeros(6, 6)
    for round in range(1, 301):
        members = Bucketing()(make_toy_round(6), Context(round=round)).members.float()
        together += members.T @ members
    expected = 300 / 5  # each of the five others is equally likely
    assert (together.fill_diagonal_(expected) - expected).abs().max() < 4 * (300 * 0.2 * 0.8) ** 0.5


def test_whoever_is_part_of_an_elected_row_is_elected() -> None:
    verdict = judge(Judging((False, False, False, True, True), (True, True, False, False, False)), NNM(2))
    assert verdict.elected.tolist() == [False, True, True, True, True]
    assert torch.as_tensor(verdict.facts["parts"]).tolist() == [0, 1, 2, 2, 1]
    assert verdict.suspects is not None
    assert verdict.suspects.tolist() == [True, False, False, False, False]
    assert torch.as_tensor(verdict.facts["scores"]).tolist() == [0, 1, 2, 3, 4]
    assert verdict.facts["count"] == 5
    assert verdict.state == {"known": 1}
    assert verdict.names == ("1", "2", "3", "4")


def test_a_bucket_s_members_share_its_fate_and_its_share() -> None:
    mixed = Bucketing()(LINE, NOW)
    verdict = judge(Judging((False, True, True), (True, False, False), (0.0, 0.75, 0.25)), Bucketing())
    assert torch.equal(verdict.elected, mixed.owners > 0)
    assert verdict.suspects is not None
    assert torch.equal(verdict.suspects, mixed.owners == 0)
    assert torch.equal(torch.as_tensor(verdict.facts["scores"]), mixed.owners.double())
    expected = torch.tensor([0.0, 0.375, 0.25])[mixed.owners].double()  # the second bucket has two, the third one
    torch.testing.assert_close(torch.as_tensor(verdict.facts["shares"]), expected)


def test_the_elected_row_of_krum_is_a_mean_of_neighbours() -> None:
    verdict = judge(Krum(tolerate=1), NNM(tolerate=2))
    assert verdict.delta.tolist() == [2]
    assert verdict.names == ("0", "1", "2")


def test_mixings_follow_one_another() -> None:
    """ARC with f = 2 clips 9 and 26 to 4: of 0, 2, 4, 4, 4, the three nearest of 0 are 0, 2 and a 4."""
    both = Before(Median(), (ARC(2), NNM(2)))(LINE, NOW)
    assert both.delta.tolist() == [4]
    pairs = Before(Judging((True, False)), (Bucketing(2), Bucketing(2)))(
        LINE, NOW
    )  # of 2, 2 and 1; then of two and one
    assert int(pairs.elected.sum()) in (3, 4)
    assert torch.equal(pairs.elected, torch.as_tensor(pairs.facts["scores"]) == 0)


@pytest.mark.parametrize("mixing", [NNM(), Bucketing(), ARC()])
@pytest.mark.parametrize("defense", [Krum(), FLTrust(), FoolsGold()])
def test_defenses_pass_every_check_behind_a_mixing(defense: Defense, mixing: Mixing) -> None:
    check_defense(Before(defense, (mixing,)), examples=2)


def test_mixings_in_a_row_pass_every_check() -> None:
    check_defense(Before(SnowballPlus(), (ARC(), NNM(), Bucketing())), examples=3)


@pytest.mark.parametrize(
    ("defense", "protocol"),
    [
        (FLTrust(trusted_examples=7), TrustingDefense),
        (CRFL(), PredictionDefense),
        (FLIP(), LocalDefense),
        (FLIP(), StatefulLocalDefense),
    ],
)
def test_what_a_defense_does_besides_judging_stays(defense: Defense, protocol: Any) -> None:
    before = Before(defense, (NNM(),))
    assert isinstance(before, protocol)
    assert isinstance(pickle.loads(pickle.dumps(before)), protocol)
    assert not isinstance(Before(Krum(), (NNM(),)), protocol)
    assert getattr(before, "trusted_examples", 7) == 7


def test_the_memory_is_that_of_the_defense() -> None:
    before, updates = Before(FoolsGold(), (NNM(),)), make_toy_round()
    first, second = run_two_rounds(before, updates)
    assert first.state is not None
    assert second.state is not None
    assert set(second.state["clients"]) == set(updates.clients)
    check_state(before, second.state, 2, updates.layout)
    with pytest.raises(RunError, match="its clients cannot be a int"):
        check_state(before, {"clients": 3}, 2, updates.layout)


def test_the_schedule_is_that_of_the_defense() -> None:
    assert explain_schedule(Before(Snowball(), (NNM(),))) == explain_schedule(Snowball())
    assert not explain_schedule(Before(Krum(), (NNM(),)))


@pytest.mark.parametrize(
    ("mixings", "needed"), [((NNM(),), 3), ((ARC(),), 3), ((Bucketing(),), 5), ((Bucketing(3), NNM(), Bucketing()), 13)]
)
def test_buckets_need_more_updates(mixings: tuple[Mixing, ...], needed: int) -> None:
    assert find_min_updates(Before(Median(), mixings)) == needed
    assert find_min_updates(Before(FedAvg(), mixings)) == 1


def load(*settings: str) -> Experiment:
    return load_experiment("demo", ["defense.name=multi-krum", *settings])


@pytest.mark.parametrize(
    ("setting", "mixings"),
    [
        ("nnm", (NNM(),)),
        ('["arc", { name = "nnm", tolerate = 5 }]', (ARC(), NNM(5))),
        ('{ name = "bucketing", size = 3 }', (Bucketing(3),)),
    ],
)
def test_a_setting_puts_mixings_before_the_defense(setting: str, mixings: tuple[Mixing, ...]) -> None:
    experiment, plain = load(f"defense.before={setting}"), load()
    assert experiment.defense.build() == Before(plain.defense.build(), mixings)
    assert Experiment.parse(experiment.dump_settings()) == experiment


def test_one_mixing_has_its_settings_below_the_setting() -> None:
    experiment = load("defense.before.name=nnm", "defense.before.tolerate=4", "defense.name=median")
    assert experiment.defense.build() == Before(Median(), (NNM(4),))


def test_without_the_setting_a_run_keeps_its_name() -> None:
    settings = load().dump_settings()
    unaware = {**settings, "defense": {name: own for name, own in settings["defense"].items() if name != "before"}}
    assert (
        hash_settings(unaware) == hash_settings(settings) != hash_settings(load("defense.before=nnm").dump_settings())
    )


def test_plain_settings_make_it_too() -> None:
    assert make_defense("settings", "krum", {"tolerate": 1, "before": "arc"}) == Before(Krum(1), (ARC(),))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("nm", "defense.before = 'nm' is not known; did you mean 'nnm'?"),
        ('{ name = "nnm", tolerat = 3 }', "defense.before.tolerat is not a setting of nnm; did you mean 'tolerate'?"),
        ("3", "defense.before must be a list of names, or of sections with a name, got 3"),
        ('{ name = "nnm", tolerate = 0 }', "nnm mixes malicious updates into every row unless tolerate is above 0"),
        ('{ name = "arc", tolerate = 1.5 }', "tolerate must be a share in [0, 1] or a whole number, got 1.5"),
        ('{ name = "bucketing", size = 0 }', "size must be 1 or more updates, got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting: str, sentence: str) -> None:
    with pytest.raises(SettingError) as refusal:
        load(f"defense.before={setting}")
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("mixing", [NNM(3), ARC(3)])
def test_a_number_that_a_round_does_not_allow_is_refused(mixing: Mixing) -> None:
    with pytest.raises(SettingError, match="tolerating 3 needs over 6 updates, got 5"):
        mixing(LINE, NOW)


def test_ideal_does_not_know_buckets() -> None:
    assert judge(Ideal({"4"}), NNM(2)).names == ("0", "1", "2", "3")
    with pytest.raises(SettingError, match="buckets have no client's name"):
        Before(Ideal(), (NNM(), Bucketing()))


def test_nothing_before_a_defense_is_refused() -> None:
    with pytest.raises(SettingError, match="at least 1 mixing"):
        Before(Krum(), ())


def test_a_guard_takes_it_and_names_its_defense() -> None:
    model = {"w": torch.zeros(1)}
    guard = Guard(Before(Krum(tolerate=1), (NNM(tolerate=2),)), seed=1)
    judgement = guard(model, [Reply(f"s{row}", 1, {"w": value}) for row, value in enumerate(LINE.values + 1)])
    assert judgement.averaged == ("s0", "s1", "s2")
    assert judgement.tensors["w"].tolist() == [3]
    assert judgement.entry["facts"]["parts"] == {"s0": 1, "s1": 1, "s2": 1, "s3": 0, "s4": 0}
    assert guard.state_dict()["method"] == "Before(Krum)"
    with pytest.raises(SettingError, match="acts in training"):
        Guard(Before(FLTrust(), (NNM(),)))
    with pytest.raises(SettingError, match="is told who is malicious"):
        Guard(Before(Ideal(), (NNM(),)))
