import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from snowball.data.io import cache
from snowball.data.io.cache import Tensors, compute_checksum, load_cached, pack_words, unpack_words
from snowball.errors import DataError

MAPS = Path("/proc/self/maps")
VALUES = {"samples": torch.arange(12, dtype=torch.int32).view(3, 4), "words": pack_words(["", "ä", "\n\ud800"])}


@pytest.fixture
def source(folder: Path) -> Path:
    (folder / "texts").write_bytes(b"so long")
    return folder / "texts"


@pytest.fixture
def parse() -> Callable[[], Tensors]:
    """A parser that counts how often it is called."""

    class Parser:
        calls = 0

        def __call__(self) -> Tensors:
            self.calls += 1
            return {name: tensor.clone() for name, tensor in VALUES.items()}

    return Parser()


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "snowball" / "parsed").iterdir())


def same(tensors: Tensors) -> bool:
    return tensors.keys() == VALUES.keys() and all(torch.equal(tensors[name], VALUES[name]) for name in VALUES)


def test_what_was_parsed_is_not_parsed_again(source: Path, parse: Callable[[], Tensors], tmp_path: Path) -> None:
    assert same(load_cached("set", [source], parse))
    assert same(load_cached("set", [source], parse))
    assert parse.calls == 1
    assert len(files(tmp_path)) == 1  # and nothing that was half written
    load_cached("other", [source], parse)
    source.write_bytes(b"changed")
    load_cached("set", [source], parse)
    assert parse.calls == 3


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux lists what is mapped")
def test_processes_share_what_is_in_the_cache_from_the_first_time_on(
    source: Path, parse: Callable[[], Tensors], tmp_path: Path
) -> None:
    tensors = load_cached("texts", [source], parse)
    assert str(files(tmp_path)[0]) in MAPS.read_text()
    assert same(tensors)


def test_what_is_changed_in_memory_is_not_changed_in_the_cache(source: Path, parse: Callable[[], Tensors]) -> None:
    load_cached("set", [source], parse)
    load_cached("set", [source], parse)["samples"].zero_()
    assert same(load_cached("set", [source], parse))
    assert parse.calls == 1


def test_a_damaged_file_is_made_again(source: Path, parse: Callable[[], Tensors], tmp_path: Path) -> None:
    load_cached("set", [source], parse)
    (path,) = files(tmp_path)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[-1] ^= 1
    for calls, damaged in enumerate((bytes(flipped), good[:-5], good[:20], b"", b"no tensors at all" * 9), 2):
        path.write_bytes(damaged)
        assert same(load_cached("set", [source], parse))
        assert parse.calls == calls
        assert path.read_bytes() == good


def test_a_cache_that_takes_no_files_is_no_fault(
    source: Path, parse: Callable[[], Tensors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    monkeypatch.setattr(cache, "MIN_REMEMBERED_BYTES", 1)
    assert same(load_cached("set", [source], parse))
    assert same(load_cached("set", [source], parse))


def test_the_checksum_of_a_large_file_is_remembered_until_the_file_changes(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = cache.compute_sha256(source)
    calls = []
    monkeypatch.setattr(cache, "compute_sha256", lambda path: calls.append(path) or right)
    compute_checksum(source)
    compute_checksum(source)
    assert len(calls) == 2  # it is small
    monkeypatch.setattr(cache, "MIN_REMEMBERED_BYTES", 1)
    assert compute_checksum(source) == compute_checksum(source) == right
    assert len(calls) == 3
    os.utime(source, ns=(1, 1))
    compute_checksum(source)
    assert len(calls) == 4
    for note in (tmp_path / "cache" / "snowball" / "checksums").iterdir():
        note.write_text("damaged")
    assert compute_checksum(source) == right
    assert len(calls) == 5


def test_a_source_that_is_gone_is_named(folder: Path, parse: Callable[[], Tensors]) -> None:
    with pytest.raises(DataError, match="absent cannot be read"):
        load_cached("set", [folder / "absent"], parse)


def test_words_come_back_as_they_were() -> None:
    assert unpack_words(VALUES["words"]) == ["", "ä", "\n\ud800"]
    assert unpack_words(pack_words([])) == []
