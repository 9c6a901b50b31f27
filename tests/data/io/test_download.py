import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from snowball.data.io import download as module
from snowball.data.io.download import download_file
from snowball.errors import DataError

BODY = b"what was asked for" * 10_000
MD5 = hashlib.md5(BODY).hexdigest()


@pytest.fixture
def home(serve: Callable[[Path], str], tmp_path: Path) -> str:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "file.gz").write_bytes(BODY)
    return serve(folder)


def test_a_file_arrives_and_nothing_else_is_left(home: str, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "mnist" / "file.gz"
    download_file(f"{home}file.gz", path, MD5)
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]


def test_a_wrong_checksum_leaves_what_was_there(home: str, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "file.gz"
    path.parent.mkdir()
    path.write_bytes(b"old")
    with pytest.raises(DataError, match=f"has the md5 {MD5}, expected 00ff"):
        download_file(f"{home}file.gz", path, "00ff")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_long_checksum_is_a_sha256(home: str, tmp_path: Path) -> None:
    path, sha256 = tmp_path / "cache" / "file.gz", hashlib.sha256(BODY).hexdigest()
    download_file(f"{home}file.gz", path, sha256)
    assert path.read_bytes() == BODY
    with pytest.raises(DataError, match=f"has the sha256 {sha256}, expected {'0' * 64}"):
        download_file(f"{home}file.gz", path, "0" * 64)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/file.gz", "http://nowhere.invalid/file.gz"])
def test_an_unreachable_host_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be downloaded") as caught:
        download_file(url, tmp_path / "file.gz", MD5)
    assert url in str(caught.value)
    assert not (tmp_path / "file.gz").exists()


def test_a_file_that_the_host_does_not_have_is_named(home: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.gz cannot be downloaded .*404"):
        download_file(f"{home}absent.gz", tmp_path / "absent.gz", MD5)


def test_an_endless_answer_is_cut_off(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(DataError, match="longer than the limit of 1000 bytes"):
        download_file(f"{home}file.gz", tmp_path / "file.gz", MD5)
    assert not (tmp_path / "file.gz").exists()


def test_a_folder_that_cannot_be_made_is_named(home: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(DataError, match="taken"):
        download_file(f"{home}file.gz", tmp_path / "taken" / "file.gz", MD5)
