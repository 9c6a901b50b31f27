"""The HTML page of runs and the sweeps that they belong to."""

from collections.abc import Sequence
from pathlib import Path

from snowball.errors import RunError
from snowball.records.run import RunFolder
from snowball.report.compare import Difference, find_differences
from snowball.report.data import describe_data
from snowball.report.figures import Figure, build_figures
from snowball.report.prose import write_headline, write_prose
from snowball.report.sweeps import Sweep
from snowball.report.triggers import build_trigger_figures as trigger_figures
from snowball.report.web.html import bundle_scripts, encode_json, pack_text, read_asset, write_page
from snowball.report.web.leaderboard import build_leaderboard_table, describe_world
from snowball.report.web.run_index import (
    MAX_OPEN_RUNS,
    IndexedRun,
    build_columns,
    build_run_index,
    describe_target_shares,
)
from snowball.report.web.sweep_figures import build_figure_payload
from snowball.report.web.sweep_prose import write_paper_headline, write_paper_prose
from snowball.report.web.sweep_tables import PaperTable, build_paper_table

SCRIPTS = (
    "unpack.js",
    "scales.js",
    "plots.js",
    "drawing.js",
    "marks.js",
    "curves.js",
    "elections.js",
    "participants.js",
    "clients.js",
    "runs.js",
    "search.js",
    "cells.js",
    "figures.js",
    "page.js",
)
"""The page's own script in parts, the last of which starts it."""


def write_html(
    folders: Sequence[RunFolder],
    path: str | Path,
    sweeps: Sequence[Sweep] = (),
    faults: list[str] | None = None,
    figures: Sequence[Figure | None] | None = None,
) -> None:
    """Write these runs as one self-contained HTML page, with the tables and figures of these sweeps on top.

    `faults` are sentences about what is missing from the report. Runs that cannot be read add to them; without such a
    list, they are an error. `figures` are those of the sweeps, if they are built already.
    """
    entries = build_run_index(folders, faults)
    if not entries:
        raise RunError(f"{path} is not written: there is no run to report on")
    indices = {entry.folder.path.resolve(): index for index, entry in enumerate(entries)}
    tables = [table for sweep in sweeps if (table := build_paper_table(sweep, indices))]
    boards = [build_leaderboard_table(sweep, indices) for sweep in sweeps if sweep.leaderboard]
    figures = build_figures(sweeps, faults) if figures is None else figures
    drawn = [build_figure_payload(each, sweep, indices) for sweep, each in zip(sweeps, figures, strict=True) if each]
    rows, shown = [entry.row for entry in entries], [entry.folder for entry in entries]
    write_page(
        path,
        read_asset("page.html.j2"),
        [read_asset("page.css"), read_asset("runs.css"), read_asset("paper.css")],
        [bundle_scripts(*SCRIPTS)],
        {"runs": [entry.plain() for entry in entries], "first": _choose_first(tables)},
        headline=write_paper_headline(tables, len(drawn), len(rows)) if sweeps else write_headline(rows),
        story=write_paper_prose(tables, sweeps, rows) if sweeps else write_prose(rows),
        tables=tables,
        boards=boards,
        describe_world=describe_world,
        drawn=drawn,
        packed_figures=pack_text(encode_json(drawn)),
        differences=_compare_with_paper(entries, sweeps),
        faults=list(dict.fromkeys(faults or ())),
        entries=entries,
        columns=build_columns(entries),
        design=describe_target_shares(entries),
        many=len(entries) > MAX_OPEN_RUNS or bool(sweeps),  # numbers in a table link to runs, and back
        triggers=trigger_figures(shown),
        loaded=describe_data(shown),
    )


def _choose_first(tables: Sequence[PaperTable]) -> int:
    """Return the index of the run whose peers the curves show first: one of the first column of the first table."""
    boxes = (boxes[0] for table in tables for _, boxes in table.rows if boxes)
    return next((box.runs[0] for box in boxes if box.runs), 0)


def _compare_with_paper(entries: Sequence[IndexedRun], sweeps: Sequence[Sweep]) -> list[Difference]:
    """List the settings in which the sweeps' runs differ from the paper's."""
    varied: dict[Path, set[str]] = {}
    for run in (run for sweep in sweeps for run in sweep.runs):
        varied.setdefault(run.folder.resolve(), set()).update(run.at)
    folders = [entry.folder for entry in entries if entry.folder.path.resolve() in varied]
    return find_differences((folder, varied[folder.path.resolve()]) for folder in folders)
