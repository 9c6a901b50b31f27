import gzip
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snowball.data.io import vectors as module
from snowball.data.io.vectors import find_vectors, read_vectors
from snowball.errors import DataError

WORDS = ["the", "good", "bd", "schön", "odd"]
TABLE = np.array([[0.5, -1, 2], [1, 1, 1], [0.25, 0, 0], [3, 4, 5], [9, 9, 9]], np.float32)
WANTED = {"good", "schön", "the", "absent"}


def text(words: list[str] = WORDS, table: np.ndarray = TABLE) -> bytes:
    return "".join(
        f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, table.tolist(), strict=True)
    ).encode()


def binary(end: bytes = b"", count: int = 5) -> bytes:
    rows = [word.encode() + b" " + row.astype("<f4").tobytes() + end for word, row in zip(WORDS, TABLE, strict=True)]
    return f"{count} 3\n".encode() + b"".join(rows)


def write(path: Path) -> Path:
    """Write the same vectors in the format that the file name indicates."""
    if path.suffix == ".npz":
        np.savez(path, words=np.array(WORDS), vectors=TABLE.astype(np.float16))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("glove.50d.txt", text())
            archive.writestr("glove.100d.txt", b"x")
    else:
        data = binary() if ".bin" in path.name else text()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


NAMES = ["glove_3d.npz", "glove.txt", "glove.txt.gz", "glove.zip", "my-vectors.bin", "my-vectors.bin.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_every_form_gives_the_wanted_vectors_in_the_order_of_the_file(tmp_path: Path, name: str) -> None:
    words, table = read_vectors(write(tmp_path / name), WANTED)
    assert words == ["the", "good", "schön"]
    assert table.dtype == np.float32
    assert np.array_equal(table, TABLE[[0, 1, 3]])


def test_a_first_line_that_counts_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"5 3\n" + text())
    assert np.array_equal(read_vectors(path, WANTED)[1], TABLE[[0, 1, 3]])


def test_binary_vectors_may_end_in_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "vectors.bin"
    path.write_bytes(binary(end=b"\n"))
    assert np.array_equal(read_vectors(path, WANTED)[1], TABLE[[0, 1, 3]])


def test_binary_vectors_are_found_across_the_pieces_that_a_file_is_read_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((300, 7)).astype(np.float32)
    words = [f"{'w' * int(rng.integers(1, 9))}{number}" for number in range(300)]
    path = tmp_path / "vectors.bin"
    rows = [word.encode() + b" " + row.tobytes() for word, row in zip(words, table, strict=True)]
    path.write_bytes(b"300 7\n" + b"".join(rows))
    monkeypatch.setattr(module, "CHUNK_BYTES", 64)
    monkeypatch.setattr(module, "MAX_WORD_BYTES", 16)
    found, vectors = read_vectors(path, set(words))
    assert found == words
    assert np.array_equal(vectors, table)


def test_the_first_of_two_vectors_counts_and_words_with_blanks_do_not(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"the 1 2 3\ngood morning 7 7 7\ngood 4 5 6\nthe 9 9 9\n")
    words, table = read_vectors(path, WANTED)
    assert words == ["the", "good"]
    assert table.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("name", "data", "fault"),
    [
        ("a.txt", text() + b"good 1 2\nthe 1 2\n", "line 6 has 2 numbers, not 3"),
        ("a.txt", b"good 1 2\nthe 1 2 -3e-05\n", "line 2 has 3 numbers, not 2"),
        ("a.txt", b"the 1 2 x\n", "could not convert string to float"),
        ("a.txt", b"the 1 2 inf\n", "the vector of 'the' is not finite"),
        ("a.txt", b"some 1 2 3\n", "it has none of the 4 wanted words"),
        ("a.txt", b"", "it has none of the 4 wanted words"),
        ("a.txt.gz", gzip.compress(text(), mtime=0)[:-9], "end-of-stream"),
        ("a.zip", b"PK", "not a zip file"),
        ("a.bin", binary()[:-1], "it ends or is garbled after 4 of the 5 words"),
        ("a.bin", binary(count=6), "it ends or is garbled after 5 of the 6 words"),
        ("a.bin", binary(count=10**15), "it ends or is garbled after 5 of the 1000000000000000 words"),
        ("a.bin", b"5 3\n" + b"w" * 5000, "it ends or is garbled after 0 of the 5 words"),
        ("a.bin", b"5 1000000000\nthe ", "vectors of 1000000000 numbers, not within 1 to 16384"),
        ("a.bin", b"5 0\n", "vectors of 0 numbers"),
        ("a.bin", b"what is this\n", "it starts with b'what is this.*, not with the number of words"),
        ("a.bin", b"1 3\nthe " + struct.pack("<3f", 1, float("nan"), 1), "the vector of 'the' is not finite"),
        ("a.npz", b"PK", "not a zip file"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, data: bytes, fault: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError, match=fault) as caught:
        read_vectors(path, WANTED)
    assert str(caught.value).startswith(f"{path} is corrupt: ")


@pytest.mark.parametrize(
    "arrays",
    [
        {"words": np.array(WORDS), "vectors": TABLE[:4]},
        {"words": np.array(WORDS), "vectors": TABLE[:, 0]},
        {"words": np.array(WORDS), "vectors": TABLE.astype(int)},
        {"words": np.arange(5), "vectors": TABLE},
        {"words": np.array([WORDS]), "vectors": TABLE[None]},
    ],
)
def test_arrays_that_do_not_pair_up_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=r"words is .* and vectors "):
        read_vectors(tmp_path / "a.npz", WANTED)


def test_an_archive_without_a_text_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.md", b"")
    with pytest.raises(DataError, match=r"no item named '\*\.txt'"):
        read_vectors(tmp_path / "a.zip", WANTED)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAM_BYTES", 10_000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text() * 1000))
    with pytest.raises(DataError, match="more than the limit of 10000 bytes"):
        read_vectors(tmp_path / "a.txt.gz", WANTED)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(["a.bin", "a.txt"]), st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    contents = bytearray(binary() if name == "a.bin" else text())
    contents[data.draw(st.integers(0, len(contents) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / name).write_bytes(contents[: data.draw(st.integers(0, len(contents)))])
    with suppress(DataError):
        words, table = read_vectors(tmp_path / name, WANTED)
        assert set(words) <= WANTED
        assert np.isfinite(table).all()


def test_the_file_that_is_named_comes_before_what_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_vectors() is None
    cached = folder.parent / "cache" / "snowball" / "sent140"
    cached.mkdir(parents=True)
    order = [write(cached / "glove.txt")]
    order += [write(folder / name) for name in ("glove.zip", "glove.6B.50d.txt", "glove_50d.npz")]
    order += [write(folder / "GoogleNews-vectors-negative300.bin"), write(folder / "mine.bin")]
    (folder / "data_batch_1.bin").write_bytes(b"of another set")
    monkeypatch.setenv("SNOWBALL_VECTORS", str(order[-1]))
    while order:
        assert find_vectors() == order[-1]
        order.pop().unlink()
        monkeypatch.delenv("SNOWBALL_VECTORS", raising=False)
    monkeypatch.setenv("SNOWBALL_VECTORS", "nowhere.bin")
    with pytest.raises(DataError, match=r"SNOWBALL_VECTORS is 'nowhere\.bin', which is not a file"):
        find_vectors()
