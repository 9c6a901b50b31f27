"""The result of a run: its records, in words, as a picture and as a page."""

from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from snowball.api.frames import Frame, make_frame
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import Summary, summarise_rounds
from snowball.report import build_rows, write_headline, write_report
from snowball.report.figures import build_run_figure
from snowball.report.runs import HEADERS, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST_FIELDS = ("round", "main_accuracy", "backdoor_accuracy", "false_positive_rate", "false_negative_rate")
"""The fields of a round that come first in a table."""


class RunResult:
    """What a run recorded, read from its folder; `str(result)` is the verdict.

    Attributes:
        folder: the folder of the records.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._records = RunFolder.open(folder)

    @cached_property
    def rounds(self) -> Frame:
        """The rounds, with the fields of `rounds.jsonl`: a pandas DataFrame, or a list of dicts without pandas."""
        return make_frame([order_fields(record) for record in self._records.read_rounds()])

    @cached_property
    def summary(self) -> Summary:
        """The numbers of `summary.json` as attributes, such as `summary.last.backdoor_accuracy`."""
        written = self._records.read_summary(complete=True)
        return summarise_rounds(self._records.read_rounds()) if written is None else written

    @property
    def verdict(self) -> str:
        """How the run ended, in one sentence."""
        return write_headline([self._row])

    def plot(self) -> "Figure":
        """Draw the accuracy and the backdoor over the rounds with matplotlib."""
        from snowball.report.export.matplotlib import draw_picture

        return draw_picture(build_run_figure(self.verdict, self._records.read_rounds()))

    def report(self, html: str | Path) -> Path:
        """Write a page on the run that opens offline, and return its path."""
        return write_report(self.folder, html)

    @cached_property
    def _row(self) -> Row:
        row = build_rows([self._records])[0]
        return replace(row, name=row.defense)  # the folder's name is long

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        return f"RunResult({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        shown = [(head, text) for head, text in zip(HEADERS, self._row.cells(), strict=True) if head != "Run"]
        heads = "".join(f"<th>{escape(head)}</th>" for head, _ in shown)
        cells = "".join(f"<td>{escape(text)}</td>" for _, text in shown)
        return f"<p>{escape(self.verdict)}</p><table><tr>{heads}</tr><tr>{cells}</tr></table>"


def order_fields(record: RoundRecord) -> dict[str, Any]:
    """Return a record with the fields that most people look at first."""
    fields = cast(dict[str, Any], record)
    return {name: fields[name] for name in dict.fromkeys((*FIRST_FIELDS, *fields))}
