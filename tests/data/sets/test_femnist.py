import json
import string
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from snowball.data import DATASETS, Dataset, load_dataset, locate_dataset
from snowball.data.io import leaf
from snowball.data.sets import femnist as module
from snowball.errors import DataError

Writers = Mapping[str, tuple[np.ndarray, np.ndarray]]


def toy(*counts: int, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Make writers f0, f1, ... with these numbers of images."""
    rng = np.random.default_rng(seed)
    return {
        f"f{number}": (rng.integers(0, 256, (count, 28, 28), dtype=np.uint8), rng.integers(0, 62, count))
        for number, count in enumerate(counts)
    }


def write_npz(path: Path, writers: Writers, **changes: np.ndarray) -> None:
    arrays = {
        "x": np.concatenate([images for images, _ in writers.values()]),
        "y": np.concatenate([labels for _, labels in writers.values()]),
        "writer": np.repeat(np.arange(len(writers)), [len(labels) for _, labels in writers.values()]),
        "writer_ids": np.array(list(writers)),
    }
    np.savez(path, **{**arrays, **changes})


def as_json(writers: Writers) -> dict[str, Any]:
    users = {
        name: {"x": (images.reshape(-1, 784) / 255).tolist(), "y": labels.tolist()}
        for name, (images, labels) in writers.items()
    }
    return {"users": list(users), "num_samples": [len(user["y"]) for user in users.values()], "user_data": users}


def write_json(path: Path, contents: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(contents if isinstance(contents, str) else json.dumps(contents))


def same(first: Dataset, second: Dataset) -> bool:
    pairs = zip((first.train, first.test), (second.train, second.test), strict=True)
    groups = first.groups is not None and second.groups is not None and torch.equal(first.groups, second.groups)
    return groups and all(torch.equal(a.inputs, b.inputs) and torch.equal(a.labels, b.labels) for a, b in pairs)


def test_writers_are_clients_and_a_tenth_of_each_is_for_testing(folder: Path) -> None:
    writers = toy(50, 49, 73, 1)
    write_npz(folder / "femnist.npz", writers)
    data = load_dataset("femnist")
    assert data.groups is not None
    assert data.groups.tolist() == [0] * 45 + [1] * 65
    assert (len(data.train), len(data.test)) == (110, 5 + 8)
    for number, name in enumerate(("f0", "f2")):
        images, labels = writers[name]
        own = [image.tobytes() for image in images]
        trained = [image.numpy().tobytes() for image in data.train.inputs[data.groups == number, 0]]
        tested = [image.numpy().tobytes() for image in data.test.inputs[:, 0]]
        assert sorted(trained + [each for each in tested if each in own]) == sorted(own)
        positions = [own.index(each) for each in trained]
        assert positions == sorted(positions)
        assert data.train.labels[data.groups == number].tolist() == labels[positions].tolist()
    assert data.provenance["writers"] == 2
    assert data.provenance["complete"] is False
    assert (data.classes, data.input_shape) == (62, (1, 28, 28))


def test_letters_are_those_of_femnist_with_capitals_and_small_ones_in_one_class(folder: Path) -> None:
    writers = toy(80, 60, 90)
    writers["f1"] = (writers["f1"][0], np.arange(60) % 10)  # who wrote digits alone
    write_npz(folder / "femnist.npz", writers)
    whole, letters = load_dataset("femnist"), load_dataset("letters")
    assert (letters.name, letters.classes, letters.input_shape) == ("letters", 26, (1, 28, 28))
    for name in ("train", "test"):
        given, own = getattr(whole, name), getattr(letters, name)
        kept = [number for number, label in enumerate(given.labels.tolist()) if label >= 10]
        assert torch.equal(own.inputs, given.inputs[kept])
        glyphs = string.digits + string.ascii_uppercase + string.ascii_lowercase
        expected = [string.ascii_uppercase.index(glyphs[label].upper()) for label in given.labels[kept].tolist()]
        assert own.labels.tolist() == expected
    assert whole.groups is not None
    assert letters.groups is not None
    kept_writers = whole.groups[whole.train.labels >= 10]
    assert letters.groups.tolist() == [{0: 0, 2: 1}[writer] for writer in kept_writers.tolist()]
    assert letters.provenance["writers"] == 2
    assert letters.provenance["sha256"] != whole.provenance["sha256"]


def test_a_copy_without_letters_is_refused(folder: Path) -> None:
    write_npz(folder / "femnist.npz", {"f0": (toy(60)["f0"][0], np.arange(60) % 10)})
    assert load_dataset("femnist").classes == 62
    with pytest.raises(DataError, match=r"femnist\.npz has no letters to train on or to test with"):
        load_dataset("letters")


def test_the_letters_have_a_place_of_their_own_in_no_folder(folder: Path) -> None:
    with pytest.raises(DataError, match=r"^letters is not on this machine, .* into \$SNOWBALL_DATA/femnist or "):
        load_dataset("letters")
    assert locate_dataset("letters") is None


def test_the_tenth_is_a_random_one_and_always_the_same(folder: Path) -> None:
    writers = {name: (images, np.arange(60)) for name, (images, _) in toy(60, 60).items()}
    write_npz(folder / "femnist.npz", writers)
    first = load_dataset("femnist")
    own, other = first.test.labels[:6].tolist(), first.test.labels[6:].tolist()
    assert own != other
    assert own != list(range(54, 60))
    more = {"a": toy(80)["f0"], **writers}
    write_npz(folder / "femnist.npz", more)
    assert load_dataset("femnist").test.labels[8:14].tolist() == own  # whoever else is there


def test_leafs_files_give_the_same_data_as_an_archive(folder: Path) -> None:
    writers = toy(52, 50, 61)
    write_npz(folder / "femnist.npz", writers)
    expected = load_dataset("femnist")
    (folder / "femnist.npz").unlink()
    write_json(folder / "femnist" / "all_data_1.json", as_json({"f0": writers["f0"]}))
    write_json(folder / "femnist" / "all_data_0.json", as_json({"f2": writers["f2"], "f1": writers["f1"]}))
    assert same(load_dataset("femnist"), expected)
    assert load_dataset("femnist").provenance["file"] == "femnist"
    assert load_dataset("femnist").provenance["sha256"] == expected.provenance["sha256"]
    divided = folder / "femnist" / "data"
    for file in (folder / "femnist").glob("*.json"):
        file.unlink()
    start, end = ({name: (a[part], b[part]) for name, (a, b) in writers.items()} for part in (np.s_[:40], np.s_[40:]))
    write_json(divided / "train" / "a_train_9.json", as_json(start))
    assert locate_dataset("femnist") is None  # only a part of it
    write_json(divided / "test" / "a_test_9.json", as_json(end))
    assert same(load_dataset("femnist"), expected)


def test_files_are_parsed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(folder / "femnist" / "all_data" / "all_data_0.json", as_json(toy(50)))
    first = load_dataset("femnist")
    with monkeypatch.context() as patched:
        patched.setattr(module, "read_writers", lambda *_: pytest.fail("it was parsed again"))
        assert same(load_dataset("femnist"), first)
    write_json(folder / "femnist" / "all_data" / "all_data_0.json", as_json(toy(50, seed=1)))
    assert not same(load_dataset("femnist"), first)


def test_the_complete_set_is_known_by_its_counts_and_keeps_every_writer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(folder / "femnist.npz", toy(50, 3))
    monkeypatch.setattr(module, "COMPLETE_SIZE", (2, 53))
    data = load_dataset("femnist")
    assert data.provenance["complete"] is True
    assert data.provenance["writers"] == 2
    assert (len(data.train), len(data.test)) == (47, 6)


def test_paper_is_white_and_ink_far_below_zero(folder: Path) -> None:
    write_npz(folder / "femnist.npz", toy(50))
    pixels = load_dataset("femnist").normalise(torch.tensor([[[[255, 0]]]], dtype=torch.uint8)).flatten()
    assert pixels.tolist() == pytest.approx([0.2342, -6.2174], abs=1e-4)


def test_what_is_missing_says_what_to_put_where(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset("femnist")
    assert str(caught.value) == (
        "femnist is not on this machine, and it cannot be downloaded ready to use: put femnist.npz or the JSON files "
        "that https://github.com/TalwalkarLab/leaf makes into "
        f"$SNOWBALL_DATA/femnist or {tmp_path}/cache/snowball/femnist"
    )
    assert DATASETS["femnist"].needs in str(caught.value)


@pytest.mark.parametrize(
    ("key", "array", "fault"),
    [
        ("x", np.zeros((50, 28, 27), np.uint8), r"x is uint8 \(50, 28, 27\), not uint8 \(n, 28, 28\)"),
        ("y", np.full(50, 62), "y runs from 62 to 62, not within 0 to 61"),
        ("writer", np.full(50, 1), "writer runs from 1 to 1, not within 0 to 0"),
        ("writer", np.zeros(49, int), r"writer is int64 \(49,\)"),
        ("writer_ids", np.array(["a", "b"]), "writer 'b' has no images"),
        ("writer_ids", np.array(["a", "a"]), "writer_ids is not a list of distinct names"),
        ("x", np.zeros((), np.uint8), r"x is uint8 \(\)"),
        ("writer_ids", np.array(["\ud800"]), ".*surrogates not allowed"),
        ("writer_ids", np.array([1]), "writer_ids is not a list of distinct names"),
    ],
)
def test_an_archive_of_something_else_is_refused(folder: Path, key: str, array: np.ndarray, fault: str) -> None:
    write_npz(folder / "femnist.npz", toy(50), **{key: array})
    with pytest.raises(DataError, match=rf"femnist\.npz is corrupt: {fault}"):
        load_dataset("femnist")


def test_too_little_of_every_writer_is_refused(folder: Path) -> None:
    write_npz(folder / "femnist.npz", toy(49, 2))
    with pytest.raises(DataError, match=r"femnist\.npz is too small: none of its 2 writers has 50 images"):
        load_dataset("femnist")


def user(x: Any, y: Any) -> dict[str, Any]:
    return {"user_data": {"w": {"x": x, "y": y}}}


@pytest.mark.parametrize(
    ("contents", "fault"),
    [
        (user([], []), "writer 'w' has no images"),
        (user([[0.5] * 784, [0.5] * 783], [1, 2]), "writer 'w' has an image of 783 numbers, not 784"),
        (user([[0.5] * 783], [1]), "writer 'w' has an image of 783 numbers, not 784"),
        (user([[1.5] * 784], [1]), "writer 'w' has pixels from 1.5 to 1.5, not within 0 to 1"),
        (user([[float("nan")] * 784], [1]), "writer 'w' has pixels from nan to nan"),
        (user([["ink"] * 784], [1]), "writer 'w' could not convert string to float"),
        (user([[0.5] * 784], [62]), "writer 'w' has a y that runs from 62 to 62, not within 0 to 61"),
        (user([[0.5] * 784], [0.5]), r"writer 'w' has a y that is float64 \(1,\), not integers \(1,\)"),
        (user([[0.5] * 784], [1, 2]), r"writer 'w' has a y that is int64 \(2,\), not integers \(1,\)"),
        (user([[0.5] * 784], None), "writer 'w' has a y that is object"),
        (user(5, [1]), "writer 'w' Expecting '\\['"),
        ({"user_data": {"w": {"x": [[0.5] * 784]}}}, "writer 'w' has no x and y"),
        ({"user_data": {"\ud800": {"x": [[0.5] * 784], "y": [1]}}}, "surrogates not allowed"),
        ({"user_data": {}}, "its user_data has no writers"),
        ({"users": []}, "its user_data has no writers"),
        ([1, 2], "its user_data has no writers"),
        ({"user_data": [1]}, "its user_data has no writers"),
        ('{"user_data": {"w": {"x": [[0.5, 0.', "Expecting"),
        ("[" * 100_000, "its user_data has no writers"),
        ("", "its user_data has no writers"),
    ],
)
def test_a_file_of_something_else_is_refused(folder: Path, contents: Any, fault: str) -> None:
    write_json(folder / "femnist" / "all_data_0.json", contents)
    with pytest.raises(DataError, match=rf"all_data_0\.json is corrupt: .*{fault}") as caught:
        load_dataset("femnist")
    assert "\n" not in str(caught.value)


def test_a_file_past_all_measure_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(folder / "femnist" / "all_data_0.json", as_json(toy(50)))
    monkeypatch.setattr(leaf, "MAX_FILE_BYTES", 1000)
    with pytest.raises(DataError, match="more than the limit of 1000 bytes"):
        load_dataset("femnist")


def test_the_real_thing() -> None:
    if not locate_dataset("femnist"):
        pytest.skip("femnist is neither in $SNOWBALL_DATA nor in the cache")
    data = load_dataset("femnist")
    assert data.groups is not None
    sizes = data.groups.bincount()
    assert len(sizes) == data.provenance["writers"] >= 391
    assert data.provenance["complete"] or sizes.min() >= 45
    assert data.train.labels.unique().tolist() == list(range(62))
    assert data.normalise(data.train.inputs[:20_000]).mean().item() == pytest.approx(0, abs=0.05)
    assert len(data.test) / (len(data.train) + len(data.test)) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("piece", ["[]", "{}", "0.5", '"a"'])
def test_a_file_takes_little_more_memory_than_its_images(folder: Path, piece: str) -> None:
    path = folder / "all_data_0.json"
    path.write_text(f'{{"user_data": {{"w": {{"y": [1], "x": [{",".join([piece] * 500_000)}]}}}}}}')
    tracemalloc.start()
    with pytest.raises(DataError, match=r"all_data_0\.json is corrupt: writer 'w'"):
        leaf.read_writers([path], 62)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 2**20  # chunks and one piece; all pieces as objects take 30 MB and more
