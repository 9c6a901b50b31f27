"""Attacks that learn their trigger take the steps of their papers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from snowball.attacks import A3FL, CBA, IBA, AdaptationView, AttackSetup, recall_setup, set_up_attack
from snowball.attacks.a3fl import measure_similarity
from snowball.attacks.iba import build_generator, clip_shades, find_generated, load_weights, measure_success
from snowball.attacks.learned_patch import (
    LearnedPatch,
    compute_patch_gradient,
    find_patch,
    measure_target_loss,
    read_patch,
    take_sign_step,
)
from snowball.data import Split
from snowball.data.triggers import TRIGGERS
from snowball.errors import RunError, SettingError
from snowball.rng import stream
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state
from snowball.sim.run import describe_trigger
from snowball.sim.training.adaptation import Adaptation
from snowball.testing import make_toy_images, make_toy_texts

MakeExperiment = Callable[..., Experiment]

IMAGES = make_toy_images()
PATCH = LearnedPatch(((0, 1), (1, 1)), torch.tensor([[0.25, 0.75]]))
WEIGHTS = np.array([[0.5, -1.0, 0.25, 2.0], [0.0, 1.5, -0.5, 1.0], [1.0, 0.5, 0.75, -1.5]])
OTHER_WEIGHTS = np.array([[0.1, 0.3, -0.2, 0.4], [1.0, -2.0, 0.5, 0.0], [-0.3, 0.2, 0.9, 0.6]])


def make_linear(weights: Any) -> nn.Module:
    """Make a model of 2x2 images whose scores are linear in the pixels."""
    linear = nn.Linear(4, len(weights), bias=False)
    linear.weight = nn.Parameter(torch.tensor(weights, dtype=torch.float32))
    return nn.Sequential(nn.Flatten(), linear)


def draw_images(count: int) -> Tensor:
    return torch.rand(count, 1, 2, 2, generator=stream(5))


def compute_errors(weights: Any, images: Any, labels: Any) -> Any:
    """Return predicted probabilities minus one-hot labels (n, classes)."""
    scores = images @ weights.T
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return probabilities - np.eye(len(weights))[labels]


def flatten(images: Tensor) -> Any:
    return images.flatten(1).double().numpy()


def test_a_step_goes_against_the_sign_of_the_gradient_and_stays_a_shade() -> None:
    shades, gradient = torch.tensor([[0.5, 0.98, 0.01, 0.3]]), torch.tensor([[2.0, -3.0, 0.1, 0.0]])
    torch.testing.assert_close(take_sign_step(shades, gradient, 0.05), torch.tensor([[0.45, 1.0, 0.0, 0.3]]))


def test_a_patch_is_stamped_as_raw_pixels_and_nowhere_else() -> None:
    stamped = PATCH.stamp(torch.full((2, 1, 2, 2), 9, dtype=torch.uint8))
    assert stamped.tolist() == [[[[9, 64], [9, 191]]]] * 2  # 63.75 and 191.25
    floats = replace(PATCH, black=-1.0, white=3.0).stamp(torch.zeros(1, 1, 2, 2))
    assert floats.tolist() == [[[[0, 0], [0, 2]]]]  # -1 + 0.25 * 4 and -1 + 0.75 * 4
    assert PATCH.parts == (PATCH,)


def test_the_gradient_of_a_patch_is_that_of_numpy() -> None:
    images, target = draw_images(6), 1
    stamped = flatten(PATCH.paint(images, PATCH.shades))
    expected = sum(
        factor * (compute_errors(weights, stamped, [target] * 6) @ weights).mean(0)[[1, 3]]
        for factor, weights in ((1.0, WEIGHTS), (0.3, OTHER_WEIGHTS))
    )

    def measure_loss(shades: Tensor) -> Tensor:
        losses = [
            measure_target_loss(make_linear(each), PATCH.paint(images, shades), 1) for each in (WEIGHTS, OTHER_WEIGHTS)
        ]
        return losses[0] + 0.3 * losses[1]

    found = compute_patch_gradient(measure_loss, PATCH.shades)
    np.testing.assert_allclose(found.numpy()[0] * 1.0, expected, rtol=1e-5)


def test_the_similarity_is_the_cosine_of_the_gradients() -> None:
    images, labels = draw_images(6), torch.tensor([0, 1, 2, 0, 1, 2])
    gradients = [
        (compute_errors(weights, flatten(images), labels.numpy()).T @ flatten(images) / 6).ravel()
        for weights in (WEIGHTS, OTHER_WEIGHTS)
    ]
    expected = gradients[0] @ gradients[1] / np.linalg.norm(gradients[0]) / np.linalg.norm(gradients[1])
    found = measure_similarity(make_linear(WEIGHTS), make_linear(OTHER_WEIGHTS), images, labels)
    assert found == pytest.approx(expected, rel=1e-5)
    assert measure_similarity(make_linear(WEIGHTS), make_linear(WEIGHTS), images, labels) == pytest.approx(1)


def test_with_convolutions_only_their_gradients_count() -> None:
    images, labels, filters = draw_images(4), torch.tensor([0, 1, 2, 0]), nn.Conv2d(1, 2, 2)
    lasts = nn.Linear(2, 3), nn.Linear(2, 3)
    models = [nn.Sequential(filters, nn.Flatten(), last) for last in lasts]
    gradients = [torch.autograd.grad(cross_entropy(model(images), labels), [filters.weight])[0] for model in models]
    expected = cosine_similarity(gradients[0].flatten(), gradients[1].flatten(), dim=0)
    assert measure_similarity(models[0], models[1], images, labels) == pytest.approx(float(expected))


def make_view(attack: Any, model: nn.Module, images: Tensor, memory: Any = None) -> AdaptationView:
    """Make a view of 2x2 float images in a data set of 28x28 ones, for patches within the images."""
    setup = AttackSetup(dataset=IMAGES, optional_trigger=PATCH, memory=memory)
    raw = (images * 255).round().to(torch.uint8)
    return AdaptationView(
        setup=setup,
        model=model,
        base=torch.zeros(1),
        layout=None,  # type: ignore[arg-type]
        round=1,
        clients=(0,),
        samples=(Split(raw, torch.arange(len(raw)) % 3),),
    )


def test_one_step_of_a3fl_is_worked_out_by_hand() -> None:
    # The target's weights at pixels 1 and 3 are 1.5 and 1.0. Whatever the samples, class 1's score grows with pixel 1
    # more than both others' (-1.0, 0.5), so its shade rises. Class 0 has 2.0 at pixel 3 and class 2 has -1.5: the mean
    # of those by probability decides, and NumPy knows it.
    images = (draw_images(6) * 255).round() / 255
    errors = compute_errors(WEIGHTS, flatten(PATCH.paint(images, PATCH.shades)), [1] * 6)
    direction = np.sign((errors @ WEIGHTS).mean(0)[[1, 3]])
    assert direction[0] == -1
    attack = A3FL(steps=1, step_size=0.125, unlearned_weight=0.0)
    memory = attack.adapt(make_view(attack, make_linear(WEIGHTS), images), stream(0))
    assert memory["shades"].tolist() == [[0.25 + 0.125, 0.75 - 0.125 * direction[1]]]


def test_a_model_that_unlearned_the_patch_has_its_say() -> None:
    view = make_view(A3FL(), make_linear(WEIGHTS), draw_images(60))
    learned = [
        A3FL(steps=5, unlearned_weight=weight, unlearn_rate=0.5, unlearn_epochs=20).adapt(view, stream(0))["shades"]
        for weight in (0.0, 50.0)
    ]
    assert not torch.equal(*learned)
    torch.testing.assert_close(view.model.state_dict()["1.weight"].double().numpy(), WEIGHTS)  # still as it was


@pytest.fixture
def federation(tiny: MakeExperiment) -> Federation:
    return Federation.build(tiny("attack.name=a3fl", "data.examples=200", "attack.malicious=0.4"))


def adapt(federation: Federation, attack: Any, rounds: int = 1) -> AdaptationView:
    """Adapt an attack for some rounds of the first model, and return the view after that."""
    assert federation.attack_setup
    given = replace(federation, attack=attack, attack_setup=set_up_attack(attack, federation.dataset))
    state, adaptation = build_first_state(given), Adaptation(given)
    clients = [client for client in range(federation.experiment.data.clients) if given.is_attacking(client, 1)]
    for round in range(1, rounds + 1):
        state.attack = adaptation(state, clients, round)
    setup = given.recall_setup(state.attack)
    assert setup
    return adaptation.build_view(setup, state.base, state.buffers, clients, 1)


def test_a_learned_patch_is_better_than_any_of_many_random_ones(federation: Federation) -> None:
    view = adapt(federation, A3FL())
    images, patch = view.setup.dataset.scale(view.pool_samples().inputs), find_patch(view.setup)
    with torch.no_grad():
        learned = float(measure_target_loss(view.model, patch.paint(images, patch.shades), 1))
        drawn = torch.rand(30, *patch.shades.shape, generator=stream(3))
        others = [float(measure_target_loss(view.model, patch.paint(images, shades), 1)) for shades in drawn]
    assert learned < min(others)
    assert not torch.equal(patch.shades, torch.full_like(patch.shades, 0.5))


def test_a_generator_is_better_than_random_patterns_and_goes_on_from_its_memory(federation: Federation) -> None:
    once, again = (adapt(federation, IBA(enough=1.0, epochs=20), rounds) for rounds in (1, 2))
    images = once.setup.dataset.scale(once.pool_samples().inputs)
    with torch.no_grad():
        first, second = (
            float(measure_target_loss(once.model, find_generated(view.setup).paint(images), 1))
            for view in (once, again)
        )
        noise = 2 * torch.rand(20, *images.shape[1:], generator=stream(3)) - 1
        others = [float(measure_target_loss(once.model, (images + 0.3 * each).clamp(0, 1), 1)) for each in noise]
    assert second < first < min(others)


def test_a_generator_stops_once_it_works_often_enough(federation: Federation) -> None:
    view = adapt(federation, IBA(enough=0.0))
    fresh = torch.nn.utils.parameters_to_vector(build_generator(1).parameters())
    assert view.setup.memory is not None
    assert torch.equal(view.setup.memory["weights"], fresh)  # not a step
    images = view.setup.dataset.scale(view.pool_samples().inputs)
    trained = adapt(federation, IBA(enough=0.5, epochs=50))
    assert measure_success(find_generated(trained.setup), trained.model, images, 1) >= 0.5


def test_patterns_are_faint_and_possible() -> None:
    trigger = find_generated(recall_setup(IBA(opacity=0.1), set_up_attack(IBA(), IMAGES), None))
    stamped = trigger.stamp(IMAGES.test.inputs)
    assert stamped.dtype == torch.uint8
    assert (stamped.int() - IMAGES.test.inputs.int()).abs().max() <= round(0.1 * 255)
    assert not torch.equal(stamped[0], IMAGES.test.inputs[0])
    assert torch.equal(stamped[150:], trigger.stamp(IMAGES.test.inputs[150:]))  # a sample's pattern is its own
    assert len(trigger.stamp(IMAGES.test.inputs[:0])) == 0


@pytest.mark.parametrize("attack", [A3FL(), IBA()])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_one_image_is_stamped_as_among_others(attack: Any, count: int) -> None:
    trigger = recall_setup(attack, set_up_attack(attack, IMAGES), None).trigger
    images = IMAGES.test.inputs[:count]
    stamped = trigger.stamp(images)
    assert stamped.shape == images.shape
    for image, expected in zip(images, stamped, strict=True):
        assert (trigger.stamp(image).int() - expected.int()).abs().max() <= 1  # sums in another order


@pytest.mark.parametrize("name", ["a3fl", "iba"])
def test_a_run_shows_what_is_learned_from(tiny: MakeExperiment, name: str) -> None:
    shown = describe_trigger(Federation.build(tiny(f"attack.name={name}")))
    assert shown is not None
    assert shown["summary"] == f"what {name} learns from, round by round"
    assert 0 < shown["picture"]["changed"] <= {"a3fl": 9, "iba": 28 * 28}[name]


def test_clipped_shades_learn_only_the_way_back() -> None:
    shades = torch.tensor([-0.5, -0.5, 0.5, 1.5, 1.5], requires_grad=True)
    clipped = clip_shades(shades)
    torch.testing.assert_close(clipped.detach(), torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0]))
    torch.autograd.backward(clipped, torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0]))
    assert shades.grad is not None
    assert shades.grad.tolist() == [0, -2, 3, 0, 5]


def test_before_a_memory_the_patch_is_grey() -> None:
    setup = set_up_attack(A3FL(), IMAGES)
    assert (find_patch(recall_setup(A3FL(), setup, None)).shades == 0.5).all()
    shades = torch.rand(1, 9, generator=stream(0))
    recalled = recall_setup(A3FL(), setup, {"shades": shades})
    assert torch.equal(find_patch(recalled).shades, shades)
    assert find_patch(recalled).pixels == TRIGGERS["white-square"].make(IMAGES).pixels  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("memory", "sentence"),
    [
        ({}, "holds no float32 shades of 1 x 9 pixels"),
        ({"shades": torch.zeros(9)}, "holds no float32 shades of 1 x 9 pixels"),
        ({"shades": torch.zeros(1, 9).double()}, "holds no float32 shades of 1 x 9 pixels"),
        ({"shades": torch.full((1, 9), 1.5)}, "holds shades outside 0 to 1"),
        ({"shades": torch.full((1, 9), torch.nan)}, "holds shades outside 0 to 1"),
    ],
)
def test_shades_that_do_not_fit_are_refused(memory: Any, sentence: str) -> None:
    with pytest.raises(RunError, match=sentence):
        recall_setup(A3FL(), set_up_attack(A3FL(), IMAGES), memory)


def test_weights_that_do_not_fit_are_refused() -> None:
    generator = build_generator(1)
    width = sum(parameter.numel() for parameter in generator.parameters())
    for weights in (None, torch.zeros(3), torch.zeros(width).double()):
        with pytest.raises(RunError, match=f"holds no {width} float32 weights"):
            load_weights(generator, weights)
    with pytest.raises(RunError, match="not finite"):
        load_weights(generator, torch.full((width,), torch.inf))


@pytest.mark.parametrize(
    ("attack", "setting", "value", "sentence"),
    [
        (A3FL, "steps", 0, "steps must be a whole number from 1, got 0"),
        (A3FL, "unlearn_every", 0, "unlearn_every must be a whole number from 1"),
        (A3FL, "step_size", 0.0, "step_size must be a positive number"),
        (A3FL, "unlearned_weight", -1.0, "unlearned_weight must be a finite number from 0, got -1.0"),
        (A3FL, "poison_ratio", 2.0, "poison_ratio must be a share"),
        (IBA, "opacity", 0.0, "opacity must be a positive number"),
        (IBA, "opacity", 1.5, "opacity must be a share"),
        (IBA, "epochs", 0, "epochs must be a whole number"),
        (IBA, "enough", 1.5, "enough must be a share"),
        (IBA, "rate", float("inf"), "rate must be a positive number"),
    ],
)
def test_settings_that_cannot_be_are_refused(attack: Any, setting: str, value: float, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        attack(**{setting: value})


def test_triggers_that_cannot_be_learned_are_refused() -> None:
    with pytest.raises(SettingError, match="must be a square, whose shades can be learned"):
        read_patch(set_up_attack(CBA(trigger="noise"), IMAGES))
    texts = make_toy_texts()
    with pytest.raises(SettingError, match="not images"):
        IBA(trigger="word").make_trigger(set_up_attack(CBA(trigger="word"), texts))
    named = set_up_attack(CBA(), IMAGES)
    with pytest.raises(SettingError, match="its setup holds another"):
        find_patch(named)
    with pytest.raises(SettingError, match="its setup holds another"):
        find_generated(named)
