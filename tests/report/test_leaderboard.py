import csv
import sys
from io import StringIO
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from snowball.records.rounds import RoundRecord
from snowball.report import find_runs, read_sweeps, write_exports, write_html
from snowball.report.export.leaderboard import build_terminal_leaderboard, format_leaderboard_csv
from snowball.report.leaderboard import COLUMNS, Leaderboard, Standing, build_leaderboard
from snowball.report.web.leaderboard import build_leaderboard_table

sys.path.insert(0, str(Path(__file__).parent))
from sweeps_made import At, make_sweep, round_of

BACKDOORS = {
    ("cba", "fedavg"): [0.95, 0.9, 0.7],  # by seed: the third does not count
    ("cba", "ideal"): [0.01, 0.02, 0.01],
    ("cba", "krum"): [0.51, 0.32, 0.99],
    ("cba", "snowball"): [0.01, 0.03, 0.01],
    ("dba", "fedavg"): [0.9, 0.9, 0.9],
    ("dba", "ideal"): [0.1, 0.1, 0.1],
    ("dba", "krum"): [0.1, 0.1, 0.1],
    ("dba", "snowball"): [0.3, 0.2, 0.1],
    ("weak", "fedavg"): [0.3, 0.3, 0.3],
    ("weak", "ideal"): [0.0, 0.0, 0.0],
    ("weak", "krum"): [0.9, 0.9, 0.9],
    ("weak", "snowball"): [0.0, 0.0, 0.0],
}
AXES = {
    "data.name": ["mnist"],
    "attack.name": ["cba", "dba", "weak", "none"],
    "defense.name": ["fedavg", "ideal", "krum", "snowball"],
    "seed": [1, 2, 3],
}


def make_round(at: At, number: int) -> RoundRecord:
    """A round: the backdoor is zero before the last one, so the best round, the last, has it too."""
    attack, defense, seed = at["attack.name"], at["defense.name"], at["seed"]
    known = BACKDOORS.get((attack, defense))
    record: dict[str, Any] = dict(round_of(at, number))
    record |= {
        "backdoor_accuracy": None if known is None else known[seed - 1],
        "main_accuracy": 0.8 + number / 100 - {"krum": 0.05, "snowball": 0.01}.get(defense, 0.0),
    }
    return record  # type: ignore[return-value]


def read_board(folder: Path) -> Leaderboard:
    (sweep,), faults = read_sweeps([folder])
    assert not faults
    return build_leaderboard(sweep)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    make_sweep(folder, AXES, make_round, name="cpu/board", leaderboard=True)
    return folder


@pytest.fixture(scope="module")
def board(folder: Path) -> Leaderboard:
    return read_board(folder)


def standing_of(board: Leaderboard, defense: str) -> Standing:
    (found,) = (standing for standing in board.standings if standing.defense == defense)
    return found


def test_a_world_counts_if_fedavg_learns_the_backdoor(board: Leaderboard) -> None:
    assert [(world.label, world.state) for world in board.worlds] == [
        ("cba", "counts"),
        ("dba", "counts"),
        ("weak", "harmless"),
        ("none", "clean"),
    ]
    assert [world.learned for world in board.worlds] == [pytest.approx(0.85), pytest.approx(0.9), 0.3, None]


def test_numbers_are_means_of_the_seeds_that_count(board: Leaderboard) -> None:
    """Under cba: (0.5 + 0.3) / 2, without the third seed, with which FedAvg does not learn it; under dba: 0."""
    krum = standing_of(board, "krum").scores
    assert krum["worst_last"].value == pytest.approx(0.4)
    assert krum["worst_last"].spread == pytest.approx(stdev([0.5, 0.3]))
    assert len(krum["worst_last"].runs) == 2
    assert krum["mean_last"].value == pytest.approx((0.4 + 0) / 2)
    assert krum["mean_last"].spread == pytest.approx(stdev([0.25, 0.15, 0.0]))  # of each seed's mean
    assert krum["main_lost"].value == pytest.approx(0.05)
    assert krum["honest_left_out"].value == pytest.approx(1 / 3)
    assert krum["seconds"].value == pytest.approx(0.2)  # the median round, over all worlds
    assert len(krum["seconds"].runs) == 2 + 3 + 3 + 3


def test_clean_worlds_show_the_cost(board: Leaderboard) -> None:
    krum, snowball = (standing_of(board, name).scores for name in ("krum", "snowball"))
    assert (krum["clean_main_lost"].value, krum["clean_left_out"].value) == (pytest.approx(0.05), pytest.approx(1 / 3))
    assert (snowball["clean_main_lost"].value, snowball["clean_left_out"].value) == (
        pytest.approx(0.01),
        pytest.approx(1 / 3),
    )


def test_the_best_worst_world_leads(board: Leaderboard) -> None:
    assert [standing.defense for standing in board.standings] == ["ideal", "snowball", "krum", "fedavg"]
    assert standing_of(board, "snowball").scores["worst_last"].value == pytest.approx((0.2 + 0.1 + 0) / 3)


def test_what_is_not_known_is_not_a_zero(tmp_path: Path) -> None:
    def is_there(at: At) -> bool:
        return at["defense.name"] != "fedavg" and not (at["defense.name"] == "krum" and at["seed"] == 3)

    make_sweep(tmp_path, AXES, make_round, is_there, name="cpu/board", leaderboard=True)
    (sweep,), _ = read_sweeps([tmp_path])
    board = build_leaderboard(sweep)
    assert [world.state for world in board.worlds] == ["unknown", "unknown", "unknown", "clean"]
    assert all(standing.scores["worst_last"].value is None for standing in board.standings)
    assert all(standing.scores["main_lost"].value is None for standing in board.standings)
    assert standing_of(board, "krum").missing == 4
    assert standing_of(board, "fedavg").missing == 12


def test_defenses_of_one_name_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    axes = {**AXES, "attack.name": ["cba"], "defense.clusters": [4, 11]}
    make_sweep(tmp_path, axes, make_round, name="cpu/board", leaderboard=True)
    names = [standing.defense for standing in read_board(tmp_path).standings]
    assert sorted(names)[-2:] == ["snowball, clusters 11", "snowball, clusters 4"]


def test_every_number_of_the_page_leads_to_its_runs(folder: Path, board: Leaderboard) -> None:
    (sweep,), _ = read_sweeps([folder])
    runs = find_runs([folder])
    table = build_leaderboard_table(sweep, {run.path.resolve(): place for place, run in enumerate(runs)})
    (krum,) = (line for line in table.lines if line.defense == "krum")
    worst = krum.numbers[list(COLUMNS).index("worst_last")]
    assert (worst.mean, worst.spread, worst.key) == ("40.0", "14.1", "0.4")
    assert [runs[place].path.name.split("-")[1:4] for place in worst.runs] == [
        ["cba", "krum", "1"],
        ["cba", "krum", "2"],
    ]
    assert [entry.mean for entry in krum.worlds] == ["40.0", "0.0", "90.0", "33.3"]
    assert table.summary == "2 of 3 worlds with an attack count"


def test_the_page_draws_worlds_that_do_not_count_in_grey(folder: Path, tmp_path: Path) -> None:
    sweeps, faults = read_sweeps([folder])
    write_html(find_runs([folder]), tmp_path / "page.html", sweeps, faults)
    page = (tmp_path / "page.html").read_text()
    assert "Leaderboard: A made-up table" in page
    (head,) = (part for part in page.split("<th ") if ">weak</button>" in part)
    assert 'class="faint"' in head
    assert "FedAvg ends at 30.0 %; FedAvg does not learn this backdoor" in head
    (counts,) = (part for part in page.split("<th ") if ">dba</button>" in part)
    assert "faint" not in counts


def test_leaderboards_are_exported(folder: Path, tmp_path: Path, board: Leaderboard) -> None:
    sweeps, _ = read_sweeps([folder])
    files = {file.name for file in write_exports(sweeps, tmp_path)}
    assert {"cpu-board-leaderboard.csv", "cpu-board-leaderboard.md", "cpu-board.csv"} <= files
    lines = list(csv.DictReader(StringIO(format_leaderboard_csv(board))))
    (worst,) = (line for line in lines if (line["defense"], line["number"]) == ("krum", "worst_last"))
    assert (worst["value"], worst["missing"], len(worst["runs"].split())) == ("0.4", "0", 2)
    assert "| krum | 40.0 ± 14.1 | 20.0 ± 12.6 |" in (tmp_path / "cpu-board-leaderboard.md").read_text()
    assert build_terminal_leaderboard(board).row_count == 4


def test_a_sweep_without_the_setting_has_no_leaderboard(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]})
    (sweep,), _ = read_sweeps([tmp_path])
    assert not sweep.leaderboard
