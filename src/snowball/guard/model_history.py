"""The last global models: their hashes and, where an operator asks for them, their files, to go back to.

A round that keeps the old model adds nothing, so the model after round N is the latest one of round N or before.
"""

import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from snowball.errors import RunError
from snowball.guard.audit_log import hash_model
from snowball.records.files import explain_os_errors, make_folder, write_bytes

MAX_HASHES = 100
"""Number of last models whose hashes are kept."""

FILE_NAME = re.compile(r"round-(\d{1,16})\.safetensors")


class ModelHistory:
    """The hashes and files of the last global models.

    Attributes:
        folder: the folder of the files; None for none.
        keep: the number of files to keep.
        hashes: (round, SHA-256) of each model, oldest first.
    """

    def __init__(self, folder: Path | None = None, keep: int = 0) -> None:
        self.folder, self.keep = folder, keep
        self.hashes: list[tuple[int, str]] = []

    def add(self, round: int, digest: str, tensors: dict[str, Tensor]) -> None:
        """Add the model after a round, unless it is the last one still, and write its file."""
        if self.hashes and self.hashes[-1][1] == digest:
            return
        self.hashes = [*self.hashes, (round, digest)][-MAX_HASHES:]
        if self.folder is not None:
            write_model(self.folder / f"round-{round:06}.safetensors", round, digest, tensors)
            delete_oldest(self.folder, self.keep)


def write_model(path: Path, round: int, digest: str, tensors: dict[str, Tensor]) -> None:
    """Write a model's file, whole or not at all."""
    make_folder(path.parent)
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    facts = {"round": str(round), "sha256": digest, "names": json.dumps(list(copies))}  # a file does not keep the order
    write_bytes(path, save(copies, facts))


def delete_oldest(folder: Path, keep: int) -> None:
    """Delete all but the files written last; round numbers start over if a federation does."""
    files = sorted(find_files(folder), key=lambda path: (path.stat().st_mtime_ns, path.name))
    for path in files[:-keep]:
        path.unlink(missing_ok=True)


def find_files(folder: Path) -> dict[Path, int]:
    """Return the round of each model's file in a folder."""
    with explain_os_errors(folder):
        found = [(path, FILE_NAME.fullmatch(path.name)) for path in folder.iterdir()]
    return {path: int(match[1]) for path, match in found if match}


def restore_model(folder: str | Path, round: int) -> dict[str, Tensor]:
    """Return the global model after a round from the files that a guard keeps; refuse a damaged one."""
    rounds = {number: path for path, number in find_files(Path(folder)).items()}
    latest = max((number for number in rounds if number <= round), default=None)
    if latest is None:
        kept = f"the earliest is of round {min(rounds)}" if rounds else "there is none"
        raise RunError(f"{folder} holds no model of round {round} or before: {kept}")
    return read_model_file(rounds[latest])


def read_model_file(path: Path) -> dict[str, Tensor]:
    """Return the model in a file; refuse one whose hash is not that of its tensors."""
    try:
        with explain_os_errors(path), safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in json.loads(facts["names"])}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is not the file of a model: {error}") from error
    if hash_model(tensors) != facts.get("sha256"):
        raise RunError(f"{path} is damaged: its tensors do not have the hash that it says")
    return tensors
