import pytest
import torch

from snowball.defenses.base import Context, TrustingDefense
from snowball.defenses.fltrust import FLTrust
from snowball.errors import SettingError
from snowball.testing import make_toy_round
from snowball.updates import Updates

ROWS = torch.tensor([[2.0, 0], [0, 3], [-1, 0], [1, 1]])


def test_trust_by_hand() -> None:
    updates = Updates.from_layers({"w": ROWS}, examples=[1, 2, 3, 4])
    verdict = FLTrust()(updates, Context(round=1, trusted=torch.tensor([1.0, 0])))
    trust = torch.as_tensor(verdict.facts["trust"])
    torch.testing.assert_close(trust, torch.tensor([1, 0, 0, 0.5**0.5], dtype=torch.float64))
    torch.testing.assert_close(verdict.delta, torch.tensor([0.8787, 0.2929]), rtol=0, atol=5e-5)
    assert verdict.elected.tolist() == [True, False, False, True]


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_no_client_gains_by_length(scale: float) -> None:
    trusted = torch.tensor([3.0, 4.0])
    lengths = torch.tensor([[1.0], [scale], [1.0], [scale]])
    here, there = (
        FLTrust()(Updates.from_layers({"w": rows}), Context(round=1, trusted=trusted))
        for rows in (ROWS, ROWS * lengths)
    )
    torch.testing.assert_close(here.delta, there.delta)
    assert here.delta.norm() <= 5


@pytest.mark.parametrize("trusted", [[0.0, 0.0], [-1.0, -1.0], [1.0, -1.0]])
def test_without_trust_in_anybody_the_model_stays(trusted: list[float]) -> None:
    updates = Updates.from_layers({"w": torch.tensor([[1.0, 1], [0, 0], [3 + 1e-12, 3]], dtype=torch.float64)})
    verdict = FLTrust()(updates, Context(round=1, trusted=torch.tensor(trusted)))
    assert not verdict.elected.any()
    assert verdict.delta.tolist() == [0, 0]


@pytest.mark.parametrize(("row", "expected"), [([0.0, 5.0], [0.0, 2.0]), ([5.0, 0.0], [0.0, 0.0])])
def test_one_update_must_be_trusted_too(row: list[float], expected: list[float]) -> None:
    verdict = FLTrust()(
        Updates.from_layers({"w": torch.tensor([row])}), Context(round=1, trusted=torch.tensor([0.0, 2.0]))
    )
    assert verdict.delta.tolist() == expected
    assert verdict.elected.any() == any(expected)


def test_fltrust_has_the_server_train() -> None:
    assert isinstance(FLTrust(), TrustingDefense)
    with pytest.raises(SettingError, match=r"fltrust needs Context\.trusted"):
        FLTrust()(make_toy_round(), Context(round=1))
    with pytest.raises(SettingError, match="trusted_examples must be 1 or more, got 0"):
        FLTrust(trusted_examples=0)
