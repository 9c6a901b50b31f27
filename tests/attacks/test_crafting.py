"""Attackers train and craft updates as their papers say."""

from dataclasses import replace

import pytest
import torch

from snowball.attacks import (
    ALIE,
    IPM,
    PGD,
    Adaptive,
    AttackerView,
    LayerPoison,
    MinMax,
    MinSum,
    ModelReplacement,
    Neurotoxin,
)
from snowball.attacks.alie import compute_hidden_deviations
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.testing import ToySession, make_toy_view

HONEST = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0], [2.0, 0.0]])


def make_view(honest: torch.Tensor = HONEST, attackers: int = 1) -> AttackerView:
    """Make a round of these honest updates and some attackers that trained zeros."""
    template = make_toy_view(IPM())
    count, width = honest.shape
    return replace(
        template,
        rows=torch.zeros(attackers, width),
        examples=torch.full((attackers,), 10.0),
        others=honest,
        cohort_size=count + attackers,
        attacker_count=attackers,
        total_examples=10.0 * (count + attackers),
    )


@pytest.mark.parametrize(("attack", "expected"), [(MinMax("unit"), [0.0, 0.0]), (MinSum("unit"), [1.0, 0.0])])
def test_the_mean_is_moved_as_far_as_worked_out(attack: MinMax, expected: list[float]) -> None:
    crafted = attack.craft(make_view(attackers=2), stream(0))
    torch.testing.assert_close(crafted, torch.tensor([expected, expected]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("direction", ["unit", "sign", "deviation"])
def test_min_max_goes_as_far_as_it_may_and_no_farther(direction: str) -> None:
    honest = torch.randn(9, 30, generator=stream(3))
    crafted = MinMax(direction).craft(make_view(honest), stream(0))[0]  # type: ignore[arg-type]
    assert (honest - crafted).norm(dim=1).max().item() == pytest.approx(
        torch.cdist(honest, honest).max().item(), rel=1e-4
    )
    summed = MinSum(direction).craft(make_view(honest), stream(0))[0]  # type: ignore[arg-type]
    limit = torch.cdist(honest, honest).square().sum(1).min().item()
    assert (honest - summed).square().sum().item() == pytest.approx(limit, rel=1e-4)


@pytest.mark.parametrize(("clients", "attackers", "expected"), [(50, 10, 0.2533), (100, 20, 0.2858), (10, 6, 4.75)])
def test_a_little_is_as_much_as_worked_out(clients: int, attackers: int, expected: float) -> None:
    assert compute_hidden_deviations(clients, attackers) == pytest.approx(
        expected, abs=1e-2 if attackers == 6 else 1e-4
    )


def test_alie_hides_a_backdoor_or_pushes_everything_down() -> None:
    deviation = HONEST.std(0, correction=0)
    hidden = ALIE(deviations=1.0).craft(replace(make_view(), rows=torch.tensor([[9.0, 0.1]])), stream(0))
    torch.testing.assert_close(hidden, torch.stack([1.25 + deviation[0], torch.tensor(0.1)])[None])
    pushed = ALIE(goal="damage", deviations=2.0).craft(make_view(), stream(0))
    torch.testing.assert_close(pushed, (HONEST.mean(0) - 2 * deviation)[None])


def test_ipm_sends_the_honest_mean_backwards() -> None:
    assert IPM(strength=2.0).craft(make_view(), stream(0)).tolist() == [[-2.5, 0.0]]


def test_a_replaced_model_is_the_attackers_own() -> None:
    given = replace(make_view(attackers=2), rows=torch.tensor([[1.0, 2.0], [1.0, 2.0]]))
    sent = ModelReplacement().craft(given, stream(0))
    everybody = torch.cat([torch.zeros(4, 2), sent])  # all of ten examples
    torch.testing.assert_close(everybody.mean(0), torch.tensor([1.0, 2.0]))
    assert ModelReplacement(scale=3.0).craft(given, stream(0)).tolist() == [[3.0, 6.0], [3.0, 6.0]]
    bounded = ModelReplacement(bound=1.0).craft(given, stream(0))
    torch.testing.assert_close(bounded.norm(dim=1), torch.ones(2))


def test_a_constrained_model_stays_nearer() -> None:
    session = ToySession()
    free, held = (
        (ModelReplacement(constrain=constrain).train(session) - session.start).norm() for constrain in (0.0, 0.5)
    )
    assert 0 < held < 0.6 * free


def test_pgd_stays_in_its_ball_and_uses_it() -> None:
    session = ToySession()
    assert (PGD(radius=0.5).train(session) - session.start).norm().item() == pytest.approx(0.5, rel=1e-4)
    assert torch.equal(PGD(radius=1e6).train(session), session.train())


def test_neurotoxin_leaves_the_honest_coordinates_alone() -> None:
    session = ToySession()
    moved = Neurotoxin(top=0.25).train(session) != session.start
    largest = session.compute_gradient(clean=True).abs().topk(10).indices
    assert not moved[largest].any()
    assert moved.sum() == 30


def test_layer_poison_exchanges_no_more_layers_than_it_needs() -> None:
    session = ToySession()
    honest, backdoored = session.train(clean=True), session.train()
    for enough, expected in ((1.0, 3), (0.4, 1), (0.0, 0)):
        mixed = LayerPoison(enough=enough).train(session)
        taken = [torch.equal(mixed[cols], backdoored[cols]) for cols in session.layout.columns.values()]
        kept = [torch.equal(mixed[cols], honest[cols]) for cols in session.layout.columns.values()]
        assert sum(taken) == expected
        assert all(one != other for one, other in zip(taken, kept, strict=True))
    spared = LayerPoison(enough=1.0, spare=("first.weight",)).train(session)
    assert torch.equal(spared[session.layout.columns["first.weight"]], honest[session.layout.columns["first.weight"]])


def test_the_adaptive_attacker_is_honest_where_the_vote_is_and_stands_close() -> None:
    session, attack = ToySession(), Adaptive(apart=0.25)
    model, honest, backdoored = attack.train(session), session.train(clean=True), session.train()
    for name, columns in session.layout.columns.items():
        expected = backdoored if name == "middle.bias" else honest
        assert torch.equal(model[columns], expected[columns])
    given = make_toy_view(attack)
    crafted = attack.craft(given, stream(0))
    first, middle = given.layout.columns["first.weight"], given.layout.columns["middle.bias"]
    assert torch.equal(crafted[:, middle], given.rows[:, middle])
    torch.testing.assert_close(torch.pdist(crafted[:, first]), 0.25 * torch.pdist(given.rows[:, first]))
    with pytest.raises(SettingError, match="layer 'conv' is not in the model"):
        Adaptive(layers=("conv",)).train(session)
