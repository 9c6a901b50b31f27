import gzip
import hashlib
import io
import pickle
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snowball.data.io import formats as files
from snowball.data.io.formats import open_unpacked, parse_idx, read_idx, read_npz
from snowball.errors import DataError


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def member(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)


def header(kind: str, shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue()


CUBE = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
GOOD_IDX, GOOD_NPZ = idx(CUBE), npz(a=CUBE, b=np.arange(2))


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_idx_files_are_read_plain_and_compressed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(GOOD_IDX) if name.endswith(".gz") else GOOD_IDX)
    assert np.array_equal(read_idx(path, 3), CUBE)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "starts with"),
        (GOOD_IDX[:9], "ends after 9 of the 16 bytes"),
        (GOOD_IDX[:-1], "promises 24 bytes, 23 follow"),
        (GOOD_IDX + b"\0", "promises 24 bytes, 25 follow"),
        (idx(CUBE[0]), "starts with 00000802"),
        (bytes([0, 0, 13, 3]) + GOOD_IDX[4:], "starts with 00000d03"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "promises 79228162458924105385300197375 bytes"),
    ],
)
def test_a_broken_idx_file_is_named_with_its_checksum(tmp_path: Path, data: bytes, fault: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(data)
    with pytest.raises(DataError, match=fault) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)
    assert hashlib.sha256(data).hexdigest() in str(caught.value)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(GOOD_IDX)[:-9])
    with pytest.raises(DataError, match="ended before the end-of-stream"):
        read_idx(path, 3)


def test_unpacking_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", 1000)
    bomb = np.zeros((10, 10, 10), np.uint8)
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx(bomb)))
    (tmp_path / "a.npz").write_bytes(npz(a=bomb))
    with pytest.raises(DataError, match="more than the limit of 1000 bytes"):
        read_idx(tmp_path / "images.gz", 3)
    with pytest.raises(DataError, match="unpacks to 1128 bytes, the limit is 1000"):
        read_npz(tmp_path / "a.npz", ["a"])


def test_a_limit_of_its_own_goes_before_the_common_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", 100)
    (tmp_path / "a.npz").write_bytes(npz(a=CUBE))
    assert np.array_equal(read_npz(tmp_path / "a.npz", ["a"], limit=1000)[0], CUBE)
    (tmp_path / "a.zip").write_bytes(npz(a=CUBE))
    with open_unpacked(tmp_path / "a.zip", 1000, "a.npy") as stream:
        assert len(stream.read()) == 152
    with (
        pytest.raises(ValueError, match="more than the limit of 100 bytes"),
        open_unpacked(tmp_path / "a.npz") as stream,
    ):
        stream.read()


def test_bytes_that_do_not_fit_the_checksum_of_the_archive_are_refused(tmp_path: Path) -> None:
    member(tmp_path / "a.npz", "a.npy", header("|u1", (8,)) + b"contents")
    data = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(data.replace(b"contents", b"damaged!"))
    with pytest.raises(DataError, match="Bad CRC-32"):
        read_npz(tmp_path / "a.npz", ["a"])


def test_archives_give_the_arrays_asked_for_in_that_order(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(GOOD_NPZ)
    second, first = read_npz(path, ["b", "a"])
    assert np.array_equal(first, CUBE)
    assert second.tolist() == [0, 1]


def test_arrays_stored_by_column_come_out_by_row(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(npz(a=np.asfortranarray(CUBE)))
    (array,) = read_npz(tmp_path / "a.npz", ["a"])
    assert np.array_equal(array, CUBE)
    assert array.flags.c_contiguous


def test_an_archive_without_a_key_says_which_and_what_a_good_one_sums_to(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(GOOD_NPZ)
    with pytest.raises(DataError, match=r"no item named 'c.npy'") as caught:
        read_npz(path, ["c"], expected="0123abcd")
    assert "a good copy has 0123abcd" in str(caught.value)
    assert hashlib.sha256(GOOD_NPZ).hexdigest() in str(caught.value)


def test_a_header_that_promises_more_than_there_is_allocates_nothing(tmp_path: Path) -> None:
    member(tmp_path / "a.npz", "a.npy", header("|u1", (1 << 50,)) + b"\0" * 8)
    with pytest.raises(DataError, match="promises 1125899906842624 bytes, 8 follow"):
        read_npz(tmp_path / "a.npz", ["a"])


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.mkdir, (tmp_path / "sprung",)

    trap = pickle.dumps(Trap())
    count = -(-len(trap) // 8)  # as many pointers as fill the bytes, so that the size is no reason to refuse
    member(tmp_path / "a.npz", "a.npy", header("|O", (count,)) + trap.ljust(8 * count))
    with pytest.raises(DataError, match="a holds Python objects, which are never unpickled"):
        read_npz(tmp_path / "a.npz", ["a"])
    assert not (tmp_path / "sprung").exists()


def test_a_file_that_cannot_be_opened_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(tmp_path / "absent.npz", ["a"])


FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@FUZZ
@given(position=st.integers(0, len(GOOD_NPZ) - 1), value=st.integers(0, 255), kept=st.integers(0, len(GOOD_NPZ)))
def test_a_damaged_archive_is_read_or_refused(tmp_path: Path, position: int, value: int, kept: int) -> None:
    data = bytearray(GOOD_NPZ)
    data[position] = value
    for damaged in (data, data[:kept]):
        path = tmp_path / "a.npz"
        path.write_bytes(damaged)
        with suppress(DataError):
            read_npz(path, ["a", "b"])


@FUZZ
@given(position=st.integers(0, 127), value=st.integers(0, 255))
def test_a_damaged_array_header_is_read_or_refused(tmp_path: Path, position: int, value: int) -> None:
    stream = io.BytesIO()
    np.save(stream, CUBE)
    data = bytearray(stream.getvalue())
    data[position] = value
    member(tmp_path / "a.npz", "a.npy", bytes(data))  # stored with a checksum that fits the damage
    with suppress(DataError):
        read_npz(tmp_path / "a.npz", ["a"])


@given(st.binary(max_size=64), st.integers(1, 4))
def test_any_bytes_are_an_idx_array_or_a_value_error(data: bytes, dimensions: int) -> None:
    try:
        array = parse_idx(bytes([0, 0, 8, dimensions]) + data, dimensions)
    except ValueError:
        return
    assert array.size == len(data) - 4 * dimensions
