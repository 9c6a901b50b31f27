from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.defenses.flip import InversionSettings, inversion
from snowball.defenses.flip.inversion import (
    Costs,
    Effort,
    Goal,
    bounded,
    draw_triggers,
    freeze_parameters,
    invert_triggers,
    jitter_triggers,
    mask_sizes,
    stamp_triggers,
    unbounded,
)
from snowball.errors import SettingError
from snowball.rng import stream

SETTINGS = InversionSettings()
SHAPE = torch.Size((1, 4, 4))


def linear(*weights: tuple[tuple[int, int], float], bias: float = 0.5) -> nn.Module:
    """Two classes: the second one's score is a weighted sum of some pixels, the first one's a constant."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.copy_(torch.tensor([bias, 0.0]))
        for (row, column), weight in weights:
            model[1].weight[1, 4 * row + column] = weight
    return model


def goal(count: int, target: int = 1, triggers: int = 1) -> Goal:
    images = 0.2 * torch.rand(count, *SHAPE, generator=stream(0, "images"))
    return Goal(images, torch.full((count,), target), torch.arange(count) % triggers)


def search(model: nn.Module, wanted: Goal, steps: int = 200, seed: int = 0, **settings: Any) -> tuple[Tensor, Tensor]:
    start = draw_triggers(int(wanted.owner.max()) + 1, SHAPE, stream(seed, "start"))
    return invert_triggers(
        model, wanted, start, Effort(steps, 1e-3), InversionSettings(**settings), stream(seed, "search")
    )


def test_a_stamped_pixel_is_a_mix_of_image_and_pattern() -> None:
    images = torch.full((3, 2, 1, 1), 0.2)
    trigger = torch.tensor([0.25, 1.0, 0.0]).view(1, 3, 1, 1)  # mask, first channel, second channel
    expected = torch.tensor([0.4, 0.15]).view(1, 2, 1, 1).expand(3, 2, 1, 1)
    torch.testing.assert_close(stamp_triggers(images, trigger), expected)
    assert mask_sizes(torch.full((2, 3, 4, 5), 0.5)).tolist() == [10.0, 10.0]  # the mask alone, and of one channel


def test_bounded_numbers_have_finite_numbers_behind_them() -> None:
    values = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0])
    assert unbounded(values).isfinite().all()
    torch.testing.assert_close(bounded(unbounded(values)), values, atol=2e-6, rtol=0)
    far = bounded(torch.tensor([-1e9, 1e9]))
    assert far.tolist() == [0.0, 1.0]


def test_jitter_is_small_and_stays_inside() -> None:
    trigger = torch.cat([torch.zeros(1, 20, 20), torch.ones(1, 20, 20), torch.full((1, 20, 20), 0.5)])
    moved = jitter_triggers(trigger, stream(0, "jitter"))
    assert moved.min() >= 0
    assert moved.max() <= 1
    assert 0.0095 < (moved - trigger).abs().max() <= 0.01 + 1e-7
    assert (moved[2] < 0.5).any()
    assert (moved[2] > 0.5).any()


def test_the_cost_rises_after_ten_successes_in_a_row_and_falls_after_ten_failures() -> None:
    costs = Costs(torch.full((2,), 1e-3), 10)
    for _ in range(9):
        costs.update([True, False])
    assert costs.values.tolist() == pytest.approx([1e-3, 1e-3])
    costs.update([True, True])
    assert costs.values.tolist() == pytest.approx([1.5e-3, 1e-3])
    for _ in range(10):
        costs.update([False, False])
    assert costs.values.tolist() == pytest.approx([1.5e-3 / 1.5**1.5, 1e-3 / 1.5**1.5])
    for _ in range(20):
        costs.update([True, True])
    assert costs.values.tolist() == pytest.approx([1.5e-3 * 1.5**0.5, 1e-3 * 1.5**0.5])


def test_inversion_lowers_the_loss_of_a_linear_model_and_keeps_masks_in_bounds() -> None:
    model, wanted = linear(((1, 1), 3.0), ((2, 3), 1.0)), goal(8)
    trigger, size = search(model, wanted)
    assert 0 <= float(trigger.min()) <= float(trigger.max()) <= 1
    with torch.no_grad():
        before = cross_entropy(model(wanted.images), wanted.targets)
        after = cross_entropy(model(stamp_triggers(wanted.images, trigger)), wanted.targets)
        assert (model(stamp_triggers(wanted.images, trigger)).argmax(1) == 1).all()
    assert after < before - 0.1
    torch.testing.assert_close(size, trigger[:, 0].sum((1, 2)))


def test_the_mask_found_is_the_pixel_that_decides() -> None:
    trigger, size = search(linear(((1, 2), 5.0)), goal(8), steps=400)
    mask, pattern = trigger[0]
    assert mask.argmax() == 4 * 1 + 2
    assert pattern[1, 2] > 0.9
    # The darkest image needs 5 x (its 0 to 0.2 under the mask) > 0.5: a mask of about a tenth; the start had eight.
    assert 0.05 < float(size) < 0.4


def test_of_several_successes_the_smallest_mask_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(inversion, "mask_sizes", lambda triggers: remember(mask_sizes(triggers), seen))
    _, size = search(linear(((1, 2), 5.0), bias=-9.0), goal(3), steps=60)  # succeeds whatever the trigger
    assert float(size) == pytest.approx(min(seen))
    assert min(seen) < seen[0]


def test_the_search_goes_on_from_near_the_best_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "jitter_triggers", lambda trigger, rng: torch.zeros_like(trigger))
    _, size = search(linear(bias=-9.0), goal(3), steps=2)
    assert float(size) < 1e-4  # Adam's step would have left about seven of eight pixels


def remember(sizes: Tensor, seen: list[float]) -> Tensor:
    seen += sizes.tolist()
    return sizes


def test_a_trigger_that_never_succeeds_is_zero() -> None:
    trigger, size = search(linear(bias=9.0), goal(4), steps=30)
    assert not trigger.any()
    assert not size.any()


def test_success_is_a_share_of_the_images() -> None:
    images = torch.zeros(10, *SHAPE)
    wanted = Goal(images, torch.tensor([1] * 9 + [0]), torch.zeros(10, dtype=torch.int64))
    model = linear(bias=-9.0)  # takes everything for class 1
    assert search(model, wanted, steps=5, success=0.9)[1] > 0
    assert search(model, wanted, steps=5, success=0.91)[1] == 0


def test_two_triggers_at_once_are_those_of_two_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "JITTER", 0.0)
    model, start = linear(((1, 2), 5.0), ((3, 3), -4.0)), draw_triggers(2, SHAPE, stream(0, "start"))
    images, targets, owner = goal(7).images, torch.tensor([0, 1, 1, 0, 1, 1, 1]), torch.tensor([0, 1, 1, 0, 1, 1, 1])
    together, sizes = invert_triggers(model, Goal(images, targets, owner), start, Effort(60, 1e-3), SETTINGS, stream(0))
    for trigger in (0, 1):
        mine = owner == trigger
        alone = Goal(images[mine], targets[mine], torch.zeros(int(mine.sum()), dtype=torch.int64))
        found, size = invert_triggers(model, alone, start[trigger, None], Effort(60, 1e-3), SETTINGS, stream(0))
        assert size > 0
        torch.testing.assert_close(found[0], together[trigger], atol=1e-4, rtol=0)
        torch.testing.assert_close(size[0], sizes[trigger], atol=1e-4, rtol=0)


def test_the_same_stream_finds_the_same_trigger_to_the_bit() -> None:
    model = linear(((1, 2), 5.0))
    state = torch.random.get_rng_state()
    first, again, other = (search(model, goal(5), 40, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 2), nn.BatchNorm1d(2))
    model[1].eval()
    model[3].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    search(model, goal(4), steps=3)
    assert [module.training for module in model] == [True, False, True, True]
    assert [parameter.requires_grad for parameter in model.parameters()] == [True, True, True, False]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_frozen_model_thaws_when_the_search_fails() -> None:
    model = linear()
    with freeze_parameters(model):
        assert not model.training
        assert not any(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(RuntimeError, match="must match the size"):
        invert_triggers(model, goal(2), torch.rand(1, 2, 5, 5), Effort(1, 1e-3), SETTINGS, stream(0))
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("success", 0.0, r"inversion.success must be a share in \(0, 1\], got 0.0"),
        ("success", 1.1, "got 1.1"),
        ("max_mask", float("nan"), "inversion.max_mask must be a share"),
        ("universal_steps", 0, "inversion.universal_steps must be a positive number, got 0"),
        ("pair_steps", -1, "got -1"),
        ("repeat_steps", 0, "repeat_steps"),
        ("lr", 0.0, "lr must be"),
        ("cost", float("inf"), "got inf"),
        ("patience", 0, "patience"),
        ("samples", 0, "samples"),
    ],
)
def test_settings_that_no_search_can_follow_are_refused(setting: str, value: float, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        InversionSettings(**{setting: value})
