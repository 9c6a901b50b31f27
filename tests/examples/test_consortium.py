"""The learning task of the Flower and the NVFlare examples: one file, unequal sites, and what hostile ones send."""

import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
LICENSED = [*EXAMPLES.glob("flower/guarded/*.py"), *EXAMPLES.glob("nvflare/*.py")]
FLOWER = tomllib.loads((EXAMPLES / "flower" / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
SIZES = (40, 40, 40)
State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def task() -> ModuleType:
    """Import the examples' task."""
    spec = spec_from_file_location("consortium_task", EXAMPLES / "nvflare" / "task.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def start(task: ModuleType) -> State:
    return {name: tensor.clone() for name, tensor in task.Network(1).state_dict().items()}


def are_equal(one: State, other: State) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_both_examples_have_the_same_task() -> None:
    assert (EXAMPLES / "flower/guarded/task.py").read_bytes() == (EXAMPLES / "nvflare/task.py").read_bytes()


def test_both_examples_have_the_same_sites_94_fold() -> None:
    job = (EXAMPLES / "nvflare" / "job.py").read_text(encoding="utf-8")
    assert FLOWER["config"]["sizes"] in re.findall(r'"--sizes", default="([\d,]+)"', job)
    sizes = [int(size) for size in FLOWER["config"]["sizes"].split(",")]
    assert (len(sizes), max(sizes) // min(sizes)) == (8, 94)
    assert max(sizes) < FLOWER["config"]["max-examples"]


@pytest.mark.parametrize("file", LICENSED, ids=lambda file: file.name)
def test_every_file_has_the_licence(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# Copyright (c) 2026, the Snowball contributors.\n#\n# Licensed under the Apache License")


def test_sites_hold_different_images_and_as_many_as_they_should(task: ModuleType) -> None:
    consortium = task.Consortium((30, 5, 12))
    shares = [task.take_share(consortium, site) for site in (1, 2, 3)]
    assert [len(share) for share in shares] == [30, 5, 12]
    images = {bytes(image.numpy()) for share in shares for image in share.inputs}
    assert len(images) == 47


def test_too_many_images_are_refused(task: ModuleType) -> None:
    with pytest.raises(ValueError, match="the sites hold 12001 images, and there are 12000"):
        task.take_share(task.Consortium((12_000, 1)), 1)


def test_training_depends_on_seed_site_and_round_only(task: ModuleType, start: State) -> None:
    consortium = task.Consortium(SIZES)
    sent = consortium.train_site(2, 5, start)
    assert are_equal(sent, consortium.train_site(2, 5, start))
    others = [consortium.train_site(1, 5, start), consortium.train_site(2, 6, start)]
    others.append(task.Consortium(SIZES, seed=2).train_site(2, 5, start))
    assert not any(are_equal(sent, other) for other in others)


def test_hostile_sites_misbehave_and_others_do_not(task: ModuleType, start: State) -> None:
    honest = task.Consortium(SIZES).train_site(1, 1, start)
    sent = {
        name: task.Consortium(SIZES, (1,), name).train_site(1, 1, start) for name in task.BEHAVIOURS if name != "hang"
    }
    assert are_equal(sent["clean"], honest)
    assert not are_equal(sent["backdoor"], honest)
    for name, tensor in sent["scaled-backdoor"].items():
        torch.testing.assert_close(tensor - start[name], task.SCALE * (sent["backdoor"][name] - start[name]))
    assert all(tensor.isnan().all() for tensor in sent["nan"].values())
    assert sent["silent"] is None
    assert are_equal(task.Consortium(SIZES, (2,), "nan").train_site(1, 1, start), honest)


def test_the_first_model_depends_on_the_seed_and_knows_nothing(task: ModuleType, start: State) -> None:
    assert are_equal(start, task.Network(1).state_dict())
    assert not are_equal(start, task.Network(2).state_dict())
    measured = task.measure_model(start)
    assert set(measured) == {"main_accuracy", "backdoor_accuracy"}
    assert all(0 <= value < 0.4 for value in measured.values())
