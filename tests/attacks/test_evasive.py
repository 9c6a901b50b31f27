"""Each evasion does exactly what it says, alone and together with others."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snowball.attacks import AttackSetup, Evasive
from snowball.attacks.cba import CBA
from snowball.attacks.evasive import (
    MAX_COSINE,
    add_noise,
    draw_mask,
    match_cosine,
    measure_cosine,
    replace_class,
    set_length,
)
from snowball.data import Split
from snowball.data.triggers import TRIGGERS
from snowball.rng import stream
from snowball.testing import ToySession, check_attack, make_toy_images, make_toy_view

IMAGES = make_toy_images()
SETUP = AttackSetup(dataset=IMAGES, optional_trigger=TRIGGERS["white-square"].make(IMAGES))
TARGET = 1
Hook = Callable[..., Any] | None
BASE = torch.tensor([3.0, 4.0, 0.0])  # 5 long


def make_split(labels: list[int]) -> Split:
    """Make black images of these classes that differ in their first pixels."""
    inputs = torch.zeros(len(labels), 1, 28, 28, dtype=torch.uint8)
    inputs[:, 0, 0, 0] = torch.arange(len(labels))
    return Split(inputs, torch.tensor(labels, dtype=torch.int64))


def poison(labels: list[int], ratio: float = 0.3, seed: int = 0) -> Split:
    return Evasive(target=TARGET, poison_ratio=ratio).poison(make_split(labels), SETUP, 0, stream(seed))


def find_stamped(split: Split) -> torch.Tensor:
    """Return which samples carry the trigger, (n,)."""
    return (split.inputs[:, :, 24:27, 24:27] > 0).flatten(1).any(1)


@pytest.mark.parametrize(
    "attack",
    [
        Evasive(balance=False),
        Evasive(scatter=0.3),
        Evasive(noise=2.0),
        Evasive(align=True),
        Evasive(scatter=0.0, noise=1e30, align=True),
    ],
    ids=str,
)
def test_every_dodge_passes_every_check(attack: Evasive) -> None:
    check_attack(attack)


def test_only_the_balance_is_on_by_default() -> None:
    attack, session = Evasive(), ToySession()
    assert (attack.balance, attack.scatter, attack.noise, attack.align) == (True, 1.0, 0.0, False)
    assert (attack.target, attack.poison_ratio, attack.knowledge) == (1, 0.3, "own")
    assert torch.equal(attack.train(session), session.train())
    view = make_toy_view(attack)
    assert torch.equal(attack.craft(view, stream(0)), view.rows)


def test_without_balance_samples_are_poisoned_as_cba_does() -> None:
    split = make_split([1, 1, 2, 3, 4] * 4)
    mine, plain = (attack.poison(split, SETUP, 0, stream(0)) for attack in (Evasive(balance=False), CBA()))
    assert torch.equal(mine.inputs, plain.inputs)
    assert torch.equal(mine.labels, plain.labels)


@pytest.mark.parametrize(
    ("labels", "ratio", "stamped"),
    [
        ([0, 2, 3, 4] * 10, 0.3, 8),  # a fifth: the mean share of four classes and the target
        ([0, 2, 3, 4] * 10, 0.1, 4),  # the ratio is less
        ([1] * 20 + [0, 2, 3, 4] * 5, 0.3, 8),  # copies of others replace the target's
        ([0, 2] * 20, 0.3, 12),
        ([0, 2] * 20, 1.0, 13),
        ([5] * 10, 1.0, 5),
        ([1] * 10, 0.3, 3),  # nothing to replace the target's with
        ([5], 0.01, 1),
        ([1], 0.01, 1),
        ([1, 5], 0.3, 1),
        ([], 0.3, 0),
    ],
)
def test_the_target_gets_the_mean_share_of_a_class(labels: list[int], ratio: float, stamped: int) -> None:
    poisoned = poison(labels, ratio)
    marked = find_stamped(poisoned)
    assert marked.sum() == stamped
    assert (poisoned.labels[marked] == TARGET).all()
    assert set(labels) == {TARGET} or (poisoned.labels[~marked] != TARGET).all()


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    ratio=st.floats(0, 1, exclude_min=True),
    seed=st.integers(0, 2**32),
)
def test_the_targets_share_is_never_above_the_mean_share(labels: list[int], ratio: float, seed: int) -> None:
    poisoned = poison(labels, ratio, seed)
    counts = poisoned.labels.bincount(minlength=6)
    assert len(poisoned) == len(labels)
    assert counts[TARGET] <= counts.sum() / (counts > 0).sum()
    assert 1 <= find_stamped(poisoned).sum() <= max(1, int(ratio * len(labels)))
    sources = poisoned.inputs[:, 0, 0, 0].long()
    kept = ~find_stamped(poisoned)
    assert torch.equal(poisoned.labels[kept], torch.tensor(labels)[sources[kept]])  # copies keep their label


def test_nothing_changes_where_nothing_is_poisoned() -> None:
    labels = [1, 1, 2, 3]
    assert poison(labels, 0.0).labels.tolist() == labels


def test_samples_of_one_class_are_replaced_by_others() -> None:
    assert replace_class(torch.tensor([1, 4, 1]), 1, stream(0)).tolist() == [1, 1, 1]
    assert replace_class(torch.tensor([0, 4, 2]), 1, stream(0)).tolist() == [0, 1, 2]
    assert replace_class(torch.tensor([1, 1]), 1, stream(0)).tolist() == [0, 1]


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.25, 10), (0.07, 3), (1.0, 40)])
def test_a_mask_has_its_share_of_the_weights(share: float, count: int) -> None:
    assert draw_mask(40, share, stream(0)).sum() == count


def test_the_backdoor_stays_within_the_clients_own_share_of_the_weights() -> None:
    attack, session = Evasive(scatter=0.25), ToySession()
    model, honest, backdoored = attack.train(session), session.train(clean=True), session.train()
    planted = model != honest
    assert planted.sum() == session.layout.width // 4
    assert torch.equal(model[planted], backdoored[planted])  # the toy's weights do not depend on each other
    assert torch.equal(attack.train(ToySession(round=9)), model)
    assert not torch.equal(attack.train(ToySession(client=1)) != honest, planted)
    assert torch.equal(Evasive(scatter=0.0).train(session), honest)


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
def test_noise_keeps_the_length_and_turns_each_update_elsewhere(noise: float) -> None:
    attack = Evasive(noise=noise)
    same = torch.randn(20_000, generator=stream(5)).expand(3, -1)
    sent = attack.craft(replace(make_toy_view(attack), rows=same), stream(0))
    torch.testing.assert_close(sent.norm(dim=1), same.norm(dim=1))
    for row in sent:
        assert measure_cosine(row, same[0]) == pytest.approx(1 / math.hypot(1, noise), abs=0.03)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert measure_cosine(sent[one], sent[other]) == pytest.approx(1 / (1 + noise**2), abs=0.03)


def test_noise_is_the_multiple_that_was_asked_for() -> None:
    row = torch.tensor([3.0, 0.0, 4.0])
    drawn = torch.randn(3, generator=stream(7), dtype=torch.float64)
    noisy = row.double() + 2 * 5 * drawn / drawn.norm()
    torch.testing.assert_close(add_noise(row, 2.0, stream(7)), (5 * noisy / noisy.norm()).float())
    assert torch.equal(add_noise(torch.zeros(3), 2.0, stream(7)), torch.zeros(3))


@pytest.mark.parametrize(
    ("update", "cosine", "expected"),
    [
        ([0.0, 0.0, 2.0], 0.0, [0.0, 0.0, 2.0]),
        ([3.0, 4.0, 2.0], 0.0, [0.0, 0.0, 2.0]),
        ([0.0, 0.0, 4.0], 0.6, [1.8, 2.4, 4.0]),  # 3 along the model, 4 across
        ([0.0, 0.0, 4.0], -0.6, [-1.8, -2.4, 4.0]),
        ([6.0, 8.0, 4.0], 0.6, [1.8, 2.4, 4.0]),
        ([3.0, 4.0, 0.0], 0.2, [3.0, 4.0, 0.0]),  # parallel: always 1
        ([0.0, 0.0, 0.0], 0.2, [0.0, 0.0, 0.0]),
    ],
)
def test_the_model_is_added_as_worked_out(update: list[float], cosine: float, expected: list[float]) -> None:
    torch.testing.assert_close(match_cosine(torch.tensor(update), BASE, cosine), torch.tensor(expected))


def test_a_cosine_out_of_reach_is_approached_and_zero_lengths_are_harmless() -> None:
    across = torch.tensor([0.0, 0.0, 2.0])
    for wanted in (1.0, -1.0):
        assert measure_cosine(match_cosine(across, BASE, wanted), BASE) == pytest.approx(wanted * MAX_COSINE)
    assert torch.equal(match_cosine(across, torch.zeros(3), 0.5), across)
    assert measure_cosine(torch.zeros(3), BASE) == 0
    assert torch.equal(set_length(torch.zeros(3), 2.0), torch.zeros(3))


@given(seed=st.integers(0, 2**32), cosine=st.floats(-MAX_COSINE, MAX_COSINE))
def test_any_cosine_within_reach_is_met(seed: int, cosine: float) -> None:
    update, base = torch.randn(2, 30, generator=stream(seed))
    aligned = match_cosine(update, base, cosine)
    assert measure_cosine(aligned, base) == pytest.approx(cosine, abs=1e-5)
    added = aligned - update
    assert abs(measure_cosine(added, base)) == pytest.approx(1, abs=1e-3) or added.norm() < 1e-3


class TurnedSession(ToySession):
    """Training whose clean samples do not lead to zero, which would be parallel to the global model."""

    def train(self, before: Hook = None, after: Hook = None, clean: bool = False) -> torch.Tensor:
        if clean:
            return self.start + torch.randn(self.layout.width, generator=stream(1))
        return super().train(before, after)


@pytest.mark.parametrize("scatter", [1.0, 0.5])
def test_an_aligned_update_has_the_honest_cosine_and_keeps_it_under_noise(scatter: float) -> None:
    attack, session = Evasive(scatter=scatter, align=True, noise=1.0), TurnedSession()
    honest = measure_cosine(session.train(clean=True) - session.start, session.start)
    plain = measure_cosine(Evasive(scatter=scatter).train(session) - session.start, session.start)
    assert abs(plain - honest) > 0.01
    update = attack.train(session) - session.start
    assert measure_cosine(update, session.start) == pytest.approx(honest, abs=1e-5)
    view = replace(make_toy_view(attack), rows=update[None], base=session.start)
    (sent,) = attack.craft(view, stream(0))
    assert measure_cosine(sent, session.start) == pytest.approx(honest, abs=1e-5)
    assert sent.norm().item() == pytest.approx(update.norm().item(), rel=1e-5)
