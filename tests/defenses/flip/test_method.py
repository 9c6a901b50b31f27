from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.defenses import REJECTED, ClientTask, Context, LocalDefense, PredictionDefense, TrustingDefense
from snowball.defenses.flip import FLIP, InversionSettings
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.serialization import pack
from snowball.updates import Updates

CLASSES, TARGET = 3, 1
QUICK = InversionSettings(universal_steps=100, pair_steps=50, repeat_steps=20, max_mask=0.25)
SHORT = InversionSettings(universal_steps=20, pair_steps=10, repeat_steps=5, max_mask=1.0)
ROUND = Updates.from_layers({"w": torch.tensor([[1.0], [2.0], [9.0]])}, examples=[1, 3, 4])


def bars(count: int, name: str) -> tuple[Tensor, Tensor]:
    """Noise with one bright row of eight, which says the class."""
    rng, labels = stream(0, name), torch.arange(count) % CLASSES
    images = 0.6 * torch.rand(count, 1, 8, 8, generator=rng)
    images[torch.arange(count), 0, 1 + 2 * labels] = 0.6 + 0.4 * torch.rand(count, 8, generator=rng)
    return images, labels


def triggered(images: Tensor) -> Tensor:
    """The images with four white pixels in a corner."""
    images = images.clone()
    images[:, :, -2:, -2:] = 1
    return images


def sgd(model: nn.Module, images: Tensor, labels: Tensor, name: str) -> None:
    rng, optimiser = stream(0, name), torch.optim.SGD(model.parameters(), 0.05, 0.9)
    for _ in range(20):
        for batch in torch.split(torch.randperm(len(labels), generator=rng), 20):
            optimiser.zero_grad()
            cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()


def untrained() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2, generator=stream(0, "weights"))
    return model


def make_task(model: nn.Module, state: Any = None, seed: int = 0, samples: int = 120) -> ClientTask:
    inputs, labels = bars(samples, "clean")
    rng = stream(seed, "lesson")
    return ClientTask(
        model=model, inputs=inputs, labels=labels, classes=CLASSES, epochs=5, batch=10, rate=0.01, rng=rng, state=state
    )


@torch.no_grad()
def accuracies(model: nn.Module) -> tuple[float, float]:
    """On clean images, and of the trigger on images of other classes."""
    images, labels = bars(300, "test")
    obeyed = model(triggered(images[labels != TARGET])).argmax(1) == TARGET
    return float((model(images).argmax(1) == labels).float().mean()), float(obeyed.float().mean())


def test_the_server_takes_the_plain_mean_times_its_rate() -> None:
    verdict = FLIP()(ROUND, Context(round=1))
    assert verdict.delta.item() == 4
    assert verdict.elected.all()
    assert FLIP(server_rate=0.1)(ROUND, Context(round=1)).delta.item() == pytest.approx(0.4)


def test_flip_acts_in_training_and_in_prediction_too() -> None:
    assert isinstance(FLIP(), LocalDefense)
    assert isinstance(FLIP(), PredictionDefense)
    assert not isinstance(FLIP(), TrustingDefense)


def test_two_lessons_on_clean_samples_remove_a_backdoor_that_plain_training_keeps() -> None:
    images, labels = bars(300, "poisoned")
    chosen = torch.randperm(300, generator=stream(0, "chosen"))[:90]
    images[chosen], labels[chosen] = triggered(images[chosen]), TARGET
    model = untrained()
    sgd(model, images, labels, "poisoned order")
    main, backdoor = accuracies(model)
    assert main > 0.95
    assert backdoor > 0.95

    plain = deepcopy(model)
    sgd(plain, *bars(120, "clean"), "clean order")
    assert accuracies(plain)[1] > 0.9

    state = None
    for number in range(2):
        state = FLIP(portion=0.9, inversion=QUICK).train(make_task(model, state, number))
    main, backdoor = accuracies(model)
    assert main > 0.9
    assert backdoor < 0.3


def test_the_same_lesson_teaches_the_same_to_the_bit() -> None:
    flip, outcomes = FLIP(epochs=5, inversion=SHORT), []
    for seed in (1, 1, 2):
        model = untrained()
        drawn = torch.random.get_rng_state()
        state = flip.train(make_task(model, seed=seed, samples=30))
        assert torch.equal(torch.random.get_rng_state(), drawn)
        outcomes.append(pack({"state": state, "model": dict(model.state_dict())}))
    assert outcomes[0] == outcomes[1] != outcomes[2]


def test_a_lesson_leaves_the_modes_and_flags_of_the_model() -> None:
    model = untrained()
    model[1].eval()
    model[3].bias.requires_grad_(False)
    bias = model[3].bias.clone()
    FLIP(epochs=4, inversion=SHORT).train(make_task(model, samples=20))
    assert [module.training for module in model] == [True, False, True, True]
    assert [parameter.requires_grad for parameter in model.parameters()] == [True, True, True, False]
    assert torch.equal(model[3].bias, bias)


@pytest.mark.parametrize(
    ("epochs", "batch", "most", "expected"), [(2, 4, 110, 6), (2, 4, 5, 5), (1, 64, 110, 1), (3, 5, 110, 6)]
)
def test_a_lesson_has_so_many_batches(
    epochs: int, batch: int, most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[int]] = []
    monkeypatch.setattr(
        "snowball.defenses.flip.hardening.Hardening.train", lambda self, index: batches.append(index.tolist())
    )
    FLIP(epochs=epochs, batch=batch, max_batches=most).train(make_task(untrained(), samples=10))
    assert len(batches) == expected
    if most > expected:
        assert sorted(index for batch in batches for index in batch) == sorted([*range(10)] * epochs)


def test_a_client_without_samples_learns_nothing() -> None:
    model, before = untrained(), untrained()
    state = FLIP().train(make_task(model, samples=0))
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before.parameters(), strict=True))
    assert state["warmed"] == 0


def test_samples_that_are_no_images_are_refused() -> None:
    texts = ClientTask(
        model=untrained(),
        inputs=torch.zeros(6, 25),
        labels=torch.zeros(6, dtype=torch.int64),
        classes=2,
        epochs=1,
        batch=2,
        rate=0.1,
        rng=stream(0),
    )
    with pytest.raises(SettingError, match=r"triggers in images \(channels, height, width\), got .* shape \(25,\)"):
        FLIP().train(texts)


class Scores:
    """A model whose row is the scores."""

    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        return row.view(len(inputs), -1)

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("tau", "expected"),
    [(0.0, [2, 1, 0]), (0.4, [2, 1, REJECTED]), (0.75, [2, REJECTED, REJECTED]), (1.01, [REJECTED] * 3)],
)
def test_samples_of_low_confidence_are_rejected(tau: float, expected: list[int]) -> None:
    shares = torch.tensor([[0.1, 0.1, 0.8], [0.2, 0.7, 0.1], [0.36, 0.32, 0.32]])
    context = Context(round=1, base=shares.log().flatten(), model=Scores())
    assert FLIP(reject_below=tau).predict(torch.zeros(3, 1, 8, 8), context).tolist() == expected


def test_just_enough_confidence_is_enough() -> None:
    context = Context(round=1, base=torch.zeros(2), model=Scores())
    assert FLIP(reject_below=0.5).predict(torch.zeros(1, 1, 8, 8), context).tolist() == [0]


def test_scores_that_are_no_numbers_are_rejected() -> None:
    context = Context(round=1, base=torch.tensor([torch.nan, 0.0]), model=Scores())
    assert FLIP(reject_below=0.0).predict(torch.zeros(1, 1, 8, 8), context).tolist() == [REJECTED]


@pytest.mark.parametrize("missing", ["base", "model"])
def test_prediction_needs_a_model(missing: str) -> None:
    known = {"base": torch.zeros(2), "model": Scores()} | {missing: None}
    with pytest.raises(SettingError, match=rf"flip needs Context.{missing}"):
        FLIP().predict(torch.zeros(1, 1, 8, 8), Context(round=1, **known))


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("server_rate", 0.0, "server_rate must be a positive number, got 0.0"),
        ("epochs", 0, "epochs must be"),
        ("batch", -1, "batch must be a positive number, got -1"),
        ("lr", float("nan"), "lr must be"),
        ("lr", 1e308, "lr must be a learning rate up to 1e+06, got 1e+308".replace("+", r"\+")),
        ("max_batches", 0, "max_batches must be"),
        ("portion", 1.5, r"portion must be a share in \[0, 1\], got 1.5"),
        ("reject_below", -0.1, "reject_below must be a confidence from 0, got -0.1"),
    ],
)
def test_settings_that_nothing_can_follow_are_refused(setting: str, value: float, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        FLIP(**{setting: value})
