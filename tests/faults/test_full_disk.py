"""A run on a full disk ends in one sentence, and continues to the same records once there is room."""

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_run import SMALL_RUN, read_results

from snowball.errors import RunError
from snowball.sim.run import run_experiment

IN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def fill_disk(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Let the disk be full after this many writes of a whole file or line."""
    left, write = iter(range(writes)), os.fsync

    def write_if_room(file: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file)

    monkeypatch.setattr(os, "fsync", write_if_room)


def test_a_run_on_a_full_disk_says_so_and_continues(
    tmp_path: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, full = random.Random(14), set()
    for _ in range(5):
        with monkeypatch.context() as patch:
            fill_disk(patch, rng.randint(0, 4))
            with pytest.raises(RunError) as stopped:
                list(run_experiment(SMALL_RUN, tmp_path / "run", resume=True))
        sentence = str(stopped.value).removeprefix(f"{tmp_path}/run/")
        full.add(sentence.removesuffix(" cannot be used: No space left on device"))
    assert full == {"run.json", "rounds.jsonl", "checkpoint/state.safetensors"}
    list(run_experiment(SMALL_RUN, tmp_path / "run", resume=True))
    assert read_results(tmp_path / "run") == expected
    assert not list((tmp_path / "run").rglob(".snowball-*")), "drafts are left behind"


def can_mount() -> bool:
    """Return whether this machine lets its users mount a small disk of their own."""
    if not shutil.which("unshare"):
        return False
    return not subprocess.run([*IN_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="needs a user namespace with a small disk")
def test_a_run_on_a_disk_that_is_really_full_continues(tmp_path: Path, expected: Any) -> None:
    script = Path(__file__).with_name("fill_small_disk.py")
    done = subprocess.run([*IN_NAMESPACE, sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sentences = done.stdout.splitlines()
    assert len(sentences) == 10
    assert all(sentence.endswith((": No space left on device", ": the disk is full")) for sentence in sentences)
    assert read_results(tmp_path / "run") == expected
