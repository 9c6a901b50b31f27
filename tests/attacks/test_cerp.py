"""CerP: its trigger, tuned by all attackers, and its training near clean models and apart from the colluders."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from snowball.attacks import AdaptationView, AttackSetup, CerP, set_up_attack
from snowball.attacks.cerp import derive_cosines, scale_to_unit
from snowball.attacks.memory import recall_setup
from snowball.data import Split
from snowball.errors import RunError, SettingError
from snowball.layout import Layout, select_parameters
from snowball.models import build_model
from snowball.rng import stream
from snowball.sim.training.client import LocalTraining
from snowball.sim.training.malicious import SimulatedSession
from snowball.testing import ToySession, make_toy_images, make_toy_view
from snowball.testing.federations import ToyFederation, make_toy_federation

IMAGES = make_toy_images()
SETUP = set_up_attack(CerP(), IMAGES)
FIRST = recall_setup(CerP(), SETUP, None)


class OnePixel(nn.Module):
    """A network whose score of class 1 is a multiple of one pixel; the other nine scores are 0."""

    def __init__(self, factor: float, row: int = 24, column: int = 24) -> None:
        super().__init__()
        self.factor, self.place = factor, (row, column)

    def forward(self, pixels: Tensor) -> Tensor:
        scores = torch.zeros(len(pixels), 10)
        scores[:, 1] = self.factor * pixels[:, 0, self.place[0], self.place[1]]
        return scores


def make_adaptation(model: nn.Module, count: int = 64, setup: AttackSetup = FIRST) -> AdaptationView:
    """Make the view of two attackers with this many samples together."""
    samples = tuple(IMAGES.train[torch.arange(start, count, 2)] for start in (0, 1))
    layout = Layout(("w",), ((1, 1),))
    return AdaptationView(
        setup=setup, model=model, base=torch.zeros(1), layout=layout, round=1, clients=(0, 1), samples=samples
    )


def test_a_step_of_the_trigger_is_as_worked_out() -> None:
    # With the score of class 1 at -2 for a white pixel, p = e^-2 / (e^-2 + 9), and the loss has slope -2 (p - 1) by the
    # pixel, so that a step of 0.1 moves it from 1 to 1 - 0.2 (1 - p).
    values = CerP().adapt(make_adaptation(OnePixel(-2.0)), stream(0))["shades"]
    probability = 0.1353353 / 9.1353353
    assert values[0, 0].item() == pytest.approx(1 - 0.2 * (1 - probability), abs=1e-5)
    assert (values[0, 1:] == 1).all()


@pytest.mark.parametrize(("epochs", "samples", "steps"), [(1, 64, 1), (3, 64, 3), (1, 65, 2), (2, 130, 6)])
def test_every_sample_of_every_attacker_tunes_the_trigger_once_per_epoch(epochs: int, samples: int, steps: int) -> None:
    class Counting(OnePixel):
        calls = 0

        def forward(self, pixels: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(pixels)

    model = Counting(-1.0)
    CerP(tuning_epochs=epochs).adapt(make_adaptation(model, samples), stream(0))
    assert model.calls == steps


def test_the_trigger_stays_in_its_ball_and_between_black_and_white() -> None:
    far = CerP(tuning_rate=1.0, tuning_epochs=20)
    assert far.adapt(make_adaptation(OnePixel(-5.0)), stream(0))["shades"][0, 0] == 0
    assert far.adapt(make_adaptation(OnePixel(5.0)), stream(0))["shades"][0, 0] == 1
    near = replace(far, tuning_radius=0.25).adapt(make_adaptation(OnePixel(-5.0)), stream(0))["shades"]
    assert near[0, 0].item() == pytest.approx(0.75)


def test_the_trigger_is_stamped_as_it_was_learned_and_tuned_further() -> None:
    attack, learned = CerP(), torch.linspace(0, 1, 9)[None]
    setup = recall_setup(attack, SETUP, {"shades": learned, "directions": torch.ones(1)})
    images = torch.full((2, 1, 28, 28), 7, dtype=torch.uint8)
    stamped = setup.trigger.stamp(images)
    assert stamped.dtype == torch.uint8
    assert stamped[1, 0, 24:27, 24:27].flatten().tolist() == [0, 32, 64, 96, 128, 159, 191, 223, 255]
    assert (stamped != 7).sum() == 18
    assert (images == 7).all()
    assert torch.equal(attack.make_first_trigger(SETUP).stamp(images), SETUP.trigger.stamp(images))
    memory = attack.adapt(make_adaptation(OnePixel(1.0, 24, 25), setup=setup), stream(0))
    assert (memory["shades"] != learned).nonzero().tolist() == [[0, 1]]
    assert torch.equal(memory["directions"], torch.ones(1))
    assert torch.equal(learned, torch.linspace(0, 1, 9)[None])


def test_what_is_not_a_patch_of_pixels_cannot_be_tuned() -> None:
    attack = CerP(trigger="noise")
    with pytest.raises(
        SettingError, match=r"cerp tunes the shades of a square, and attack\.trigger = 'noise' is not one"
    ):
        attack.make_trigger(set_up_attack(attack, IMAGES))


def test_the_gradient_of_the_cosines_is_that_of_torch() -> None:
    rows = torch.randn(4, 7, generator=stream(0), dtype=torch.float64)
    weights = torch.randn(7, generator=stream(1), dtype=torch.float64).requires_grad_()
    cosine_similarity(weights[None], rows).sum().backward()
    directions = torch.stack([scale_to_unit(row) for row in rows]).sum(0)
    torch.testing.assert_close(derive_cosines(weights.detach(), directions), weights.grad)


def test_attackers_remember_the_directions_of_the_models_that_they_sent() -> None:
    base = torch.linspace(-1, 1, 40)
    view = replace(make_toy_view(CerP()), base=base, memory={"shades": torch.ones(1, 9)})
    sent = CerP().craft(view, stream(0))
    assert torch.equal(sent, view.rows)
    memory = CerP().remember(view, sent)
    models = (base + sent).double()
    expected = (models / models.norm(dim=1, keepdim=True)).sum(0).float()
    torch.testing.assert_close(memory["directions"], expected)
    assert torch.equal(memory["shades"], torch.ones(1, 9))


def test_closeness_pulls_towards_a_clean_model_layer_by_layer() -> None:
    session = ToySession(steps=1)
    poisoned, clean = session.train(), session.train(clean=True)
    model = CerP(closeness=2.0).train(session)
    for columns in session.layout.columns.values():
        away = (session.start - clean)[columns].double()
        pulled = poisoned[columns].double() - 0.1 * 2.0 * away / away.norm()  # a toy step is a tenth of the gradient
        torch.testing.assert_close(model[columns].double(), pulled, atol=1e-6, rtol=0)
    assert torch.equal(CerP(closeness=0.0, diversity=0.0).train(session), poisoned)


def test_diversity_keeps_a_model_apart_from_the_last_ones() -> None:
    last = ToySession().train() * torch.linspace(0, 2, 40)
    cosines = []
    for diversity in (0.0, 1.0, 10.0):
        session = ToySession(memory={"shades": torch.ones(1, 9), "directions": scale_to_unit(last)})
        cosines.append(cosine_similarity(CerP(diversity=diversity, closeness=0.0).train(session), last, dim=0).item())
    assert cosines[0] - cosines[1] > 0.005
    assert cosines[1] - cosines[2] > 0.005


class ConvolvedFederation(ToyFederation):
    """A toy federation whose trainer has another order of columns, as for every convolution."""

    def build_model(self) -> nn.Module:
        return build_model("cnn-quarter", self.dataset.input_shape, self.dataset.classes, stream(0))


def test_a_row_is_arranged_as_the_trainer_has_it() -> None:
    toy = make_toy_federation(CerP())
    federation = ConvolvedFederation(
        experiment=toy.experiment, dataset=toy.dataset, parts=toy.parts, attack=CerP(), attack_setup=toy.attack_setup
    )
    base = federation.layout.flatten(select_parameters(federation.build_model()))
    session = SimulatedSession(
        federation=federation, trainer=LocalTraining(federation).trainer, base=base, buffers={}, client=0, round=1
    )
    assert not torch.equal(session.start, base)
    assert torch.equal(session.arrange(base), session.start)


@pytest.mark.parametrize(
    ("memory", "fault"),
    [
        ({"shades": torch.ones(1, 8)}, "no float32 shades of 1 x 9 pixels"),
        ({"shades": torch.full((1, 9), torch.nan)}, "shades outside 0 to 1"),
        ({"directions": torch.ones(2)}, "no float32 shades of 1 x 9 pixels"),
        ({"shades": torch.ones(1, 9), "directions": torch.ones(3)}, "no directions of 2 columns"),
        ({"shades": torch.ones(1, 9), "directions": [1.0, 1.0]}, "no directions of 2 columns"),
        ({"shades": torch.ones(1, 9), "directions": torch.tensor([1.0, torch.inf])}, "directions that are not finite"),
    ],
)
def test_a_memory_that_cannot_be_is_refused(memory: dict[str, object], fault: str) -> None:
    layout = Layout(("w",), ((2, 1),))
    CerP().check_memory({"shades": torch.ones(1, 9), "directions": torch.ones(2)}, SETUP, layout)
    with pytest.raises(RunError, match=fault):
        CerP().check_memory(memory, SETUP, layout)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"tuning_rate": 0.0}, "tuning_rate must be a positive number, got 0.0"),
        ({"tuning_epochs": 0}, "tuning_epochs must be a whole number from 1, got 0"),
        ({"tuning_batch": 0}, "tuning_batch must be a whole number from 1, got 0"),
        ({"tuning_radius": -1.0}, "tuning_radius must be a positive number, got -1.0"),
        ({"closeness": -1.0}, "closeness must be a finite number from 0, got -1.0"),
        ({"diversity": float("inf")}, "diversity must be a finite number from 0, got inf"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], fault: str) -> None:
    with pytest.raises(SettingError, match=fault):
        CerP(**settings)  # type: ignore[arg-type]


def test_poisoned_samples_carry_the_learned_trigger() -> None:
    federation = make_toy_federation(CerP(poison_ratio=1.0))
    learned = {"shades": torch.full((1, 9), 0.5)}
    poisoned: Split = federation.poison_samples(0, learned)
    assert (poisoned.inputs[:, 0, 24:27, 24:27] == 128).all()
    assert (federation.poison_samples(0).inputs[:, 0, 24:27, 24:27] == 255).all()
