"""Stored records are smaller and give the same report."""

import sys
from pathlib import Path

import pytest

from benchmarks.tables.keep import copy_sweeps, keep_sweeps, shorten_round
from benchmarks.tables.packed import PAPER, iterate_runs, pack_sweeps, unpack_sweeps
from snowball.records.run import RunFolder
from snowball.records.summary import TopDownErrors, summarise_rounds
from snowball.report import read_sweeps
from snowball.report.export.markdown import format_markdown
from snowball.report.tables import build_sweep_table

sys.path.insert(0, str(Path(__file__).parents[2] / "report"))
from sweeps_made import make_sweep, round_of


def test_what_is_kept_makes_the_same_tables(tmp_path: Path) -> None:
    source, target = tmp_path / "runs", tmp_path / "kept"
    make_sweep(source, name="cpu/table1", title="One", there=lambda at: at["seed"] != 3)
    make_sweep(
        source, {"seed": [1]}, name="cpu/updates", title="Two", table=None, figure={"kind": "scatter", "round": 2}
    )
    make_sweep(source, {"seed": [4]}, name="mine", title="Three")
    target.mkdir()
    (target / "old").touch()
    assert keep_sweeps(source, target) == 8
    assert sorted(path.name for path in target.iterdir()) == ["cpu-table1.jsonl", "cpu-updates.jsonl"]
    kept = unpack_sweeps(tmp_path / "unpacked", target)
    before, after = ({sweep.name: sweep for sweep in read_sweeps([folder])[0]} for folder in (source, kept))
    assert set(after) == {"cpu/table1", "cpu/updates"}
    for name, sweep in after.items():
        assert format_markdown(build_sweep_table(sweep)) == format_markdown(build_sweep_table(before[name]))
    for run in after["cpu/updates"].runs:
        rounds = RunFolder.open(run.folder).read_rounds()
        assert [record["round"] for record in rounds if record["map"]] == [2]
        assert not any(record["facts"] for record in rounds)


def test_rounds_with_a_top_down_election_are_known_in_what_is_kept() -> None:
    record = round_of({"defense.name": "snowball", "seed": 1}, 1)
    record["seconds"]["top_down"] = 1 / 3
    known = TopDownErrors(1, false_positive_rate=0, false_negative_rate=1 / 3)
    assert summarise_rounds([record]).top_down == summarise_rounds([shorten_round(record, set())]).top_down == known


def test_numbers_have_six_digits() -> None:
    record = {"round": 1, "seconds": {"train": 0.12345678}, "map": [[1 / 3, 2]], "elected": [True], "facts": {}}
    assert shorten_round(record, {1}) == {
        "round": 1,
        "seconds": {"train": 0.123457},
        "map": [[0.333333, 2]],
        "elected": [True],
    }


def test_facts_are_kept_that_a_figure_shows() -> None:
    record = {"round": 1, "elected": [True], "facts": {"votes": [3], "code.first": [0.5], "code.second": [1 / 3]}}
    assert shorten_round(record, {1})["facts"] == {"code.first": [0.5], "code.second": [0.333333]}
    assert "facts" not in shorten_round(record, {2})


def test_what_is_kept_stays_where_there_is_nothing_else_to_keep(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "cpu-table1.jsonl").touch()
    with pytest.raises(SystemExit, match="holds no runs of shipped grids"):
        keep_sweeps(tmp_path / "typo", tmp_path / "kept")
    assert (tmp_path / "kept" / "cpu-table1.jsonl").exists()


def test_folders_come_back_byte_for_byte(tmp_path: Path) -> None:
    make_sweep(tmp_path / "runs", name="cpu/table1", title="One", there=lambda at: at["seed"] != 3)
    make_sweep(tmp_path / "runs", {"seed": [1]}, name="cpu/updates", title="Two")  # runs that the first sweep has, too
    copy_sweeps(tmp_path / "runs", tmp_path / "kept")
    packed = pack_sweeps(tmp_path / "kept", tmp_path / "packed")
    assert packed == len(list(iterate_runs(tmp_path / "packed"))) == len(list((tmp_path / "kept").glob("*/run.json")))
    unpack_sweeps(tmp_path / "unpacked", tmp_path / "packed")
    before, after = (
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "kept", tmp_path / "unpacked")
    )
    assert before == after


def test_the_repository_keeps_one_file_per_sweep() -> None:
    names = [run["name"] for run in iterate_runs()]
    assert len(names) == len(set(names)) > 100
    assert all(file.suffix == ".jsonl" for file in PAPER.iterdir())
