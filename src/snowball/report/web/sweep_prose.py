"""Sweeps in words: the comparison with the paper, and the outcomes of the runs."""

from collections import Counter
from collections.abc import Sequence

from snowball.report.prose import write_headline
from snowball.report.runs import Row
from snowball.report.sweeps import Sweep
from snowball.report.web.sweep_tables import PaperTable, describe_agreement


def write_paper_headline(tables: Sequence[PaperTable], figures: int, runs: int) -> str:
    """Count tables, figures and runs in one line."""
    counts = {"table": len(tables), "figure": figures}
    shown = " and ".join(_count_noun(count, noun) for noun, count in counts.items() if count)
    beside = ", beside the published numbers" if any(table.source for table in tables) else ""
    return f"{shown or 'Nothing to show'} from {_count_noun(runs, 'run')}{beside}."


def write_paper_prose(tables: Sequence[PaperTable], sweeps: Sequence[Sweep], rows: Sequence[Row]) -> str:
    """Say how the numbers compare with the published ones, and how the runs ended."""
    asked = {run.folder.resolve(): run.state for sweep in sweeps for run in sweep.runs}
    finished = sum(state == "finished" for state in asked.values())
    compared = sum((table.compared for table in tables), Counter[str]())
    return " ".join(
        filter(
            None,
            (describe_agreement(compared), f"{finished} of {len(asked)} runs have finished.", write_headline(rows)),
        )
    )


def _count_noun(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
