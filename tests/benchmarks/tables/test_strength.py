"""The tables of snowball-plus: the cells in each table, and means over the seeds that count."""

from typing import Any

import pytest

from benchmarks.tables import strength


def make_run(defense: str, backdoor: float | None, seed: int = 11, **changed: Any) -> dict[str, Any]:
    numbers = {"main_accuracy": 0.9 if defense == "fedavg" else 0.88, "backdoor_accuracy": backdoor}
    where = {"world": "mnist-a0.5-m30", "attack": "cba", "defense": defense, "seed": seed}
    shares = {"honest_left_out": 0.0, "infected_elected": 1.0 if defense == "fedavg" else 0.25}
    return {**where, "last": numbers, **shares, "clients": {"most_share": seed / 100}, **changed}


RUNS = [
    *(make_run("fedavg", 0.99, seed) for seed in (11, 12)),
    make_run("fedavg", 0.3, 13),  # does not learn it, so that this seed does not count
    *(make_run("ideal", 0.01, seed) for seed in (11, 12, 13)),
    make_run("snowball-plus", 0.02),
    make_run("snowball-plus", 0.04, 12),
    make_run("snowball-plus", 0.9, 13),
    make_run("fedavg", 0.5, attack="dba"),
    make_run("snowball-plus", 0.4, attack="dba"),
    make_run("fedavg", 0.9, 12, attack="dba"),  # with a seed that the defense was not run with
    make_run("fedavg", None, world="mnist-a0.5-m20", attack="clean"),
    make_run("snowball-plus", None, world="mnist-a0.5-m20", attack="clean", honest_left_out=0.01),
    make_run("fedavg", 0.99, attack="blended"),  # without a run of the defense, there is nothing to say
    {"world": "mnist-a1-m20", "attack": "cba", "defense": "snowball-plus", "seed": 11, "fault": "it ended"},
]


@pytest.fixture(autouse=True)
def known_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strength, "read_result", lambda name: {"runs": RUNS})


def read_lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_attacked_cells_are_means_over_the_seeds_that_count() -> None:
    cells = ["2", "99.0", "1.0", "3.0", "25.0", "2.0", "0.0", "11.5"]
    assert read_lines(strength.tabulate_attacked_cells()) == [["mnist-a0.5-m30", "cba", *cells]]
    assert "Snowball's" not in strength.tabulate_attacked_cells()


def test_snowball_has_a_column_where_it_was_run_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        *RUNS,
        make_run("snowball", 0.6, 11),
        make_run("snowball", 0.1, 13),  # a seed that does not count
        make_run("snowball-plus", 0.02, attack="blended"),  # which has no run of Snowball
        make_run("snowball:clusters=4", 0.7),  # which is not as published
    ]
    monkeypatch.setattr(strength, "read_result", lambda name: {"runs": runs})
    table = strength.tabulate_attacked_cells()
    assert "| FedAvg's backdoor | Ideal's | Snowball's | backdoor | infected averaged | main lost |" in table
    assert read_lines(table) == [
        ["mnist-a0.5-m30", "cba", "2", "99.0", "1.0", "60.0", "3.0", "25.0", "2.0", "0.0", "11.5"],
        ["mnist-a0.5-m30", "blended", "1", "99.0", "", "", "2.0", "25.0", "2.0", "0.0", "11.0"],
    ]


def test_what_fedavg_does_not_learn_stands_apart() -> None:
    assert read_lines(strength.tabulate_unlearned()) == [["mnist-a0.5-m30", "dba", "1", "50.0", "", "40.0"]]


def test_clean_federations_stand_apart() -> None:
    assert read_lines(strength.tabulate_clean()) == [["mnist-a0.5-m20", "1", "2.0", "1.0"]]


def test_the_ablation_has_a_column_per_missing_ballot(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        make_run("fedavg", 0.99),
        make_run("snowball-plus", 0.01),
        make_run('snowball-plus:without=["crowd"]', 0.5),
        make_run("snowball-plus", 0.02, attack="dba"),
    ]
    monkeypatch.setattr(strength, "read_result", lambda name: {"runs": runs})
    table = strength.tabulate_ablation()
    assert "| world | attack | FedAvg's backdoor | Ideal's | all ballots | no crowd |" in table
    assert read_lines(table) == [
        ["mnist-a0.5-m30", "cba", "99.0", "", "1.0", "50.0"],
        ["mnist-a0.5-m30", "dba", "", "", "2.0", ""],
    ]


def test_the_ablation_of_clean_federations_shows_main_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        make_run("fedavg", None, attack="clean"),
        make_run("snowball-plus", 0.01),
        make_run('snowball-plus:without=["crowd","position"]', None, attack="clean"),
    ]
    monkeypatch.setattr(strength, "read_result", lambda name: {"runs": runs})
    table = strength.tabulate_clean_ablation()
    assert "| world | attack | FedAvg | norm-clip | all ballots | no crowd, no position |" in table
    main = [f"{100 * run['last']['main_accuracy']:.1f}" for run in (runs[0], runs[2])]
    assert read_lines(table) == [["mnist-a0.5-m30", "clean", main[0], "", "", main[1]]]
