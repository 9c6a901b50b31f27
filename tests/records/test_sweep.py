import json
from dataclasses import replace
from pathlib import Path

import pytest

from snowball.errors import RunError
from snowball.records.sweep import Manifest, ManifestRun, read_failed, read_manifest, write_failed, write_manifest

AT = {"data.name": "mnist", "attack.name": "cba", "defense.name": "krum", "seed": 1, "data.alpha": None}
MANIFEST = Manifest(
    "cpu/small", "A small sweep", "label-skew", {"rows": ["seed"]}, None, ("seed",), (ManifestRun("a-1", AT),)
)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path / "sweeps" / "cpu-small.json") == MANIFEST


def test_manifests_of_earlier_versions_have_no_leaderboard(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(MANIFEST, leaderboard=True))
    path = tmp_path / "sweeps" / "cpu-small.json"
    assert read_manifest(path).leaderboard
    content = json.loads(path.read_text())
    del content["leaderboard"]
    path.write_text(json.dumps(content))
    assert read_manifest(path) == MANIFEST


def test_the_fields_of_a_manifest_s_file_keep_names_and_order(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    expected = {
        "name": "cpu/small", "title": "A small sweep", "published": "label-skew", "table": {"rows": ["seed"]},
        "figure": None, "axes": ["seed"], "runs": [{"folder": "a-1", "at": AT}], "leaderboard": False,
    }  # fmt: skip
    assert (tmp_path / "sweeps" / "cpu-small.json").read_text() == json.dumps(expected, indent=2) + "\n"


def test_what_a_later_version_adds_to_a_manifest_is_not_read(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    path = tmp_path / "sweeps" / "cpu-small.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": 1}))
    assert read_manifest(path) == MANIFEST


def test_failures_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_failed(tmp_path) == {}
    write_failed(tmp_path, {"a-1": "it ran out of memory"})
    assert read_failed(tmp_path) == {"a-1": "it ran out of memory"}


@pytest.mark.parametrize("content", ["[]", '{"a-1": 3}'])
def test_failures_that_are_no_sentences_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "failed.json").write_text(content)
    with pytest.raises(RunError, match="must hold one sentence per failed run: move it away"):
        read_failed(tmp_path)
