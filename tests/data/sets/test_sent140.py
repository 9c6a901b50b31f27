import csv
import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from snowball.data import TextDataset, load_dataset, locate_dataset
from snowball.data.io import formats as files
from snowball.data.sets import sent140 as module
from snowball.data.sets.sent140 import ARCHIVE, ORIGINAL, SENT140, SENT140_USERS, TEST_FILE
from snowball.data.triggers import TRIGGERS
from snowball.errors import DataError, SettingError

TRAIN = [("1", "ann", "what a Good day"), ("0", "bob", "bad, bad day"), ("1", "ann", "caf\u00e9 & \u00bd day")]
TEST = [("0", "x", "bad"), ("2", "y", "a day"), ("1", "z", "good")]

Rows = Sequence[tuple[str, str, str]]


@pytest.fixture
def vectors(folder: Path) -> Path:
    words = ["a", "good", "day", "bad", "bd", "unused"]
    np.savez(folder / "glove_2d.npz", words=np.array(words), vectors=np.arange(1, 13).reshape(6, 2).astype(np.float16))
    return folder / "glove_2d.npz"


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
    return stream.getvalue()


def original(rows: Rows) -> bytes:
    """Write a file as published: latin-1, six columns without names, labels 0, 2 and 4, and escaped characters."""
    fields = [
        ({"1": "4"}.get(label, label), "1", "Mon Apr 06", "NO_QUERY", user, text.replace("&", "&amp;"))
        for label, user, text in rows
    ]
    return as_csv(fields).encode("latin-1")


def write_plain(folder: Path, train: Rows = TRAIN, test: Rows = TEST) -> None:
    for name, rows in ((SENT140.file, train), (TEST_FILE, test)):
        fields = [("label", "text"), *((label, text) for label, _, text in rows)]
        (folder / name).write_bytes(gzip.compress(as_csv(fields).encode()))


def write_users(folder: Path, train: Rows = TRAIN) -> None:
    write_plain(folder)
    rows = [("label", "user", "text"), *train]
    (folder / SENT140_USERS.file).write_bytes(gzip.compress(as_csv(rows).encode()))


def write_original(folder: Path, train: Rows = TRAIN, test: Rows = TEST) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(ORIGINAL, (train, test), strict=True):
        (folder / name).write_bytes(original(rows))


def write_zip(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in zip(ORIGINAL, (TRAIN, TEST), strict=True):
            archive.writestr(name, original(rows))


def texts(name: str) -> TextDataset:
    data = load_dataset(name)
    assert isinstance(data, TextDataset)
    return data


def test_tweets_become_numbers_of_words(folder: Path, vectors: Path) -> None:
    write_plain(folder)
    data = texts("sent140")
    assert [data.vocabulary.decode(sample) for sample in data.train.inputs] == [
        "? a good day",
        "bad bad day",
        "? ? day",
    ]
    assert data.train.labels.tolist() == [1, 0, 1]
    assert [data.vocabulary.decode(sample) for sample in data.test.inputs] == ["bad", "good"]  # neutral ones are out
    assert data.test.labels.tolist() == [0, 1]
    assert (data.train.inputs.shape, data.train.inputs.dtype) == ((3, 25), torch.int32)
    assert data.train.labels.dtype == torch.int64
    assert (data.classes, data.input_shape, data.groups) == (2, (25, 2), None)
    assert data.normalise(data.train.inputs)[1, :3].tolist() == [[7, 8], [7, 8], [5, 6]]
    assert data.vocabulary.words == ("", "a", "good", "day", "bad", "bd")


def test_the_trigger_is_put_where_a_tweet_ends_also_behind_words_without_a_vector(folder: Path, vectors: Path) -> None:
    write_plain(folder, [("1", "ann", "a good dayyy"), ("0", "bob", "what caf\u00e9")], TEST)
    data = texts("sent140")
    stamped = TRIGGERS["word"].make(data).stamp(data.train.inputs)
    assert [data.vocabulary.decode(sample) for sample in stamped] == ["a good bd", "? bd"]


def test_the_tokeniser_is_a_choice_and_each_is_parsed_of_its_own(folder: Path, vectors: Path) -> None:
    write_plain(folder, [("1", "ann", "good...day"), ("0", "bob", "@day &amp; bad"), ("0", "bob", "bad")])
    for _ in range(2):  # the second time they come from the cache
        ours, published = load_dataset("sent140"), load_dataset("sent140", "published")
        assert isinstance(ours, TextDataset)
        assert isinstance(published, TextDataset)
        assert [ours.vocabulary.decode(sample) for sample in ours.train.inputs] == ["good day", "? bad", "bad"]
        assert [published.vocabulary.decode(sample) for sample in published.train.inputs] == ["?", "day ? bad", "bad"]


def test_images_have_no_tokeniser() -> None:
    with pytest.raises(SettingError, match=r"data\.tokeniser = 'published' does not fit: mnist-sample has no texts"):
        load_dataset("mnist-sample", "published")


def test_the_record_says_which_tweets_and_which_vectors(folder: Path, vectors: Path) -> None:
    write_plain(folder)
    record = dict(load_dataset("sent140").provenance)
    assert len(str(record.pop("sha256"))) == 64
    assert record == {
        "source": "folder",
        "file": "sent140_300k.csv.gz",
        "complete": False,
        "train": 3,
        "test": 2,
        "vectors": "glove_2d.npz",
        "vectors_sha256": hashlib.sha256(vectors.read_bytes()).hexdigest(),
        "vector_width": 2,
        "words": 5,
        "words_found": 0.7,  # what, café and ½ of ten have no vector
    }


def test_every_form_gives_the_same_tweets(folder: Path, vectors: Path) -> None:
    write_users(folder)
    found = [texts("sent140"), texts("sent140-users")]
    write_original(folder / "sent140")
    (folder / SENT140.file).unlink()
    (folder / SENT140_USERS.file).unlink()
    found += [texts("sent140"), texts("sent140-users")]
    write_zip(folder / ARCHIVE)
    found += [texts("sent140"), texts("sent140-users")]
    assert len({data.provenance["sha256"] for data in found}) == 1
    assert [data.provenance["file"] for data in found[::2]] == [SENT140.file, ORIGINAL[0], ARCHIVE]
    groups = [None if data.groups is None else data.groups.tolist() for data in found]
    assert groups == [None] + [[0, 1, 0]] * 5  # the original says who wrote what
    assert len(list((folder.parent / "cache" / "snowball" / "parsed").iterdir())) == 4  # the original is parsed once


def test_the_complete_set_is_known_by_its_counts(folder: Path, vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plain(folder)
    monkeypatch.setattr(module, "COMPLETE_SIZE", (3, 2))
    assert load_dataset("sent140").provenance["complete"] is True


def test_tweets_are_parsed_once_for_the_same_vectors(
    folder: Path, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plain(folder)
    first = texts("sent140")
    with monkeypatch.context() as patched:
        patched.setattr(module, "read_tweets", lambda *_: pytest.fail("they were parsed again"))
        again = texts("sent140")
    assert again.provenance == first.provenance
    assert again.vocabulary.words == first.vocabulary.words
    assert torch.equal(again.vocabulary.vectors, first.vocabulary.vectors)
    other = folder.parent / "other.txt"
    other.write_text("bad 1 2 3\nBD 4 5 6\n")
    monkeypatch.setenv("SNOWBALL_VECTORS", str(other))
    changed = texts("sent140")
    assert changed.input_shape == (25, 3)
    assert changed.provenance["vectors"] == "other.txt"
    assert changed.provenance["words_found"] == 0.2


def test_a_download_is_kept_for_the_next_time(
    serve: Callable[[Path], str], folder: Path, vectors: Path, tmp_path: Path
) -> None:
    write_zip(tmp_path / "served" / ARCHIVE)
    sha256 = hashlib.sha256((tmp_path / "served" / ARCHIVE).read_bytes()).hexdigest()
    served = replace(SENT140, home=serve(tmp_path / "served"), sha256=sha256)
    assert served.load().provenance["source"] == "download"
    assert replace(SENT140_USERS, home="http://127.0.0.1:1/").load().provenance["source"] == "cache"


def test_what_is_missing_says_what_to_put_where(folder: Path, tmp_path: Path) -> None:
    write_plain(folder)
    assert locate_dataset("sent140") is None
    with pytest.raises(
        DataError, match=r"sent140 is not on this machine, and there are no word vectors: put .*glove"
    ) as caught:
        load_dataset("sent140")
    assert f"into $SNOWBALL_DATA/sent140 or {tmp_path}/cache/snowball/sent140" in str(caught.value)
    (folder / "glove.txt").write_text("bd 1 2\nday 1 2\n")
    assert locate_dataset("sent140") is not None
    with pytest.raises(
        DataError, match=r"sent140-users is not on .* cannot be downloaded .*: put trainingandtest"
    ) as caught:
        replace(SENT140_USERS, home="http://127.0.0.1:1/").load()
    assert "into $SNOWBALL_DATA/sent140 or" in str(caught.value)


def test_vectors_without_the_trigger_are_refused(folder: Path) -> None:
    write_plain(folder)
    (folder / "glove.txt").write_text("good 1 2\nday 1 2\n")
    with pytest.raises(DataError, match=r"glove\.txt has no vector for the trigger word 'BD'"):
        load_dataset("sent140")


def test_a_copy_that_does_not_say_who_wrote_what_has_no_users(folder: Path, vectors: Path) -> None:
    write_plain(folder)
    (folder / SENT140.file).rename(folder / SENT140_USERS.file)
    with pytest.raises(DataError, match=r"users_87k\.csv\.gz is corrupt: it has no user names"):
        load_dataset("sent140-users")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("label,text\n0,a\n3,b\n", "line 3 has the label '3', not one of 0, 2, 1"),
        ("label,text\n0,a\n1,b,c\n", "line 3 has 3 columns, not 2"),
        ("label,text\n0\n", "line 2 has 1 columns, not 2"),
        ("label,user,text\n0,,a\n", "line 2 has no user"),
        ("label,text\n2,a\n", "it has no positive or negative tweets"),
        ("label,text\n", "it has no positive or negative tweets"),
        ("", "its first line does not name a label and a text"),
        ("label,words\n0,a\n", "its first line does not name a label and a text"),
        ('label,text\n0,"' + "a" * 200_000 + '"\n', "field larger than field limit"),
    ],
)
def test_a_file_of_something_else_is_refused(folder: Path, vectors: Path, text: str, fault: str) -> None:
    write_plain(folder)
    (folder / SENT140.file).write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match=fault) as caught:
        load_dataset("sent140")
    assert str(caught.value).startswith(f"{folder / SENT140.file} is corrupt: ")


def test_bytes_that_are_no_text_are_refused(folder: Path, vectors: Path) -> None:
    write_plain(folder)
    (folder / SENT140.file).write_bytes(gzip.compress(b"label,text\n0,\xff\n"))
    with pytest.raises(DataError, match="can't decode byte 0xff"):
        load_dataset("sent140")
    good = gzip.compress(as_csv([("label", "text"), ("0", "day")]).encode())
    (folder / SENT140.file).write_bytes(good[:-9])
    with pytest.raises(DataError, match=r"csv\.gz is corrupt: .*ended before the end-of-stream"):
        load_dataset("sent140")


def test_an_original_file_of_something_else_is_refused(folder: Path, vectors: Path) -> None:
    write_original(folder, train=[("1", "ann", "day"), ("3", "bob", "day")])
    with pytest.raises(DataError, match=r"noemoticon\.csv is corrupt: line 2 has the label '3', not one of 0, 2, 4"):
        load_dataset("sent140")
    write_original(folder, test=[("2", "ann", "day")])
    with pytest.raises(DataError, match=r"2009\.06\.14\.csv is corrupt: it has no positive or negative tweets"):
        load_dataset("sent140")
    with zipfile.ZipFile(folder / ARCHIVE, "w") as archive:
        archive.writestr(ORIGINAL[0], original(TRAIN))
    with pytest.raises(DataError, match=r"no item named 'testdata\.manual"):
        load_dataset("sent140")


def test_a_bomb_is_not_unpacked(folder: Path, vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plain(folder, train=TRAIN * 1000)
    with monkeypatch.context() as patched:
        patched.setattr(module, "MAX_TWEETS", 2999)
        with pytest.raises(DataError, match="it has more than the limit of 2999 tweets"):
            load_dataset("sent140")
    with monkeypatch.context() as patched:
        patched.setattr(files, "MAX_UNPACKED_BYTES", 10_000)
        with pytest.raises(DataError, match="more than the limit of 10000 bytes"):
            load_dataset("sent140")
    assert len(load_dataset("sent140").train) == 3000


@pytest.mark.parametrize("name", ["sent140", "sent140-users"])
def test_the_real_thing(name: str) -> None:
    if not locate_dataset(name):
        pytest.skip(f"{name} is neither in $SNOWBALL_DATA nor in the cache")
    data = texts(name)
    assert data.test.labels.bincount().tolist() == [177, 182]
    assert len(data.train) >= 80_000
    assert data.train.labels.float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert data.provenance["complete"] is (len(data.train) == 1_600_000)
    assert 0.9 < float(data.provenance["words_found"]) < 1
    assert data.vocabulary.vectors[data.vocabulary.find_number("BD")].any()
    assert not data.vocabulary.vectors[0].any()
    if name == "sent140-users":
        assert data.groups is not None
        assert data.groups.max() + 1 == len(data.groups.unique()) > 70_000
