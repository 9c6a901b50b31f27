"""Whatever a data set downloads comes over https and is checked with a SHA-256."""

import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from snowball.data import DATASETS, fetch_dataset
from snowball.errors import DataError

SOURCE = Path(import_module("snowball.data").__file__ or "").parent
FILES = {"mnist": 4, "fashion-mnist": 4, "cifar10": 1, "sent140": 1, "sent140-users": 1}
"""How many files each data set downloads; the others download none."""


@pytest.mark.parametrize("name", DATASETS)
def test_a_download_is_https_and_has_a_sha256(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads: list[tuple[str, str]] = []
    for module in {type(info).__module__ for info in DATASETS.values()}:
        monkeypatch.setattr(
            f"{module}.download_file", lambda url, path, checksum: downloads.append((url, checksum)), raising=False
        )
    (folder / "glove.txt").write_text("bd 1 2\nday 1 2\n")
    with suppress(DataError):
        fetch_dataset(name)
    assert len(downloads) == FILES.get(name, 0)
    assert all(re.fullmatch(r"https://[^@]+", url) for url, _ in downloads)
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for _, checksum in downloads)


def test_only_the_function_that_checks_opens_an_address() -> None:
    opening = re.compile(r"^\s*(?:import|from) (?:urllib|http|socket|ftplib|ssl|requests|httpx)\b", re.MULTILINE)
    found = {path.name for path in SOURCE.rglob("*.py") if opening.search(path.read_text(encoding="utf-8"))}
    assert found == {"download.py"}
