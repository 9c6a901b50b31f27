"""The page on runs and on the sweeps that they belong to."""

from collections.abc import Sequence
from pathlib import Path

from snowball.errors import RunError
from snowball.records.run import RunFolder
from snowball.report.compare import Difference, differences
from snowball.report.data import loaded
from snowball.report.figures import Figure, figures_of
from snowball.report.prose import OUTCOMES, headline, story
from snowball.report.sweeps import Sweep
from snowball.report.triggers import figures as trigger_figures
from snowball.report.web.html import asset, bundle, pack, safe_json, write_page
from snowball.report.web.run_index import FEW, Entry, catalogue, columns
from snowball.report.web.sweep_figures import paper_figure
from snowball.report.web.sweep_prose import paper_headline, paper_story
from snowball.report.web.sweep_tables import paper_table

SCRIPTS = (
    "unpack.js",
    "plots.js",
    "curves.js",
    "elections.js",
    "participants.js",
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
    """Write the report on these runs to one self-contained page, with the tables and figures of these sweeps on top.

    Faults are sentences on what is not in the report. What cannot be read of the runs adds to them; without such a
    list it is an error. Figures are those of the sweeps, where they are made already.
    """
    entries = catalogue(folders, faults)
    if not entries:
        raise RunError(f"{path} is not written: there is no run to report on")
    from plotly.offline import get_plotlyjs  # slow to import, and no other page needs it

    places = {entry.folder.path.resolve(): place for place, entry in enumerate(entries)}
    tables = [table for sweep in sweeps if (table := paper_table(sweep, places))]
    figures = figures_of(sweeps, faults) if figures is None else figures
    drawn = [paper_figure(each, sweep, places) for sweep, each in zip(sweeps, figures, strict=True) if each]
    rows, shown = [entry.row for entry in entries], [entry.folder for entry in entries]
    write_page(
        path,
        asset("page.html.j2"),
        [asset("page.css"), asset("runs.css"), asset("paper.css")],
        [bundle(*SCRIPTS)],
        {"runs": [entry.plain() for entry in entries], "outcomes": OUTCOMES},
        get_plotlyjs(),
        headline=paper_headline(tables, len(drawn), len(rows)) if sweeps else headline(rows),
        story=paper_story(tables, sweeps, rows) if sweeps else story(rows),
        tables=tables,
        drawn=drawn,
        packed_figures=pack(safe_json(drawn)),
        differences=_differences(entries, sweeps),
        faults=list(dict.fromkeys(faults or ())),
        entries=entries,
        columns=columns(entries),
        many=len(entries) > FEW or bool(sweeps),  # a number of a table leads to a run, and back
        triggers=trigger_figures(shown),
        loaded=loaded(shown),
    )


def _differences(entries: Sequence[Entry], sweeps: Sequence[Sweep]) -> list[Difference]:
    """How the sweeps' runs differ from the paper's."""
    varied: dict[Path, set[str]] = {}
    for run in (run for sweep in sweeps for run in sweep.runs):
        varied.setdefault(run.folder.resolve(), set()).update(run.at)
    folders = [entry.folder for entry in entries if entry.folder.path.resolve() in varied]
    return differences((folder, varied[folder.path.resolve()]) for folder in folders)
