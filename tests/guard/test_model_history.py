import logging
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses import FedAvg
from snowball.errors import RunError, SettingError
from snowball.guard import Guard, Reply, restore_model
from snowball.guard.audit_log import hash_model
from snowball.guard.model_history import MAX_HASHES, ModelHistory

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply = SHARED["MODEL"], SHARED["make_honest_reply"]


def run_rounds(guard: Guard, count: int, model: dict[str, Tensor] = MODEL) -> list[dict[str, Tensor]]:
    """Run rounds and return the models after them."""
    models = []
    for number in range(count):
        model = guard(model, [make_honest_reply(10 * number + client, model) for client in range(4)]).tensors
        models.append(model)
    return models


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_models_are_in_the_folder_and_can_be_restored(tmp_path: Path) -> None:
    guard = Guard(FedAvg(), models=tmp_path / "models", keep_models=2)
    models = run_rounds(guard, 4)
    assert list_names(tmp_path / "models") == ["round-000003.safetensors", "round-000004.safetensors"]
    for number in (3, 4, 9):
        restored = restore_model(tmp_path / "models", number)
        assert list(restored) == list(MODEL)
        assert all(torch.equal(restored[name], models[min(number, 4) - 1][name]) for name in MODEL)
    with pytest.raises(RunError, match="no model of round 2 or before: the earliest is of round 3"):
        restore_model(tmp_path / "models", 2)


def test_a_round_that_keeps_the_model_adds_none(tmp_path: Path) -> None:
    guard = Guard(FedAvg(), models=tmp_path, keep_models=5)
    (model,) = run_rounds(guard, 1)
    assert guard(model, []).kept
    run_rounds(guard, 1, model)
    assert list_names(tmp_path) == ["round-000001.safetensors", "round-000003.safetensors"]
    assert all(torch.equal(tensor, model[name]) for name, tensor in restore_model(tmp_path, 2).items())
    assert [number for number, _ in guard.models.hashes] == [1, 3]


def test_a_federation_goes_on_from_an_earlier_model(tmp_path: Path, replies: list[Reply]) -> None:
    guard = Guard(FedAvg(), models=tmp_path, keep_models=5)
    models = run_rounds(guard, 3)
    judgement = guard(restore_model(tmp_path, 1), replies)
    assert judgement.entry["round"] == 4
    assert judgement.entry["model_before"] == hash_model(models[0]) == guard.models.hashes[0][1]


def test_hashes_are_in_the_state_whether_or_not_there_are_files(tmp_path: Path) -> None:
    guard = Guard(FedAvg(), audit=tmp_path / "audit.jsonl")
    models = run_rounds(guard, 3)
    guard.save(tmp_path / "state")
    later = Guard(FedAvg())
    later.load(tmp_path / "state")
    assert later.models.hashes == [(number, hash_model(model)) for number, model in enumerate(models, 1)]


def test_the_hashes_are_bounded() -> None:
    history = ModelHistory()
    for number in range(1, MAX_HASHES + 50):
        history.add(number, str(number), {})
    assert (len(history.hashes), history.hashes[-1]) == (MAX_HASHES, (MAX_HASHES + 49, str(MAX_HASHES + 49)))


def test_rounds_that_start_over_replace_the_oldest_files(tmp_path: Path) -> None:
    run_rounds(Guard(FedAvg(), models=tmp_path, keep_models=2), 3)
    for number, path in enumerate(sorted(tmp_path.iterdir())):
        os.utime(path, (number, number))
    run_rounds(Guard(FedAvg(), models=tmp_path, keep_models=2), 1)
    assert list_names(tmp_path) == ["round-000001.safetensors", "round-000003.safetensors"]


def test_other_files_stay(tmp_path: Path) -> None:
    for name in ("notes.txt", "round-1.safetensors.bak", "round-x.safetensors"):
        (tmp_path / name).write_text("mine")
    run_rounds(Guard(FedAvg(), models=tmp_path, keep_models=1), 3)
    assert list_names(tmp_path) == [
        "notes.txt", "round-000003.safetensors", "round-1.safetensors.bak", "round-x.safetensors"
    ]  # fmt: skip


def test_a_full_disk_is_an_alert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("snowball.records.files.os.fsync", fail)
    with caplog.at_level(logging.WARNING, "snowball"):
        run_rounds(Guard(FedAvg(), models=tmp_path, keep_models=2), 1)
    assert "Round 1: the global model is not saved" in caplog.text
    assert "No space left on device" in caplog.text
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_and_shapes_survive(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = {"b": torch.ones(2, 3, dtype=dtype).T, "a": torch.tensor(7), "empty": torch.zeros(0, 3)}
    tensors["tied"] = tensors["b"]
    ModelHistory(tmp_path, 1).add(1, hash_model(tensors), tensors)
    restored = restore_model(tmp_path, 1)
    assert list(restored) == list(tensors)
    assert all(torch.equal(restored[name], tensors[name]) for name in tensors)
    assert all(restored[name].dtype == tensors[name].dtype for name in tensors)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    run_rounds(Guard(FedAvg(), models=tmp_path, keep_models=1), 1)
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    for bad, words in (
        (good[:-1] + bytes([good[-1] ^ 1]), "is damaged"),
        (good[:-3], "is not the file of a model"),
        (b"", "is not the file of a model"),
        (good.replace(b"sha256", b"sha257"), "is damaged"),
        (good.replace(b"names", b"nomes"), "is not the file of a model"),
    ):
        file.write_bytes(bad)
        with pytest.raises(RunError, match=words):
            restore_model(tmp_path, 1)


def test_there_may_be_no_models(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no model of round 3 or before: there is none"):
        restore_model(tmp_path, 3)
    with pytest.raises(RunError, match="cannot be used"):
        restore_model(tmp_path / "nowhere", 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keep_models": 3}, "set both or neither, got 3 and no folder"),
        ({"models": "folder"}, "set both or neither, got 0 and 'folder'"),
        ({"models": "folder", "keep_models": -1}, "keep_models must be a whole number from 0, got -1"),
        ({"models": "folder", "keep_models": True}, "keep_models must be a whole number"),
        ({"models": __file__, "keep_models": 1}, "models must be a folder"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Guard(**settings)
