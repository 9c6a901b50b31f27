from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.attacks import AdaptationView, AttackerView, ThreeDFed
from snowball.attacks.base import Memory
from snowball.attacks.indicators import ACCEPTED, classify_feedback, measure_feedback
from snowball.attacks.three_dfed import DECOY, count_groups, shift_idle_weight
from snowball.errors import RunError, SettingError
from snowball.layout import Layout
from snowball.rng import stream
from snowball.serialization import pack, unpack
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.training.adaptation import Adaptation
from snowball.testing import check_attack
from snowball.testing.toys import ToySession

MakeExperiment = Callable[..., Experiment]

LAYOUT = Layout(("filters", "out"), ((2, 1, 3, 3), (4, 5)))
MEMORY: Memory = {
    "groups": {"3": 0, "5": 0, "8": 1, "9": DECOY},
    "hiding": [0.8, 0.4],
    "decoys": 1,
    "columns": torch.arange(18),
}


def make_view(memory: Memory | None = MEMORY) -> AttackerView:
    rows = torch.randn(4, LAYOUT.width, generator=stream(0, "rows"))
    return AttackerView(
        rows=rows,
        examples=torch.tensor([10.0, 20, 30, 40]).double(),
        others=None,
        cohort_size=20,
        attacker_count=4,
        total_examples=1000,
        base=torch.randn(LAYOUT.width, generator=stream(0, "base")),
        layout=LAYOUT,
        memory=memory,
        clients=(3, 5, 8, 9),
    )


def test_it_passes_every_check() -> None:
    check_attack(ThreeDFed())


def test_noise_cancels_out_in_a_group_and_spares_the_target() -> None:
    view = make_view()
    sent = ThreeDFed(target=1, neurons=2).craft(view, stream(0))
    noise = (sent - view.rows)[:, LAYOUT.columns["out"]].view(4, 4, 5)
    torch.testing.assert_close(noise[0] + noise[1], torch.zeros(4, 5), atol=1e-5, rtol=0)
    assert int((noise[0].abs().sum(1) > 0.01).sum()) == 2
    assert not noise[:, 1].any()
    assert not noise[2:].any()  # alone in a group, and a decoy


def test_each_row_has_one_indicator_of_its_own_in_the_least_moved_weights() -> None:
    view = make_view()
    sent = ThreeDFed(planted=0.5).craft(view, stream(0))
    changed = (sent - view.rows)[:, LAYOUT.columns["filters"]] != 0
    assert changed.sum(1).tolist() == [1, 1, 1, 1]
    moved = view.rows[:, :18].abs().sum(0)
    assert set(changed.any(0).nonzero()[:, 0].tolist()) == set(moved.argsort()[:4].tolist())
    value = 0.5 * float(view.rows.norm(dim=1).median())
    assert sent[:, :18][changed].tolist() == pytest.approx([value] * 4)


def test_what_was_planted_is_remembered_and_can_be_packed() -> None:
    view, attack = make_view(), ThreeDFed()
    sent = attack.craft(view, stream(0))
    memory = unpack(pack(dict(attack.remember(view, sent))))
    attack.check_memory(memory, None, LAYOUT)  # type: ignore[arg-type]
    planted = memory["planted"]
    assert planted["groups"].tolist() == [0, 0, 1, DECOY]
    assert planted["shares"].tolist() == [0.01, 0.02, 0.03, 0.04]
    assert torch.equal(planted["before"], view.base[planted["columns"]])
    assert torch.equal(planted["values"], sent[torch.arange(4), planted["columns"]])
    assert (planted["hiding"], planted["decoys"]) == ([0.8, 0.4], 1)


def test_without_a_memory_nothing_is_added() -> None:
    view = make_view(None)
    assert torch.equal(ThreeDFed().craft(view, stream(0)), view.rows)
    assert ThreeDFed().remember(view, view.rows) == {}


def test_short_updates_are_stretched_to_an_honest_one_and_no_further_than_the_limit() -> None:
    session = ToySession()
    honest = torch.linalg.vector_norm(session.train(clean=True) - session.start)
    for longest, constrain in ((1.0, 0.0), (1.0, 0.5), (5.0, 0.5), (1.2, 0.5)):
        update = ThreeDFed(longest=longest, constrain=constrain).train(session) - session.start
        plain = ThreeDFed(longest=1.0, constrain=constrain).train(session) - session.start
        expected = (honest / plain.norm()).clamp(1, longest) * plain
        torch.testing.assert_close(update, expected)
    free, near = (ThreeDFed(longest=1.0, constrain=each).train(session) - session.start for each in (0.0, 0.5))
    assert near.norm() < free.norm()


def test_a_decoy_is_honest_but_for_one_weight_of_the_output_layer() -> None:
    session = ToySession(memory={"groups": {"0": DECOY}})
    honest = session.train(clean=True)
    changed = (ThreeDFed(decoy_shift=4.0).train(session) - honest).abs() > 1e-6
    assert changed.nonzero()[:, 0].tolist() in ([session.layout.width - 2], [session.layout.width - 1])
    shift = (ThreeDFed(decoy_shift=4.0).train(session) - honest)[changed]
    torch.testing.assert_close(shift[0], 4 * (honest - session.start).norm(), rtol=1e-4, atol=1e-5)


def test_the_weight_of_a_decoy_is_the_one_where_both_updates_agree_most() -> None:
    honest, backdoored = torch.zeros(38), torch.ones(38)
    backdoored[[3, 20]] = torch.tensor([0.0, 0.1])  # the first is in another layer
    decoy = shift_idle_weight(honest, backdoored, torch.tensor(7.0), LAYOUT)
    assert decoy.nonzero()[:, 0].tolist() == [20]


@pytest.mark.parametrize(("attackers", "size", "groups"), [(1, 2, 1), (4, 2, 2), (5, 2, 2), (9, 3, 3), (2, 5, 1)])
def test_groups_have_their_size_at_least(attackers: int, size: int, groups: int) -> None:
    assert count_groups(attackers, size) == groups


@pytest.fixture
def view(tiny: MakeExperiment) -> AdaptationView:
    """The view of the attackers 1, 2, 5 and 7 of a federation."""
    federation = Federation.build(tiny("attack.name=3dfed"))
    base, setup = build_first_state(federation).base, federation.attack_setup
    assert setup is not None
    return Adaptation(federation).build_view(setup, base, {}, [1, 2, 5, 7], 3)


def plant(view: AdaptationView, feedback: list[float], groups: list[int], decoys: int = 0) -> AdaptationView:
    """Return the view of attackers who find this feedback in the global model."""
    columns, shares = torch.arange(len(feedback)), torch.full((len(feedback),), 0.05).double()
    before = view.base[columns] - torch.tensor(feedback) * 0.05 * 2
    planted = {"columns": columns, "values": torch.full((len(feedback),), 2.0), "before": before, "shares": shares}
    memory = {"planted": {**planted, "groups": torch.tensor(groups), "hiding": [0.3, 0.6], "decoys": decoys}}
    return replace(view, setup=replace(view.setup, memory=memory))


def test_the_first_round_draws_groups_and_idle_weights(view: AdaptationView) -> None:
    memory = ThreeDFed(candidates=5).adapt(view, stream(0))
    assert sorted(memory["groups"]) == ["1", "2", "5", "7"]
    assert sorted(memory["groups"].values()) == [0, 0, 1, 1]
    assert len(memory["hiding"]) == 2
    assert "planted" not in memory
    filters = view.layout.columns["conv2.weight"]
    columns: Tensor = memory["columns"]
    assert len(columns.unique()) == 20
    assert filters.start <= int(columns.min()) <= int(columns.max()) < filters.stop


@pytest.mark.parametrize(
    ("feedback", "low", "high"),
    [([1, 1, 1, 1], 0.3, 0.6), ([0, 0, 1, 1], 0.6, 0.7), ([1, 1, 1, 0.5], 0.3, 0.4), ([-3, 1, 1, 1], 0.01, 0.01)],
)
def test_noise_follows_the_groups_that_passed(
    view: AdaptationView, feedback: list[float], low: float, high: float
) -> None:
    """The weights were 0.3 and 0.6; a server with noise gets the least weight."""
    for seed in range(5):
        hiding, decoys = ThreeDFed()._read_feedback(plant(view, feedback, [0, 0, 1, 1]), stream(seed))
        assert decoys == 0
        assert all(low <= weight <= high for weight in hiding)


def test_if_nobody_passed_there_is_one_more_decoy_until_half_are(view: AdaptationView) -> None:
    for decoys in (0, 1, 5):
        memory = ThreeDFed().adapt(plant(view, [0, 0, 0], [0, 1, DECOY], decoys), stream(0))
        expected = min(decoys + 1, 2)
        assert memory["decoys"] == expected
        assert list(memory["groups"].values()).count(DECOY) == expected
        assert len(memory["hiding"]) == count_groups(4 - expected, 2)


def test_the_attackers_read_in_the_next_round_that_an_average_took_them_all(tiny: MakeExperiment) -> None:
    found: list[Tensor] = []

    class Spy(ThreeDFed):
        def adapt(self, view: AdaptationView, rng: torch.Generator) -> Memory:
            if view.setup.memory is not None:
                self.check_memory(view.setup.memory, view.setup, view.layout)
                planted = view.setup.memory["planted"]
                after = view.base[planted["columns"]]
                found.append(measure_feedback(planted["before"], after, planted["values"], planted["shares"]))
            return super().adapt(view, rng)

    federation = Federation.build(tiny("attack.name=3dfed", "defense.name=fedavg", "rounds=3", "attack.malicious=0.5"))
    object.__setattr__(federation, "attack", Spy())
    assert len(list(simulate(federation))) == 3
    assert len(found) == 2
    for feedback in found:
        assert (classify_feedback(feedback) == ACCEPTED).all()
        assert feedback.tolist() == pytest.approx([1] * len(feedback), abs=0.2)


@pytest.mark.parametrize(
    "change",
    [
        {"groups": 3},
        {"hiding": None},
        {"columns": torch.tensor([99])},
        {"columns": torch.tensor([1.0])},
        {"planted": 5},
        {"planted": {"columns": torch.tensor([0])}},
    ],
)
def test_damaged_memories_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="the attack's memory is damaged"):
        ThreeDFed().check_memory({**MEMORY, **change}, None, LAYOUT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"constrain": 1.0}, r"constrain must lie in \[0, 1\), got 1"),
        ({"group": 0}, "group must be a whole number from 1, got 0"),
        ({"planted": 0.0}, "planted must be a positive number"),
        ({"least_weight": 1.1}, "least_weight must be a share"),
        ({"decoy_shift": -1.0}, "decoy_shift must be a finite number from 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        ThreeDFed(**settings)
