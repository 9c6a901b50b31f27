from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snowball.attacks import ATTACKS, Cba, Dba, triggered
from snowball.data import Split
from snowball.data.triggers import WHITE_SQUARE, WHITE_SQUARE_PARTS
from snowball.errors import DataError, SettingError
from snowball.rng import stream


def black(count: int) -> Split:
    """Black images, whose labels and first pixels tell them apart."""
    inputs = torch.zeros(count, 1, 28, 28, dtype=torch.uint8)
    inputs[:, 0, 0, 0] = torch.arange(count) % 256
    return Split(inputs, torch.arange(count) % 10)


def stamped(split: Split) -> torch.Tensor:
    """(n,) which samples carry any of the trigger."""
    return (split.inputs[:, :, 24:27, 24:27] > 0).flatten(1).any(1)


def test_the_table_holds_every_attack() -> None:
    assert {"cba": Cba, "dba": Dba} == ATTACKS


@pytest.mark.parametrize("name", ATTACKS)
@given(count=st.integers(0, 40), ratio=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_the_exact_share_is_stamped_and_relabelled_and_nothing_else(
    name: str, count: int, ratio: float, seed: int
) -> None:
    split = black(count)
    inputs, labels = split.inputs.clone(), split.labels.clone()
    poisoned = ATTACKS[name](target=7, poison_ratio=ratio).poison(split, 0, stream(seed))
    marked = stamped(poisoned)
    assert marked.sum() == int(ratio * count)
    assert (poisoned.labels[marked] == 7).all()
    assert torch.equal(poisoned.inputs[~marked], inputs[~marked])
    assert torch.equal(poisoned.labels[~marked], labels[~marked])
    assert torch.equal(poisoned.inputs[:, :, :24], inputs[:, :, :24])
    assert torch.equal(split.inputs, inputs)
    assert torch.equal(split.labels, labels)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_stream_poisons_alike_and_another_otherwise(name: str) -> None:
    attack = ATTACKS[name]()
    first, again, other = (attack.poison(black(100), 3, stream(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(stamped(first), stamped(other))


def test_any_class_is_poisoned_the_target_too() -> None:
    split = black(1000)
    marked = stamped(Cba(target=1).poison(split, 0, stream(0)))
    assert split.labels[marked].bincount(minlength=10).min() > 10


def test_cba_stamps_the_whole_trigger() -> None:
    split = black(10)
    poisoned = Cba(poison_ratio=1).poison(split, 0, stream(0))
    assert torch.equal(poisoned.inputs, WHITE_SQUARE.stamp(split.inputs))


def test_dba_gives_a_client_one_part_and_deals_the_parts_evenly() -> None:
    split = black(4)
    parts = [part.stamp(split.inputs) for part in WHITE_SQUARE_PARTS]
    dealt: Counter[int] = Counter()
    for client in range(600):
        poisoned = Dba(poison_ratio=1).poison(split, client, stream(0, "attack", client))
        dealt[next(index for index, part in enumerate(parts) if torch.equal(poisoned.inputs, part))] += 1
    assert set(dealt) == {0, 1, 2}
    assert all(abs(count - 200) < 47 for count in dealt.values())  # four deviations


@pytest.mark.parametrize("name", ATTACKS)
def test_the_backdoor_is_measured_on_other_classes_with_the_whole_trigger(name: str) -> None:
    test = black(50)
    measured = triggered(test, ATTACKS[name](target=4))
    others = test[test.labels != 4]
    assert len(measured) == 45
    assert (measured.labels == 4).all()
    assert measured.labels.dtype == torch.int64
    assert torch.equal(measured.inputs, WHITE_SQUARE.stamp(others.inputs))
    assert not stamped(test).any()


def test_a_backdoor_that_could_not_show_is_refused() -> None:
    test = black(20)
    with pytest.raises(DataError, match="all 2 test samples are of the target class 1"):
        triggered(test[test.labels == 1], Cba(target=1))


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"target": -1}, "counts from 0, got -1"),
        ({"poison_ratio": 1.01}, "from 0 to 1, got 1.01"),
        ({"poison_ratio": -0.1}, "from 0 to 1, got -0.1"),
        ({"poison_ratio": float("nan")}, "from 0 to 1, got nan"),
    ],
)
def test_impossible_settings_are_refused(name: str, settings: dict[str, float], fault: str) -> None:
    with pytest.raises(SettingError, match=fault):
        ATTACKS[name](**settings)


def test_the_papers_settings_are_the_defaults() -> None:
    for make in ATTACKS.values():
        assert (make().target, make().poison_ratio) == (1, 0.3)
