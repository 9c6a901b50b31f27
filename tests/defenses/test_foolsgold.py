import numpy as np
import pytest
import torch

from snowball.defenses.base import Context
from snowball.defenses.foolsgold import FoolsGold, weigh_by_honesty
from snowball.errors import SettingError
from snowball.serialization import pack, unpack
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

SYBILS = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0.6, 0.8]])


def written_out(histories: np.ndarray) -> np.ndarray:
    """The paper's algorithm one pair at a time."""
    count = len(histories)
    lengths = np.linalg.norm(histories, axis=1)
    likeness = np.zeros((count, count))
    for one in range(count):
        for other in range(count):
            if one != other and lengths[one] * lengths[other] > 0:
                likeness[one, other] = histories[one] @ histories[other] / (lengths[one] * lengths[other])
    highest = likeness.max(axis=1)
    for one in range(count):
        for other in range(count):
            if highest[one] < highest[other]:
                likeness[one, other] *= highest[one] / highest[other]
    weights = np.zeros(count)
    apart = np.clip(1 - likeness.max(axis=1), 0, 1)
    for one in range(count):
        share = min(apart[one] / apart.max(), 0.99 if apart[one] == apart.max() else 1 - 1e-15)
        weights[one] = np.clip(np.log(share / (1 - share)) + 0.5, 0, 1) if share > 0 else 0
    return weights


def test_sybils_weigh_nothing() -> None:
    verdict = FoolsGold()(Updates.from_layers({"w": SYBILS}), Context(round=1))
    assert torch.as_tensor(verdict.facts["weights"]).tolist() == [0, 0, 1, 1]
    assert verdict.elected.tolist() == [False, False, True, True]
    torch.testing.assert_close(verdict.delta, torch.tensor([0, 0.8, 0.4]))


@pytest.mark.parametrize("seed", range(10))
def test_weights_are_those_of_the_algorithm_written_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(9, 5)) + rng.normal(size=5) * rng.integers(0, 3)
    rows[3] = 2 * rows[4] + 0.3 * rng.normal(size=5) * rng.integers(0, 2)
    rows[6] *= rng.integers(0, 2)
    updates = Updates.from_layers({"w": torch.tensor(rows.astype(np.float32))})
    weights = torch.as_tensor(FoolsGold()(updates, Context(round=1)).facts["weights"])
    np.testing.assert_allclose(weights, written_out(rows.astype(np.float32).astype(float)), atol=1e-6)


def test_histories_are_summed_by_client_and_not_by_row() -> None:
    generator = torch.Generator().manual_seed(0)
    sums: dict[str, np.ndarray] = {}
    state = None
    for round in range(1, 7):
        clients = [str(client) for client in torch.randperm(8, generator=generator)[:5].tolist()]
        rows = torch.randn(5, 6, generator=generator)
        verdict = FoolsGold()(Updates.from_layers({"w": rows}, clients=clients), Context(round=round, state=state))
        sums |= {client: sums.get(client, np.zeros(6)) + row.numpy() for client, row in zip(clients, rows, strict=True)}
        expected = written_out(np.array([sums[client] for client in sorted(clients)]))
        np.testing.assert_allclose(torch.as_tensor(verdict.facts["weights"]), expected, atol=1e-5)
        assert verdict.facts["history_mib"] == len(sums) * 6 * 4 / 2**20
        state = unpack(pack(verdict.state))


def test_an_honest_client_like_a_sybil_is_pardoned() -> None:
    likeness = torch.tensor([[1, 1, 0.6, 0], [1, 1, 0.6, 0], [0.6, 0.6, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)
    assert weigh_by_honesty(likeness).tolist() == [0, 0, 1, 1]  # 0.6 * 0.6 counts; 0.6 would leave it a weight of 0.09


def test_where_all_are_alike_all_weigh_the_same() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 1000, generator=rng).repeat(5, 1)
    rows[4] *= 1 + 1e-6 * torch.randn(1000, generator=rng)  # alike but for rounding
    verdict = FoolsGold()(Updates.from_layers({"w": rows}), Context(round=1))
    assert torch.as_tensor(verdict.facts["weights"]).tolist() == [1] * 5
    torch.testing.assert_close(verdict.delta, rows.mean(0))


@pytest.mark.parametrize("value", [0.0, 1.0, 1e18])
def test_one_update_is_taken(value: float) -> None:
    verdict = FoolsGold()(Updates.from_layers({"w": torch.full((1, 3), value, dtype=torch.float64)}), Context(round=1))
    assert verdict.elected.all()
    assert verdict.delta.tolist() == [value] * 3


def test_clients_that_stay_away_are_forgotten() -> None:
    defense, first = FoolsGold(forget_after=2), make_toy_round()
    state = defense(first, Context(round=1)).state
    names = [f"other {client}" for client in first.clients]
    others = Updates(first.values, first.examples, names, first.layout)
    for round, kept in ((2, 40), (3, 20)):
        state = defense(others, Context(round=round, state=state)).state
        assert state is not None
        assert len(state["clients"]) == kept
    with pytest.raises(SettingError, match="forget_after must be 1 round or more, got 0"):
        FoolsGold(forget_after=0)


def test_what_is_kept_does_not_change_with_the_next_round() -> None:
    values = torch.ones(3, 4)
    verdict = FoolsGold()(Updates.from_layers({"w": values}), Context(round=1))
    before = pack(verdict.state)
    values.zero_()
    assert pack(verdict.state) == before


def test_foolsgold_passes_every_check() -> None:
    check_defense(FoolsGold())
