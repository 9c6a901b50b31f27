from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snowball.attacks import ATTACKS, CBA, DBA, AttackSetup, EdgeCase, LabelFlip, Text, set_up_attack
from snowball.data import Split
from snowball.data.triggers import TRIGGERS
from snowball.errors import DataError, SettingError
from snowball.rng import stream
from snowball.testing import check_attack, make_toy_images, make_toy_texts

IMAGES = make_toy_images()
SQUARE = TRIGGERS["white-square"].make(IMAGES)
SETUP = AttackSetup(dataset=IMAGES, optional_trigger=SQUARE)


def make_black_images(count: int) -> Split:
    """Make black images that differ in their labels and first pixels."""
    inputs = torch.zeros(count, 1, 28, 28, dtype=torch.uint8)
    inputs[:, 0, 0, 0] = torch.arange(count) % 256
    return Split(inputs, torch.arange(count) % 10)


def find_stamped(split: Split) -> torch.Tensor:
    """Return which samples carry any part of the trigger, (n,)."""
    return (split.inputs[:, :, 24:27, 24:27] > 0).flatten(1).any(1)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_in_the_table_passes_every_check(name: str) -> None:
    check_attack(ATTACKS[name]())


def test_attacks_know_what_their_papers_say() -> None:
    known = {name: attack.knowledge for name, attack in ATTACKS.items()}
    assert {name for name, knowledge in known.items() if knowledge == "all"} == {"alie", "ipm", "min-max", "min-sum"}
    colluders = {name for name, knowledge in known.items() if knowledge == "colluders"}
    assert colluders == {"adaptive", "a3fl", "cerp", "iba", "3dfed"}


@pytest.mark.parametrize("attack", [CBA, DBA])
@given(count=st.integers(0, 40), ratio=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_the_exact_share_is_stamped_and_relabelled_and_nothing_else(
    attack: type[CBA], count: int, ratio: float, seed: int
) -> None:
    split = make_black_images(count)
    inputs, labels = split.inputs.clone(), split.labels.clone()
    poisoned = attack(target=7, poison_ratio=ratio).poison(split, SETUP, 0, stream(seed))
    marked = find_stamped(poisoned)
    assert marked.sum() == int(ratio * count)
    assert (poisoned.labels[marked] == 7).all()
    assert torch.equal(poisoned.inputs[~marked], inputs[~marked])
    assert torch.equal(poisoned.labels[~marked], labels[~marked])
    assert torch.equal(poisoned.inputs[:, :, :24], inputs[:, :, :24])


@pytest.mark.parametrize("attack", [CBA(), DBA()])
def test_another_stream_poisons_others(attack: CBA) -> None:
    first, other = (attack.poison(make_black_images(100), SETUP, 3, stream(seed)) for seed in (1, 2))
    assert not torch.equal(find_stamped(first), find_stamped(other))


def test_any_class_is_poisoned_the_target_too() -> None:
    split = make_black_images(1000)
    marked = find_stamped(CBA(target=1).poison(split, SETUP, 0, stream(0)))
    assert split.labels[marked].bincount(minlength=10).min() > 10


def test_cba_stamps_the_whole_trigger() -> None:
    split = make_black_images(10)
    poisoned = CBA(poison_ratio=1).poison(split, SETUP, 0, stream(0))
    assert torch.equal(poisoned.inputs, SQUARE.stamp(split.inputs))


def test_dba_gives_a_client_one_part_and_deals_the_parts_evenly() -> None:
    split = make_black_images(4)
    parts = [part.stamp(split.inputs) for part in SQUARE.parts]
    dealt: Counter[int] = Counter()
    for client in range(600):
        poisoned = DBA(poison_ratio=1).poison(split, SETUP, client, stream(0, "attack", client))
        dealt[next(index for index, part in enumerate(parts) if torch.equal(poisoned.inputs, part))] += 1
    assert set(dealt) == {0, 1, 2}
    assert all(abs(count - 200) < 47 for count in dealt.values())  # four deviations


@pytest.mark.parametrize("attack", [CBA, DBA])
def test_the_backdoor_is_measured_on_other_classes_with_the_whole_trigger(attack: type[CBA]) -> None:
    test = make_black_images(50)
    measured = attack(target=4).probe(AttackSetup(dataset=replace(IMAGES, test=test), optional_trigger=SQUARE))
    others = test[test.labels != 4]
    assert len(measured) == 45
    assert (measured.labels == 4).all()
    assert measured.labels.dtype == torch.int64
    assert torch.equal(measured.inputs, SQUARE.stamp(others.inputs))
    assert not find_stamped(test).any()


def test_a_backdoor_that_could_not_show_is_refused() -> None:
    test = make_black_images(20)
    alike = replace(IMAGES, test=test[test.labels == 1])
    with pytest.raises(DataError, match="all 2 test samples are of the target class 1"):
        CBA(target=1).probe(AttackSetup(dataset=alike, optional_trigger=SQUARE))


def test_only_texts_of_other_classes_get_the_word() -> None:
    texts = make_toy_texts()
    setup = set_up_attack(Text(), texts)
    split = texts.train[torch.arange(100)]
    poisoned = Text().poison(split, setup, 0, stream(0))
    changed = (poisoned.inputs != split.inputs).any(1)
    assert changed.sum() == 30
    assert (split.labels[changed] == 1).all()
    assert (poisoned.labels[changed] == 0).all()
    few = texts.train[texts.train.labels == 0][torch.arange(20)]
    assert torch.equal(Text().poison(few, setup, 0, stream(0)).inputs, few.inputs)


def test_labels_are_turned_round_or_one_class_is_renamed() -> None:
    split = make_black_images(20)
    turned = LabelFlip().poison(split, set_up_attack(LabelFlip(), IMAGES), 0, stream(0))
    assert torch.equal(turned.labels, 9 - split.labels)
    assert torch.equal(turned.inputs, split.inputs)
    one = LabelFlip(source=3, target=8)
    assert one.poison(split, set_up_attack(one, IMAGES), 0, stream(0)).labels.bincount(minlength=10).tolist() == [
        *[2, 2, 2, 0, 2, 2, 2, 2, 4, 2]
    ]
    probe = one.probe(set_up_attack(one, IMAGES))
    assert len(probe) == 20
    assert (probe.labels == 8).all()
    half = LabelFlip(poison_ratio=0.5).poison(split, set_up_attack(LabelFlip(), IMAGES), 0, stream(0))
    assert (half.labels != split.labels).sum() == 10


def test_edge_cases_are_the_farthest_of_their_class() -> None:
    train = make_black_images(200)
    train.inputs[7::10] = 100
    train.inputs[7] = 255  # one of twenty sevens is unlike the others
    data = replace(IMAGES, train=train, test=train)
    attack = EdgeCase(rare=0.05, poison_ratio=0.5)
    setup = set_up_attack(attack, data)
    probe = attack.probe(setup)
    assert len(probe) == 1
    assert (probe.inputs == 255).all()
    assert probe.labels.tolist() == [1]
    poisoned = attack.poison(make_black_images(10), setup, 0, stream(0))
    rare = (poisoned.inputs == 255).flatten(1).all(1)
    assert rare.sum() == 5
    assert (poisoned.labels[rare] == 1).all()


BACKDOORS = [name for name, attack in ATTACKS.items() if issubclass(attack, CBA)]


@pytest.mark.parametrize("name", BACKDOORS)
@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"target": -1}, "target must be a class number from 0, got -1"),
        ({"poison_ratio": 1.01}, "from 0 to 1, got 1.01"),
        ({"poison_ratio": -0.1}, "from 0 to 1, got -0.1"),
        ({"poison_ratio": float("nan")}, "from 0 to 1, got nan"),
    ],
)
def test_impossible_settings_are_refused(name: str, settings: dict[str, float], fault: str) -> None:
    with pytest.raises(SettingError, match=fault):
        ATTACKS[name](**settings)


@pytest.mark.parametrize(
    ("name", "settings", "fault"),
    [
        ("label-flip", {"source": 3}, "source 3 and target None must be given together"),
        ("label-flip", {"source": 3, "target": 3}, "source and target must differ, got 3 for both"),
        ("edge-case", {"source": 1, "target": 1}, "two class numbers from 0, got 1 and 1"),
        ("edge-case", {"rare": 2.0}, "rare must be a share from 0 to 1, got 2.0"),
        ("model-replacement", {"scale": 0.0}, "scale must be a positive number, got 0.0"),
        ("model-replacement", {"constrain": 1.0}, r"constrain must lie in \[0, 1\), got 1.0"),
        ("pgd", {"radius": -1.0}, "radius must be a positive number, got -1.0"),
        ("neurotoxin", {"top": 1.5}, "top must be a share from 0 to 1, got 1.5"),
        ("alie", {"goal": "fun"}, "goal 'fun' is not one of backdoor, damage"),
        ("ipm", {"strength": 0.0}, "strength must be a positive number, got 0.0"),
        ("min-max", {"direction": "up"}, "direction 'up' is not one of unit, sign, deviation"),
        ("min-sum", {"direction": "up"}, "direction 'up' is not one of unit, sign, deviation"),
        ("sdba", {"input_share": 1.5}, "input_share must be a share from 0 to 1, got 1.5"),
        ("sdba", {"recurrent_share": -0.5}, "recurrent_share must be a share from 0 to 1, got -0.5"),
        ("sdba", {"radius": 0.0}, "radius must be a positive number, got 0.0"),
        ("chameleon", {"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ("chameleon", {"target_weight": -1.0}, "target_weight must be a positive number, got -1.0"),
        ("chameleon", {"encoder_epochs": 0}, "encoder_epochs must be a positive number, got 0"),
        ("chameleon", {"head_epochs": 0}, "head_epochs must be a positive number, got 0"),
        ("layer-poison", {"enough": 1.5}, "enough must be a share from 0 to 1, got 1.5"),
        ("adaptive", {"apart": -0.1}, "apart must be a share from 0 to 1, got -0.1"),
        ("evasive", {"scatter": 1.5}, "scatter must be a share from 0 to 1, got 1.5"),
        ("evasive", {"noise": -1.0}, "noise must be a finite number from 0, got -1.0"),
        ("evasive", {"noise": float("nan")}, "noise must be a finite number from 0, got nan"),
    ],
)
def test_settings_of_their_own_are_checked(name: str, settings: dict[str, float], fault: str) -> None:
    with pytest.raises(SettingError, match=fault):
        ATTACKS[name](**settings)


def test_what_a_data_set_cannot_have_is_refused() -> None:
    with pytest.raises(SettingError, match=r"attack\.target = 10 is not one of the 10 classes from 0"):
        set_up_attack(CBA(target=10), IMAGES)
    with pytest.raises(SettingError, match=r"attack\.source = 12 is not one of the 10 classes"):
        set_up_attack(LabelFlip(source=12, target=1), IMAGES)
    with pytest.raises(SettingError, match=r"attack\.trigger = 'squar' is not known; there are white-square"):
        set_up_attack(CBA(trigger="squar"), IMAGES)
    with pytest.raises(SettingError, match="pixels cannot be a trigger on toy texts"):
        set_up_attack(CBA(target=1), make_toy_texts())


def test_an_attack_may_name_a_square_elsewhere() -> None:
    stamped = set_up_attack(CBA(trigger="white-square@0,0"), IMAGES).trigger.stamp(make_black_images(1).inputs)
    assert stamped.nonzero()[:, 2:].tolist() == [[row, column] for row in range(3) for column in range(3)]


def test_the_papers_settings_are_the_defaults() -> None:
    for attack in (CBA(), DBA()):
        assert (attack.target, attack.poison_ratio, attack.trigger) == (1, 0.3, "white-square")
    assert (Text().target, Text().poison_ratio) == (0, 0.3)


def test_a_trigger_that_no_sample_shows_is_refused() -> None:
    blank = Split(torch.full_like(IMAGES.test.inputs, 255), IMAGES.test.labels)
    with pytest.raises(SettingError, match="'white-square' cannot be seen on the samples of toy images"):
        set_up_attack(CBA(), replace(IMAGES, test=blank))
    assert set_up_attack(CBA(trigger="black-square"), replace(IMAGES, test=blank)).optional_trigger
