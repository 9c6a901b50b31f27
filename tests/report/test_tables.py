from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from sweeps_made import AXES, TABLE

from snowball.report import Cell, Sweep, SweepTable, build_sweep_table
from snowball.report.sweeps import Run

SEEDS = (1, 2, 3)


def run(metrics: dict[str, float], **at: Any) -> Run:
    """A finished run at a place; `data_name` stands for data.name."""
    place = {path: values[0] for path, values in AXES.items()}
    place |= {name.replace("_", ".", 1): value for name, value in at.items()}
    name = "-".join(map(str, place.values()))
    return Run(name, Path(name), place, "finished", metrics)


def sweep(runs: list[Run], **changes: Any) -> Sweep:
    return replace(Sweep(Path(), "s", "t", None, TABLE, None, runs), **changes)


def runs(backdoor: dict[str, float], **at: Any) -> list[Run]:
    """A run a defense and seed."""
    return [
        run({"backdoor_accuracy": value + 0.01 * seed, "main_accuracy": 0.9}, defense_name=name, seed=seed, **at)
        for name, value in backdoor.items()
        for seed in SEEDS
    ]


def best_rows(grid: SweepTable) -> dict[str, set[str]]:
    """The rows that are best, a column."""
    found: dict[str, set[str]] = {}
    for row, column in grid.best:
        found.setdefault(" ".join(grid.column_labels[column]), set()).add(" ".join(grid.row_labels[row]))
    return found


def test_a_cell_has_mean_and_spread_over_seeds() -> None:
    cell = build_sweep_table(sweep(runs({"krum": 0.5}))).cells[0][0]
    assert cell.values["backdoor_accuracy"] == [0.51, 0.52, 0.53]
    assert cell.mean("backdoor_accuracy") == pytest.approx(0.52)
    assert cell.spread("backdoor_accuracy") == pytest.approx(stdev([0.51, 0.52, 0.53]))
    assert cell.runs == [f"mnist-cba-krum-{seed}" for seed in SEEDS]
    assert cell.at == {"data.name": "mnist", "attack.name": "cba", "defense.name": "krum"}
    assert (cell.expected, cell.missing()) == (3, "")


@pytest.mark.parametrize(("values", "mean", "spread"), [([], None, None), ([0.5], 0.5, None), ([0.5, 0.5], 0.5, 0.0)])
def test_few_numbers_have_no_spread(values: list[float], mean: float | None, spread: float | None) -> None:
    cell = Cell({"main_accuracy": values}, [], 3, {})
    assert (cell.mean("main_accuracy"), cell.spread("main_accuracy")) == (mean, spread)
    assert cell.mean("backdoor_accuracy") is None
    assert cell.spread("backdoor_accuracy") is None


def test_only_finished_runs_count_and_the_cell_says_how_many_there_are() -> None:
    found = runs({"krum": 0.5})
    found[1] = replace(found[1], state="failed", sentence="no memory", metrics={})
    found[2] = replace(found[2], state="unfinished")  # even with numbers
    cell = build_sweep_table(sweep(found)).cells[0][0]
    assert cell.values["backdoor_accuracy"] == [0.51]
    assert cell.missing() == "1 of 3, 1 failed"
    assert cell.failed == {found[1].name: "no memory"}


def test_a_cell_whose_runs_are_not_there_says_so() -> None:
    missing = [replace(each, state="missing", metrics={}) for each in runs({"krum": 0.5})]
    cell = build_sweep_table(sweep(missing)).cells[0][0]
    assert (cell.missing(), cell.mean("backdoor_accuracy"), cell.runs) == ("0 of 3", None, [])


def test_rows_and_columns_come_as_the_table_has_them() -> None:
    places = [("cba", "mnist"), ("cba", "cifar10"), ("dba", "mnist"), ("dba", "cifar10"), ("text", "sent140")]
    found = [
        each for attack, data in places for each in runs({"ideal": 0, "krum": 1}, data_name=data, attack_name=attack)
    ]
    grid = build_sweep_table(sweep(found))
    assert (grid.row_names, grid.column_names) == (["defense.name"], ["data.name", "attack.name"])
    assert grid.row_labels == [("ideal",), ("krum",)]
    assert grid.column_labels == [
        ("mnist", "cba"),
        ("mnist", "dba"),
        ("cifar10", "cba"),
        ("cifar10", "dba"),
        ("sent140", "text"),
    ]
    for labels, line in zip(grid.row_labels, grid.cells, strict=True):
        for more, cell in zip(grid.column_labels, line, strict=True):
            assert (cell.at["defense.name"], cell.at["data.name"], cell.at["attack.name"]) == (*labels, *more)


def test_what_the_sweep_does_not_ask_for_is_an_empty_cell() -> None:
    found = runs({"ideal": 0, "flip": 0}) + runs({"ideal": 0}, data_name="cifar10")
    cell = build_sweep_table(sweep(found)).cells[1][1]
    assert (cell.expected, cell.missing(), cell.mean("backdoor_accuracy"), cell.published) == (0, "", None, {})


def test_without_a_table_there_is_a_row_a_defense_and_a_column_for_what_differs() -> None:
    found = runs({"ideal": 0, "krum": 0}, data_alpha=0.1) + runs({"ideal": 0, "krum": 0}, data_alpha=1.0)
    grid = build_sweep_table(sweep(found, table=None))
    assert (grid.row_names, grid.column_names) == (["defense.name"], ["data.alpha"])
    assert (grid.row_labels, grid.column_labels) == ([("ideal",), ("krum",)], [("0.1",), ("1.0",)])
    assert grid.metrics == ["backdoor_accuracy", "main_accuracy"]


def test_no_mean_is_taken_over_anything_but_seeds() -> None:
    found = runs({"krum": 0.1}, data_alpha=0.1) + runs({"krum": 0.6}, data_alpha=1.0)
    grid = build_sweep_table(sweep(found))
    assert grid.column_names == ["data.name", "attack.name", "data.alpha"]
    assert [cell.mean("backdoor_accuracy") for cell in grid.cells[0]] == pytest.approx([0.12, 0.62])


def test_a_table_may_have_no_columns() -> None:
    grid = build_sweep_table(sweep(runs({"ideal": 0, "krum": 0}), table=TABLE | {"columns": []}))
    assert (grid.column_names, grid.column_labels) == ([], [()])
    assert [len(line) for line in grid.cells] == [1, 1]


def test_labels_can_be_seen_whatever_the_values_are() -> None:
    values = [None, True, 10**400, [1, "<b>"], {"a": None}, "\x1b[2J", "x" * 1000, "", 0.5]
    found = [run({}, data_alpha=value, seed=seed) for seed, value in enumerate(values)]
    labels = [label for (label,) in build_sweep_table(sweep(found, table=TABLE | {"rows": ["data.alpha"]})).row_labels]
    assert all(label.isprintable() and len(label) <= 61 for label in labels)
    assert labels[:2] + labels[3:6] + labels[7:] == ["–", "true", '[1, "<b>"]', '{"a": null}', r"\x1b[2J", "", "0.5"]  # noqa: RUF001


def test_paths_can_be_seen_whatever_the_table_says() -> None:
    grid = build_sweep_table(sweep(runs({"krum": 0}), table={"rows": ["a\x1b[2J"], "columns": ["b\u202e"]}))
    assert (grid.row_names, grid.column_names) == ([r"a\x1b[2J"], [r"b\u202e"])
    assert (grid.row_labels, grid.column_labels) == ([("–",)], [("–",)])  # noqa: RUF001


def test_the_published_number_is_that_of_all_the_settings() -> None:
    found = runs({"snowball": 0.002, "krum": 0.5}) + runs({"snowball": 0.002}, data_name="fashion-mnist")
    grid = build_sweep_table(sweep(found, published="label-skew"))
    assert grid.cells[0][0].published == {"backdoor_accuracy": 0.0021, "main_accuracy": 0.9872}
    assert grid.cells[0][1].published == {"backdoor_accuracy": 0.0039, "main_accuracy": 0.8927}
    assert grid.cells[1][0].published == {"backdoor_accuracy": 0.9998, "main_accuracy": 0.9871}
    assert build_sweep_table(sweep(found)).cells[0][0].published == {}


def test_settings_that_are_no_row_and_no_column_count_for_the_published_number_too() -> None:
    table = TABLE | {"rows": ["defense.name"], "columns": ["data.alpha"]}
    found = [each for alpha in (0.1, 1, 0.7) for each in runs({"krum": 0.5}, data_alpha=alpha, attack_malicious=0.2)]
    cells = build_sweep_table(sweep(found, table=table, published="alpha-malicious")).cells[0]
    assert [cell.published.get("main_accuracy") for cell in cells] == [0.9723, 0.9886, None]
    others = [replace(each, at=each.at | {"data.name": "cifar10"}) for each in found]
    assert not any(
        cell.published for cell in build_sweep_table(sweep(others, table=table, published="alpha-malicious")).cells[0]
    )


def test_only_metrics_that_are_shown_have_a_published_number() -> None:
    found = [run({"last_main_accuracy": 0.5, "main_accuracy": 0.6}, defense_name="krum")]
    values = {"values": ["last_main_accuracy", "main_accuracy"]}
    cell = build_sweep_table(sweep(found, published="label-skew", table=TABLE | values)).cells[0][0]
    assert cell.published == {"main_accuracy": 0.9871}
    assert cell.difference("last_main_accuracy") is None
    assert cell.difference("main_accuracy") == pytest.approx(0.6 - 0.9871)


@pytest.mark.parametrize(
    ("metric", "ours", "published", "word"),
    [
        ("backdoor_accuracy", 0.35, 0.2, "worse"),
        ("backdoor_accuracy", 0.05, 0.2, "better"),
        ("backdoor_accuracy", 0.29, 0.2, "alike"),
        ("backdoor_accuracy", 0.11, 0.2, "alike"),
        ("main_accuracy", 0.35, 0.2, "better"),
        ("main_accuracy", 0.05, 0.2, "worse"),
        ("false_positive_rate", 0.5, 0.2, "worse"),
        ("false_negative_rate", 0.0, 0.2, "better"),
    ],
)
def test_ten_points_make_another_result(metric: str, ours: float, published: float, word: str) -> None:
    assert Cell({metric: [ours]}, ["a"], 1, {metric: published}).compared(metric) == word
    assert Cell({metric: [ours]}, ["a"], 1, {}).compared(metric) is None
    assert Cell({metric: []}, [], 1, {metric: published}).compared(metric) is None


def test_the_best_realistic_approach_is_marked_in_every_column() -> None:
    found = runs({"ideal": 0, "fedavg": 0, "krum": 0.5, "snowball": 0.1})
    found += runs({"ideal": 0, "fedavg": 0, "krum": 0.2, "snowball": 0.3}, data_name="cifar10")
    assert best_rows(build_sweep_table(sweep(found))) == {"mnist cba": {"snowball"}, "cifar10 cba": {"krum"}}


def test_the_first_metric_decides_and_its_own_way_is_up() -> None:
    found = [
        run({"main_accuracy": main, "backdoor_accuracy": 1 - main}, defense_name=name)
        for name, main in (("krum", 0.3), ("dnc", 0.7))
    ]
    grid = build_sweep_table(sweep(found, table=TABLE | {"values": ["main_accuracy", "backdoor_accuracy"]}))
    assert best_rows(grid) == {"mnist cba": {"dnc"}}


def test_ties_are_all_best() -> None:
    assert best_rows(build_sweep_table(sweep(runs({"krum": 0.1, "dnc": 0.1, "rlr": 0.2})))) == {
        "mnist cba": {"krum", "dnc"}
    }


def test_one_approach_alone_is_not_best() -> None:
    assert build_sweep_table(sweep(runs({"ideal": 0, "fedavg": 0, "krum": 0.5}))).best == frozenset()


def test_an_approach_without_a_number_is_not_best() -> None:
    found = runs({"krum": 0.1, "dnc": 0.2, "rlr": 0.3})
    found = [replace(each, state="missing", metrics={}) if "krum" in each.name else each for each in found]
    assert best_rows(build_sweep_table(sweep(found))) == {"mnist cba": {"dnc"}}


def test_approaches_compete_under_the_same_conditions_alone() -> None:
    found = runs({"krum": 0.5, "snowball": 0.4}, data_alpha=0.1) + runs({"krum": 0.1, "snowball": 0.2}, data_alpha=1.0)
    grid = build_sweep_table(sweep(found, table=TABLE | {"rows": ["data.alpha", "defense.name"]}))
    assert best_rows(grid) == {"mnist cba": {"0.1 snowball", "1.0 krum"}}


WORST = {"table": TABLE | {"worst": "attack.target"}}


def test_a_cell_shows_the_worst_value_of_a_setting() -> None:
    found = [each for target in (1, 3) for each in runs({"krum": 0.1 * target, "snowball": 0.4}, attack_target=target)]
    table = build_sweep_table(sweep(found, **WORST))
    krum, snowball = (line[0] for line in table.cells)
    assert table.column_names == ["data.name", "attack.name"]
    assert krum.values["backdoor_accuracy"] == pytest.approx([0.31, 0.32, 0.33])
    assert krum.worst == {"backdoor_accuracy": "3", "main_accuracy": "1"}
    assert snowball.worst["backdoor_accuracy"] == "1"  # the first of equals
    assert (krum.expected, krum.missing(), len(krum.runs)) == (6, "", 6)
    assert best_rows(table) == {"mnist cba": {"krum"}}


def test_the_worst_of_accuracies_is_the_lowest_mean_and_not_the_lowest_number() -> None:
    numbers = {1: [0.9, 0.5, 0.9], 3: [0.7, 0.7, 0.7], 5: [0.8, 0.8, 0.8]}
    found = [
        run({"main_accuracy": value}, attack_target=target, seed=seed)
        for target, values in numbers.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]
    cell = build_sweep_table(sweep(found, **WORST)).cells[0][0]
    assert (cell.values["main_accuracy"], cell.worst) == ([0.7] * 3, {"main_accuracy": "3"})


def test_without_finished_runs_there_is_no_worst() -> None:
    found = [replace(each, state="missing", metrics={}) for each in runs({"krum": 0.5}, attack_target=1)]
    cell = build_sweep_table(sweep(found, **WORST)).cells[0][0]
    assert (cell.worst, cell.mean("backdoor_accuracy"), cell.missing()) == ({}, None, "0 of 3")


def test_without_such_a_setting_the_values_are_columns() -> None:
    found = [each for target in (1, 3) for each in runs({"krum": 0.1}, attack_target=target)]
    table = build_sweep_table(sweep(found))
    assert table.column_names == ["data.name", "attack.name", "attack.target"]
    assert [cell.worst for cell in table.cells[0]] == [{}, {}]
