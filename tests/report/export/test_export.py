import csv
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from snowball.report import Cell, Sweep, SweepTable, write_exports
from snowball.report.cell_text import write_legend, write_terminal_legend
from snowball.report.export.csv import format_csv
from snowball.report.export.latex import escape_latex, format_latex
from snowball.report.export.markdown import format_markdown
from snowball.report.export.terminal import build_terminal_tables
from snowball.report.export.write import choose_file_names
from snowball.report.runs import escape_markdown
from snowball.report.sweeps import Run

METRICS = ["backdoor_accuracy", "main_accuracy"]
HOSTILE = r"=1+|1|\input{x}%$&#_{}~^<b>*[](http://a.b)@me"


def cell(backdoor: list[float], main: float = 0.9, published: dict[str, float] | None = None, **changes: Any) -> Cell:
    names = [f"run-{number}" for number in range(len(backdoor))]
    values = {"backdoor_accuracy": backdoor, "main_accuracy": [main] * len(backdoor)}
    return replace(Cell(values, names, 3, published or {}), **changes)


GRID = SweepTable(
    title="Label skew",
    row_names=["defense.name"],
    row_labels=[("fedavg",), ("snowball",)],
    column_names=["data.name", "attack.name"],
    column_labels=[("mnist", "cba"), ("mnist", "dba"), ("cifar10", "cba")],
    metrics=METRICS,
    cells=[
        [
            cell([0.9, 0.95, 1.0], published={"backdoor_accuracy": 0.9997, "main_accuracy": 0.9897}),
            cell([], failed={"run-7": "no memory"}, published={"backdoor_accuracy": 1.0, "main_accuracy": 0.9886}),
            cell([], expected=0),
        ],
        [
            cell([0.001, 0.002, 0.003], published={"backdoor_accuracy": 0.0021, "main_accuracy": 0.9872}),
            cell([0.5, 0.6], published={"backdoor_accuracy": 0.0015}),
            cell([0.5], expected=1),
        ],
    ],
    best=frozenset({(1, 0)}),
)


def printed(grid: SweepTable, width: int = 180, colour: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None)
    for part in build_terminal_tables(grid, width):
        console.print(part)
    return file.getvalue()


def test_a_terminal_shows_mean_spread_published_number_and_what_is_missing() -> None:
    text = printed(GRID)
    cells = [[part.strip() for part in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert cells == [
        ["fedavg", "95.0 ± 5.0 (99.97)", "90.0 ± 0.0 (98.97)", "0 of 3, 1 failed (100.00)", "– (98.86)", "–", "–"],  # noqa: RUF001
        [
            "snowball",
            "0.2 ± 0.1 (0.21)",
            "90.0 ± 0.0 (98.72)",
            "55.0 ± 7.1 (0.15) [2 of 3]",
            "90.0 ± 0.0",
            "50.0",
            "90.0",
        ],
    ]
    assert "mnist dba" in text
    assert "MA" in text


def test_a_terminal_has_the_best_in_bold_and_what_is_far_from_published_in_colour() -> None:
    text = printed(GRID, colour=True)
    assert "\x1b[1m0.2\x1b[0m ± 0.1 (0.21)" in text
    assert "\x1b[31m55.0 ± 7.1 (0.15) [2 of 3]\x1b[0m" in text
    assert text.count("\x1b[31m") == 1
    assert "\x1b[32m" not in text
    better = replace(GRID, cells=[[cell([0.1], published={"backdoor_accuracy": 0.9})] * 3] * 2)
    assert "\x1b[32m10.0 (90.00) [1 of 3]" in printed(better, colour=True)


@pytest.mark.parametrize(("width", "tables"), [(180, 1), (130, 1), (110, 2), (60, 3), (20, 3)])
def test_a_table_that_is_too_wide_is_cut_between_columns(width: int, tables: int) -> None:
    parts = list(build_terminal_tables(GRID, width))
    assert len(parts) == tables
    assert sum(len(part.columns) - 1 for part in parts) == 6
    assert all(len(part.columns) % 2 == 1 for part in parts)
    if width > 60:
        assert all(len(line) <= width for line in printed(GRID, width).splitlines())
        assert printed(GRID, width).count("[2 of 3]") == 1  # which wrapped would be torn


def test_nothing_on_a_terminal_is_markup() -> None:
    text = printed(replace(GRID, row_labels=[("[red]fedavg[/red]",), (":smile:",)]))
    assert "[red]fedavg[/red]" in text
    assert ":smile:" in text


def test_seconds_are_no_percentages() -> None:
    timed = Cell({"defense_seconds": [0.5, 1.5]}, ["a", "b"], 2, {})
    grid = replace(GRID, metrics=["defense_seconds"], cells=[[timed] * 3] * 2, best=frozenset())
    assert "1 ± 0.707" in printed(grid)
    assert write_legend(grid) == "Mean ± standard deviation over seeds. defense, s: seconds of the defense per round."


def test_rounds_are_no_percentages() -> None:
    faded = Cell({"half_rounds": [7, 8], "later_backdoor_accuracy": [0.25]}, ["a", "b"], 2, {})
    grid = replace(GRID, metrics=["half_rounds"], cells=[[faded] * 3] * 2, best=frozenset())
    assert "7.5 ± 0.707" in printed(grid)
    assert "per cent" not in write_legend(grid)
    both = replace(grid, metrics=["half_rounds", "later_backdoor_accuracy"])
    assert ", in per cent." in write_legend(both)


def test_the_worst_value_of_a_setting_follows_the_number() -> None:
    worst = Cell({"backdoor_accuracy": [0.5]}, ["a"], 1, {}, worst={"backdoor_accuracy": "=7"})
    grid = replace(
        GRID, metrics=["backdoor_accuracy"], cells=[[worst] * 3] * 2, best=frozenset(), worst="attack.target"
    )
    assert "50.0 at =7" in printed(grid)
    assert write_legend(grid).startswith(
        "One seed, in per cent. Each number is that of the worst attack.target, which follows it. BA:"
    )
    rows = list(csv.DictReader(format_csv(grid).splitlines()))
    assert {row["worst attack.target"] for row in rows} == {"'=7"}
    assert "50.0 at =7" in format_latex(grid)
    assert not any("worst" in name for name in csv.DictReader(format_csv(GRID).splitlines()).fieldnames or ())


def test_the_legend_says_what_there_is() -> None:
    words = "BA: backdoor accuracy, best round; MA: main accuracy, best round."
    assert write_legend(GRID) == (
        "Mean ± standard deviation over seeds, in per cent, and the published number in brackets. "
        f"{words} Bold: the best realistic approach."
    )
    assert write_terminal_legend(GRID).endswith(
        " Red: over 10 points worse than published; green: over 10 points better."
    )
    bare = replace(GRID, cells=[[cell([0.1])] * 3] * 2, best=frozenset())
    assert write_legend(bare) == write_terminal_legend(bare) == f"One seed, in per cent. {words}"


def test_the_default_number_of_clusters_is_called_our_defaults() -> None:
    """In every format that people read; the CSV keeps the setting's value."""
    columns = replace(GRID, column_names=["defense.clusters"], column_labels=[("gap",), ("11",), ("12",)])
    rows = replace(GRID, row_names=["defense.clusters"], row_labels=[("gap",), ("11",)])
    for table in (columns, rows):
        texts = (format_markdown(table), format_latex(table), printed(table))
        assert all("our defaults" in text and "gap" not in text for text in texts)
        assert "gap" in format_csv(table)
    assert "clusters our defaults" not in format_markdown(columns)
    assert "clusters 11 BA" in format_markdown(columns)


def test_csv_has_a_line_a_number() -> None:
    rows = list(csv.DictReader(StringIO(format_csv(GRID))))
    assert len(rows) == 2 * 3 * 2
    assert rows[0] == {
        "defense.name": "fedavg",
        "data.name": "mnist",
        "attack.name": "cba",
        "metric": "backdoor_accuracy",
        "mean": "0.95",
        "spread": "0.05",
        "n": "3",
        "expected": "3",
        "published": "0.9997",
        "runs": "run-0 run-1 run-2",
    }
    assert (rows[2]["mean"], rows[2]["spread"], rows[2]["n"], rows[2]["runs"]) == ("", "", "0", "")
    assert rows[4]["published"] == ""


def test_csv_holds_no_formula() -> None:
    text = format_csv(replace(GRID, row_labels=[("=HYPERLINK(1)",), ('a,"b"',)], column_names=["@x", "-y"]))
    lines = list(csv.reader(StringIO(text)))
    assert lines[0][:3] == ["defense.name", "'@x", "'-y"]
    assert lines[1][0] == "'=HYPERLINK(1)"
    assert lines[7][0] == 'a,"b"'
    assert len({len(line) for line in lines}) == 1


def test_markdown_is_a_table_as_in_the_paper() -> None:
    assert format_markdown(GRID).splitlines() == [
        "# Label skew",
        "",
        "| defense | mnist cba BA | mnist cba MA | mnist dba BA | mnist dba MA | cifar10 cba BA | cifar10 cba MA |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| fedavg | 95.0 ± 5.0 (99.97) | 90.0 ± 0.0 (98.97) | 0 of 3, 1 failed (100.00) | – (98.86) | – | – |",  # noqa: RUF001
        r"| snowball | **0.2** ± 0.1 (0.21) | 90.0 ± 0.0 (98.72) | 55.0 ± 7.1 (0.15) \[2 of 3\] | 90.0 ± 0.0 | 50.0 "
        "| 90.0 |",
        "",
        write_legend(GRID),
    ]


def test_latex_is_a_table_as_in_the_paper() -> None:
    assert format_latex(GRID).splitlines() == [
        r"% needs \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering\footnotesize\setlength\tabcolsep{3pt}",
        r"\begin{tabular}{lrrrrrr}",
        r"\toprule",
        r" & \multicolumn{4}{c}{mnist} & \multicolumn{2}{c}{cifar10} \\",
        r"\cmidrule(lr){2-5} \cmidrule(lr){6-7}",
        r" & \multicolumn{2}{c}{cba} & \multicolumn{2}{c}{dba} & \multicolumn{2}{c}{cba} \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-5} \cmidrule(lr){6-7}",
        r"defense & BA & MA & BA & MA & BA & MA \\",
        r"\midrule",
        r"fedavg & 95.0 $\pm$ 5.0 (99.97) & 90.0 $\pm$ 0.0 (98.97) & 0 of 3, 1 failed (100.00) & -- (98.86) "
        r"& -- & -- \\",
        r"snowball & \textbf{0.2} $\pm$ 0.1 (0.21) & 90.0 $\pm$ 0.0 (98.72) & 55.0 $\pm$ 7.1 (0.15) {[}2 of 3{]} "
        r"& 90.0 $\pm$ 0.0 & 50.0 & 90.0 \\",
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{Label skew. {write_legend(GRID).replace('±', '$' + chr(92) + 'pm$')}}}",
        r"\end{table*}",
    ]


def test_latex_sets_groups_of_rows_apart() -> None:
    grid = replace(GRID, row_names=["defense.name", "data.alpha"], row_labels=[("krum", "0.1"), ("krum", "1.0")])
    assert r"\addlinespace" not in format_latex(grid)
    lines = format_latex(replace(grid, row_labels=[("krum", "0.1"), ("snowball", "0.1")])).splitlines()
    assert lines[lines.index(r"\addlinespace") + 1].startswith("snowball & 0.1 & ")
    assert lines[3] == r"\begin{tabular}{llrrrrrr}"
    assert lines[6] == r"\cmidrule(lr){3-6} \cmidrule(lr){7-8}"


def test_tables_without_columns_have_metrics_alone() -> None:
    grid = replace(GRID, column_names=[], column_labels=[()], cells=[line[:1] for line in GRID.cells])
    assert "| defense | BA | MA |" in format_markdown(grid)
    assert format_latex(grid).splitlines()[5] == r"defense & BA & MA \\"
    assert "│ snowball │ 0.2 ± 0.1 (0.21)" in printed(grid)


def test_columns_of_numbers_say_what_the_numbers_are() -> None:
    labels = [("mnist", "0.1"), ("mnist", "0.5"), ("cifar10", "0.5")]
    grid = replace(GRID, column_names=["data.name", "data.alpha"], column_labels=labels)
    assert "| mnist alpha 0.1 BA | mnist alpha 0.1 MA | mnist alpha 0.5 BA |" in format_markdown(grid)
    assert r" & \multicolumn{2}{c}{alpha 0.1} & \multicolumn{2}{c}{alpha 0.5} & " in format_latex(grid)
    assert "mnist alpha 0.5" in printed(grid)
    assert format_csv(grid).splitlines()[1].startswith("fedavg,mnist,0.1,backdoor_accuracy,")


def test_hostile_names_stay_in_their_cells() -> None:
    grid = replace(GRID, title=HOSTILE, row_labels=[(HOSTILE,), ("[b",)], column_labels=[(HOSTILE, HOSTILE)] * 3)
    rows = [line for line in format_markdown(grid).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {8}
    assert not re.search(r"(?<!\\)[<>`\[\]$@~]", format_markdown(grid))
    assert "http://" not in format_markdown(grid)
    latex = format_latex(grid)
    assert r"\input{" not in latex
    assert r"\textbackslash{}input\{x\}\%\$\&\#\_\{\}" in latex
    body = latex.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body.strip().splitlines()] == [6, 6]
    assert not re.search(r"^\s*[\[*]", body, re.MULTILINE)


@given(st.text())
def test_latex_obeys_nothing_in_a_text(text: str) -> None:
    commands = r"textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|ldots"
    harmless = re.sub(rf"\\(?:{commands})\{{\}}|\\[{{}}$&#_%]|\$\\pm\$|\{{[\[\]*]\}}", "", escape_latex(text))
    assert not set(harmless) & set("\\{}$&#_%~^[]*<>|")
    assert all(letter.isprintable() and ord(letter) < 256 for letter in harmless)


@given(st.text())
def test_markdown_obeys_nothing_in_a_text(text: str) -> None:
    harmless = re.sub(r"\\[\\|`*_<>\[\]~$&#@:]", "", escape_markdown(text))
    assert not set(harmless) & set("\\|`*_<>[]~$&#@:\n")


def test_every_sweep_is_written_in_every_format(tmp_path: Path) -> None:
    at = {"data.name": "mnist", "attack.name": "cba", "defense.name": "krum", "seed": 1}
    run = Run("r", tmp_path / "r", at, "finished", {"main_accuracy": 0.5})
    sweeps = [Sweep(tmp_path, name, "T", None, None, None, [run]) for name in ("cpu/table1", "cpu/table1", "../../x")]
    files = write_exports(sweeps, tmp_path / "new" / "out")
    names = ["cpu-table1", "cpu-table1-2", "------x"]
    assert files == [tmp_path / "new" / "out" / f"{name}.{ending}" for name in names for ending in ("csv", "md", "tex")]
    assert all(file.read_text(encoding="utf-8").endswith("\n") for file in files)
    assert "50.0" in files[1].read_text(encoding="utf-8")


@given(st.lists(st.text(min_size=1), max_size=6))
def test_names_of_files_are_plain_and_distinct(names: list[str]) -> None:
    found = choose_file_names(names)
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,110}", name) for name in found)
