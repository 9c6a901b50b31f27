"""Chameleon: its loss, computed by hand and with NumPy, and its two stages."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from snowball.attacks import Chameleon
from snowball.attacks.chameleon import compute_contrastive_loss
from snowball.errors import SettingError
from snowball.layout import Layout, select_parameters
from snowball.models.features import compute_features
from snowball.rng import stream
from snowball.sim.training.client import LocalTraining
from snowball.sim.training.malicious import SimulatedSession
from snowball.testing import ToySession
from snowball.testing.federations import make_toy_federation


def compute_plainly(features: Tensor, labels: Tensor, target: int, weight: float, temperature: float) -> float:
    """Compute the loss anchor by anchor, as the formula reads."""
    directions = features.double().numpy() / np.linalg.norm(features.double().numpy(), axis=1, keepdims=True)
    losses = []
    for anchor, label in enumerate(labels.tolist()):
        others = [other for other in range(len(labels)) if other != anchor]
        total = sum(np.exp(directions[anchor] @ directions[other] / temperature) for other in others)
        logs = [
            np.log(np.exp(directions[anchor] @ directions[other] / temperature) / total)
            for other in others
            if labels[other] == label
        ]
        losses.append(-(weight if label == target else 1) * float(np.mean(logs)) if logs else 0.0)
    return float(np.mean(losses))


def test_the_loss_of_three_samples_is_as_worked_out() -> None:
    features = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    labels = torch.tensor([1, 1, 0])
    # The first two are each other's only positive, and the third has none: ln(1 + 1/e) twice, over three anchors.
    plain = compute_contrastive_loss(features, labels, torch.ones(3), 1.0)
    assert plain.item() == pytest.approx(2 * 0.3132617 / 3, abs=1e-6)
    doubled = compute_contrastive_loss(features, labels, torch.tensor([2.0, 2.0, 1.0]), 1.0)
    assert doubled.item() == pytest.approx(4 * 0.3132617 / 3, abs=1e-6)


@given(
    count=st.integers(2, 12),
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([0.07, 0.5, 1.0]),
    weight=st.sampled_from([1.0, 2.0, 6.0]),
)
def test_the_loss_is_that_of_the_formula(count: int, seed: int, temperature: float, weight: float) -> None:
    features = torch.randn(count, 5, generator=stream(seed)).double()
    labels = torch.randint(3, (count,), generator=stream(seed, "labels"))
    weights = torch.where(labels == 1, weight, 1.0).double()
    loss = compute_contrastive_loss(features, labels, weights, temperature)
    assert loss.item() == pytest.approx(compute_plainly(features, labels, 1, weight, temperature), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("labels", [[1], [0, 1, 2]])
def test_samples_without_positives_teach_nothing(labels: list[int]) -> None:
    features = torch.randn(len(labels), 4, generator=stream(0)).requires_grad_()
    loss = compute_contrastive_loss(features, torch.tensor(labels), torch.ones(len(labels)), 0.07)
    loss.backward()
    assert loss.item() == 0
    assert features.grad is not None
    assert not features.grad.any()


def test_equal_features_of_a_class_and_opposite_ones_of_others_cost_next_to_nothing() -> None:
    apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 1])
    assert compute_contrastive_loss(apart, labels, torch.ones(4), 0.07).item() == pytest.approx(0, abs=1e-6)
    swapped = compute_contrastive_loss(apart[[0, 2, 1, 3]], labels, torch.ones(4), 0.07).item()
    assert swapped == pytest.approx(2 / 0.07, rel=1e-3)


class WatchedSession(SimulatedSession):
    """A session that keeps the model of each stage."""

    def train(self, *arguments: object, **settings: object) -> Tensor:
        self.stages = [*getattr(self, "stages", []), super().train(*arguments, **settings)]  # type: ignore[arg-type]
        return self.stages[-1]


def train_toy_stages() -> tuple[Tensor, list[Tensor], Tensor]:
    """Return the global model and each stage's model of a network with dropout, and which columns are the head's."""
    federation = make_toy_federation(Chameleon())
    base = federation.layout.flatten(select_parameters(federation.build_model()))
    session = WatchedSession(
        federation=federation, trainer=LocalTraining(federation).trainer, base=base, buffers={}, client=0, round=1
    )
    Chameleon().train(session)
    head = torch.zeros(len(base), dtype=torch.bool)
    head[federation.layout.columns["last.weight"]] = True
    return session.start, session.stages, head


def test_the_first_stage_trains_the_encoder_alone_and_the_second_the_last_layer_alone() -> None:
    start, (encoded, final), head = train_toy_stages()
    assert encoded[head].numpy().tobytes() == start[head].numpy().tobytes()
    assert final[~head].numpy().tobytes() == encoded[~head].numpy().tobytes()
    assert (encoded[~head] != start[~head]).float().mean() > 0.9
    assert (final[head] != start[head]).all()


def test_the_encoder_learns_what_the_loss_wants() -> None:
    federation = make_toy_federation(Chameleon())
    training = LocalTraining(federation)
    start, (encoded, _), _ = train_toy_stages()
    split = federation.poison_samples(0)
    model = training.trainer.model.eval()
    losses = []
    for weights in (start, encoded):
        training.trainer.weights.copy_(weights)
        features, _ = compute_features(model, federation.layout, federation.dataset.normalise(split.inputs))
        losses.append(compute_contrastive_loss(features, split.labels, torch.ones(len(split)), 0.07).item())
    assert losses[1] < losses[0] - 0.5


def test_the_settings_reach_the_loss() -> None:
    class Tapped(ToySession):
        losses: list[float]

        def train(self, *arguments: object, **settings: object) -> Tensor:  # type: ignore[override]
            if loss := settings.get("loss"):
                features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
                self.losses = [loss(features, torch.zeros(3, 9), torch.tensor([4, 4, 0])).item()]  # type: ignore[operator]
            return super().train(*arguments, **settings)  # type: ignore[arg-type]

    session = Tapped()
    for target, weight in ((4, 3), (5, 1)):
        Chameleon(target=target, temperature=1.0, target_weight=3.0).train(session)
        assert session.losses[0] == pytest.approx(weight * 2 * 0.3132617 / 3, abs=1e-6)


def test_a_model_of_one_layer_has_no_encoder() -> None:
    with pytest.raises(SettingError, match="chameleon trains the layers before the last one, and the model has none"):
        Chameleon().train(ToySession(Layout(("only.weight", "only.bias"), ((2, 19), (2,)))))
