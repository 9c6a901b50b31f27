"""Every loader of files that others may have written: a damaged file is read, or refused in one bounded sentence.

The slow run tries 10,000 damaged files per loader, the default run a few.
"""

import io
import json
import struct
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from snowball.data.io.formats import read_idx, read_npz
from snowball.data.io.leaf import read_writers
from snowball.data.io.vectors import read_vectors
from snowball.data.sets.cifar10 import TEST_BATCH, TRAIN_BATCHES, read_batch, read_batches
from snowball.data.sets.sent140 import read_tweets
from snowball.defenses import FoolsGold
from snowball.errors import MAX_SENTENCE_CHARS, SnowballError
from snowball.guard import Guard, Reply
from snowball.guard.audit_log import hash_model
from snowball.guard.decisions import parse_decisions
from snowball.guard.model_history import read_model_file, write_model
from snowball.guard.names import parse_names
from snowball.guard.watched_file import WatchedFile
from snowball.layout import Layout
from snowball.models.start import compute_start_sha256, load_start, pack_start
from snowball.records.audit import read_audit
from snowball.records.checkpoint import STATE_FILE, RunState, load_state, save_state
from snowball.records.run import RunFolder
from snowball.records.sweep import COORDINATES, Manifest, ManifestRun, read_failed, read_manifest, write_manifest
from snowball.rehearsal.settings import read_federation
from snowball.serialization import seal
from snowball.sim.presets import load_experiment
from snowball.sweeps.grid import read_grid

FEW, MANY = 25, 10_000
"""Damaged files per loader in the default run and in the slow one."""

MODEL = {"w": torch.linspace(-1, 1, 6)}
LAYOUT = Layout(("w",), ((6,),))


@dataclass(frozen=True)
class Loader:
    """A loader under test.

    Attributes:
        name: of the file that it reads.
        make: writes a good file, and what belongs to it, into a folder.
        load: reads the file.
        sealed: the file has a SHA-256; attackers compute it again, so the damaged content gets the right one.
    """

    name: str
    make: Callable[[Path], Any]
    load: Callable[[Path], Any]
    sealed: bool = False


def write(content: str | bytes) -> Callable[[Path], Any]:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def make_audit(path: Path) -> Guard:
    guard = Guard(FoolsGold(), audit=path, seed=1)
    for number in range(1, 3):
        guard(MODEL, [Reply(f"s{site}", 5, {"w": MODEL["w"] + site * number / 10}) for site in range(4)])
    return guard


def make_state(path: Path) -> None:
    make_audit(path.with_name("audit.jsonl")).save(path)


def make_checkpoint(path: Path) -> None:
    save_state(RunState(2, MODEL["w"], {"clients": {"a": {"round": 1}}}), path.parent)


def make_run(path: Path) -> None:
    folder = RunFolder.create(
        path.parent, {"settings": {"rounds": 2, "seed": 1}, "seed": 1, "versions": {"torch": "2"}}
    )
    for number in (1, 2):
        record: Any = {
            "round": number,
            "participants": ["a", "b"],
            "malicious": [False, True],
            "elected": [True, False],
            "main_accuracy": 0.5,
            "backdoor_accuracy": None,
            "false_positive_rate": 0.0,
            "false_negative_rate": 0.0,
            "seconds": {"train": 1.5, "defense": 0.5},
            "facts": {"votes": [1.0, 2.0]},
            "map": [[0.0, 1.0], None],
            "distances": {"benign": 1.0, "between": None, "infected": None},
        }
        folder.append(record)
    folder.write_summary()


def make_manifest(path: Path) -> None:
    table = {"rows": ["seed"], "columns": [], "values": ["accuracy"]}
    at = dict.fromkeys(COORDINATES, "x")
    runs = (ManifestRun("a", {**at, "seed": 1}), ManifestRun("b", {**at, "seed": 2}))
    write_manifest(path.parent, Manifest(path.stem, "Title", None, table, None, ("seed",), runs))
    (path.parent / "sweeps" / path.name).replace(path)


def make_npz(path: Path) -> None:
    np.savez(path, words=np.array(["a", "b"]), vectors=np.ones((2, 3), np.float32))


def make_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in (*TRAIN_BATCHES, TEST_BATCH):
            member = tarfile.TarInfo(name)
            member.size = 3073
            archive.addfile(member, io.BytesIO(bytes(3073)))


def load_guard(path: Path) -> None:
    guard = Guard(FoolsGold(), seed=1)
    guard.load(path)
    guard(MODEL, [Reply(f"s{site}", 5, {"w": MODEL["w"] + site / 10}) for site in range(4)])


def make_network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def load_network(path: Path) -> None:
    model = make_network()
    load_start(model, str(path), compute_start_sha256(str(path)))
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())


PRESET = """# Mine
extends = "demo"
rounds = 3
cohort = 10
seed = 0x1f
[data]
clients = 20
[defense]
name = "krum"
tolerate = 2
[peers.flip]
"""

GRID = """# Mine
first = ["krum"]
[table]
rows = ["defense.name"]
columns = []
values = ["main_accuracy"]
[[grid]]
preset = ["demo"]
set.rounds = 2
[grid.axes]
"defense.name" = ["krum", "fedavg"]
seed = [1, 2]
"""

REHEARSAL = "sites = 8\nrounds = 5\nhostile = 2\n"
DECISIONS = '[[decision]]\nsite = "A"\nrule = "deny"\nreason = "old"\nby = "M"\nuntil = 2026-09-30\n'
LEAF = json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784] * 2, "y": [1, 2]}}})
IDX = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4) + bytes(24)
BINARY_VECTORS = b"2 3\na " + struct.pack("<3f", 1, 2, 3) + b"b " + struct.pack("<3f", 1, 2, 3)
TWEETS = '"0","1","Mon","NO_QUERY","me","a bad day"\n"4","2","Mon","NO_QUERY","you","a good day"\n'

LOADERS: Mapping[str, Loader] = {
    "preset": Loader("mine.toml", write(PRESET), load_experiment),
    "grid": Loader("mine.toml", write(GRID), read_grid),
    "rehearsal": Loader("mine.toml", write(REHEARSAL), lambda path: read_federation(path, {})),
    "names": Loader("n.toml", write('[sites]\n"1" = "A"\n"2" = "B"\n'), lambda path: WatchedFile(path, parse_names)),
    "decisions": Loader("d.toml", write(DECISIONS), lambda path: WatchedFile(path, parse_decisions)),
    "run.json": Loader("run.json", make_run, lambda path: RunFolder.open(path.parent)),
    "rounds.jsonl": Loader("rounds.jsonl", make_run, lambda path: RunFolder.open(path.parent).read_rounds()),
    "summary.json": Loader("summary.json", make_run, lambda path: RunFolder.open(path.parent).read_summary(True)),
    "manifest": Loader("mine.json", make_manifest, read_manifest),
    "failed.json": Loader("failed.json", write('{"a": "it failed"}'), lambda path: read_failed(path.parent)),
    "audit": Loader("audit.jsonl", make_audit, read_audit),
    "guard state": Loader("guard.state", make_state, load_guard),
    "sealed guard state": Loader("guard.state", make_state, load_guard, sealed=True),
    "checkpoint": Loader(STATE_FILE, make_checkpoint, lambda path: load_state(path.parent, 3, LAYOUT)),
    "sealed checkpoint": Loader(
        STATE_FILE, make_checkpoint, lambda path: load_state(path.parent, 3, LAYOUT), sealed=True
    ),
    "model": Loader(
        "round-000001.safetensors", lambda path: write_model(path, 1, hash_model(MODEL), MODEL), read_model_file
    ),
    "start": Loader("start.safetensors", lambda path: path.write_bytes(pack_start(make_network())), load_network),
    "leaf": Loader("all_data_0.json", write(LEAF), lambda path: read_writers([path], 62)),
    "idx": Loader("images", write(IDX), lambda path: read_idx(path, 3)),
    "npz": Loader("a.npz", make_npz, lambda path: read_npz(path, ["words", "vectors"])),
    "vectors.npz": Loader("a.npz", make_npz, lambda path: read_vectors(path, ["a", "b"])),
    "vectors.txt": Loader("glove.txt", write("a 1 2 3\nb 1e-3 .5 -2\n"), lambda path: read_vectors(path, ["a", "b"])),
    "vectors.bin": Loader("vectors.bin", write(BINARY_VECTORS), lambda path: read_vectors(path, ["a", "b"])),
    "cifar batch": Loader("data_batch_1.bin", write(bytes(3073 * 2)), read_batch),
    "cifar archive": Loader("cifar.tar.gz", make_tar, read_batches),
    "tweets": Loader("tweets.csv", write(TWEETS), lambda path: list(read_tweets(path, ""))),
}

HOSTILE = (
    b"0x" + b"f" * 5000,
    b"9" * 5000,
    b"a." * 5000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"1e999",
    b"NaN",
    b"-1",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b'""',
    b"\xff\xfe",
    b"\x00",
    b"\x1b[31m",
    b'"\\ud800"',
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"1" + b"0" * 400,
    b"9223372036854775808",
    b"x" * 100_000,
    b"\xff" * 8,
)
"""Pieces that break parsers: huge numbers, deep nesting, broken text, other types."""

Damage = list[tuple[str, float, int, bytes]]
"""What is done to a good file: how, where, to how many bytes, and with which bytes."""

BAD_TOML: list[Damage] = [
    [("insert", 0.0, 1, b"x = 0x" + b"f" * 5000 + b"\n")],  # an integer too long to be printed
    [("insert", 0.0, 1, b"x = " + b"9" * 5000 + b"\n")],  # too long to be read
    [("insert", 0.0, 1, b"a." * 5000 + b"a = 1\n")],  # took seconds to parse
    [("insert", 0.0, 1, b"x = " + b"[" * 100_000 + b"\n")],  # overflowed the parser's stack
]

BAD_JSON: list[Damage] = [
    [("insert", 0.0, 1, b"[" * 100_000)],
    [("insert", 0.0, 1, b'{"a":' * 20_000)],
    [("insert", 0.0, 1, b'{"round": ' + b"9" * 5000 + b"}\n")],
]

REGRESSIONS: Mapping[str, list[Damage]] = {
    **dict.fromkeys(("rehearsal", "names", "decisions"), BAD_TOML),
    "preset": [*BAD_TOML, [("insert", 0.158, 1, b"x" * 5000)]],  # the name of the preset, too long for a file's
    "grid": [*BAD_TOML, [("insert", 0.59, 1, b"x" * 5000)]],
    **dict.fromkeys(("run.json", "rounds.jsonl", "summary.json", "manifest", "failed.json", "audit", "leaf"), BAD_JSON),
}
"""Damages that once broke a loader, or one like it: paste the `damage` of hypothesis's falsifying example here."""

places = st.floats(0, 1, exclude_max=True)
damages = st.lists(
    st.tuples(
        st.sampled_from(["byte", "insert", "delete", "cut", "repeat", "value"]),
        places,
        st.integers(1, 64),
        st.sampled_from(HOSTILE) | st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=3,
)


def damage_content(content: bytes, damage: Damage) -> bytes:
    """Return a file's bytes after some damage; "value" replaces a whole value of JSON or TOML."""
    for kind, place, length, piece in damage:
        start = int(place * (len(content) + 1))
        end = start + length
        if kind == "value":
            start = max(content.rfind(mark, 0, start) for mark in b":=,[ ") + 1
            ends = [content.find(mark, start + 1) for mark in b",]}\n"]
            end = min((each for each in ends if each >= 0), default=len(content))
        replacement = {"delete": b"", "cut": b"", "repeat": content[start:end] * 2, "byte": piece[:1]}.get(kind, piece)
        end = {"insert": start, "cut": len(content), "byte": start + 1}.get(kind, end)
        content = content[:start] + replacement + content[end:]
    return content


def check_loader(loader: Loader, path: Path, content: bytes) -> None:
    """Check that damaged content is read, or refused in one bounded sentence."""
    path.write_bytes(seal(content) if loader.sealed else content)
    sentence = "it was read"
    try:
        loader.load(path)
    except SnowballError as error:
        sentence = str(error)
    assert 0 < len(sentence) <= MAX_SENTENCE_CHARS
    assert sentence.isprintable()


def fuzz_loader(name: str, folder: Path, examples: int) -> None:
    """Try damaged copies of a good file, those of `REGRESSIONS` first; the examples are the same in every run."""
    loader = LOADERS[name]
    path = folder / loader.name
    loader.make(path)
    good = path.read_bytes()
    loader.load(path)

    @settings(max_examples=examples, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(damages)
    def check_damaged(damage: Damage) -> None:
        check_loader(loader, path, damage_content(good, damage))

    for damage in REGRESSIONS.get(name, ()):
        check_damaged = example(damage)(check_damaged)
    check_damaged()


@pytest.mark.parametrize("name", LOADERS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    fuzz_loader(name, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADERS)
def test_ten_thousand_damaged_files_are_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    fuzz_loader(name, tmp_path, MANY)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("content", [b"", b"\x00", b"{}", b"[]", b"\xff" * 100, b"\n\n\n"], ids=repr)
def test_a_file_of_something_else_is_read_or_refused_in_a_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / LOADERS[name].name
    LOADERS[name].make(path)
    check_loader(LOADERS[name], path, content)
