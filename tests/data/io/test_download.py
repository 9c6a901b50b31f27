import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from snowball.data import DATASETS
from snowball.data.io import download as module
from snowball.data.io.download import download_file
from snowball.data.sets.mnist import IDX_FILES
from snowball.errors import DataError

BODY = b"what was asked for" * 10_000
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def home(serve: Callable[[Path], str], tmp_path: Path) -> str:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "file.gz").write_bytes(BODY)
    return serve(folder)


def test_a_file_arrives_and_nothing_else_is_left(home: str, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "mnist" / "file.gz"
    download_file(f"{home}file.gz", path, SHA256)
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]


def test_a_wrong_checksum_leaves_what_was_there(home: str, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "file.gz"
    path.parent.mkdir()
    path.write_bytes(b"old")
    with pytest.raises(DataError, match=f"has the sha256 {SHA256}, expected 00ff"):
        download_file(f"{home}file.gz", path, "00ff")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def list_downloads() -> list[tuple[str, str, str]]:
    """Return the data set, the address and the checksum of every file that is downloaded."""
    loaders = [(name, DATASETS[name]) for name in DATASETS if getattr(DATASETS[name], "home", "")]
    pairs = [(name, loader.home, loader.sha256) for name, loader in loaders]
    return [
        (name, home, checksum)
        for name, home, found in pairs
        for checksum in ([found] if isinstance(found, str) else found)
    ]


def test_every_download_is_over_https_with_a_sha256() -> None:
    downloads = list_downloads()
    assert {"mnist", "fashion-mnist", "cifar10", "sent140"} <= {name for name, _, _ in downloads}
    assert [name for name, _, _ in downloads].count("mnist") == len(IDX_FILES)
    for name, home, checksum in downloads:
        assert home.startswith("https://"), name
        assert re.fullmatch("[0-9a-f]{64}", checksum), name


def test_every_loader_that_downloads_is_checked_here() -> None:
    folder = Path(module.__file__).parents[1] / "sets"
    callers = {path.stem for path in folder.glob("*.py") if "download_file(" in path.read_text(encoding="utf-8")}
    checked = {type(DATASETS[name]).__module__.rpartition(".")[2] for name, _, _ in list_downloads()}
    assert callers == checked


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/file.gz", "http://nowhere.invalid/file.gz"])
def test_an_unreachable_host_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be downloaded") as caught:
        download_file(url, tmp_path / "file.gz", SHA256)
    assert url in str(caught.value)
    assert not (tmp_path / "file.gz").exists()


def test_a_file_that_the_host_does_not_have_is_named(home: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.gz cannot be downloaded .*404"):
        download_file(f"{home}absent.gz", tmp_path / "absent.gz", SHA256)


def test_an_endless_answer_is_cut_off(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(DataError, match="longer than the limit of 1000 bytes"):
        download_file(f"{home}file.gz", tmp_path / "file.gz", SHA256)
    assert not (tmp_path / "file.gz").exists()


def test_a_folder_that_cannot_be_made_is_named(home: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(DataError, match="taken"):
        download_file(f"{home}file.gz", tmp_path / "taken" / "file.gz", SHA256)
