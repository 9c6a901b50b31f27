"""A line of progress, in a notebook or on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from snowball.records.rounds import RoundRecord
from snowball.report.runs import format_duration

Update = Callable[[int, str], None]
"""Shows how many rounds are done, and a text."""


@contextmanager
def show_progress(total: int, wanted: bool = True) -> Iterator[Update]:
    """Show progress towards a number of rounds, if it is wanted and if somebody can see it."""
    console = Console(stderr=True)
    if wanted and console.is_jupyter:
        yield NotebookLine(total)
    elif wanted and console.is_terminal:
        with open_bar(total, console) as update:
            yield update
    else:
        yield lambda done, text: None


@contextmanager
def open_bar(total: int, console: Console) -> Iterator[Update]:
    """Show a bar on a terminal."""
    columns = (BarColumn(12), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn(compact=True))
    with Progress(*columns, TextColumn("{task.description}", markup=False), console=console) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda done, text: progress.update(task, completed=done, description=text)


class NotebookLine:
    """A bar in the output of a notebook's cell."""

    def __init__(self, total: int) -> None:
        from IPython.display import display

        self.total, self.started = total, monotonic()
        self.before: int | None = None  # rounds of an earlier call
        self.handle = display(Line(format_line(0, total, "starting")), display_id=True)

    def __call__(self, done: int, text: str) -> None:
        """Show how many rounds are done, a text, and the time that the others will take."""
        self.before = max(0, done - 1) if self.before is None else self.before
        left = (monotonic() - self.started) / max(1, done - self.before) * (self.total - done)
        ending = f", {format_duration(left)} left" if done < self.total else ""
        self.handle.update(Line(format_line(done, self.total, f"{text}{ending}")))


@dataclass(frozen=True)
class Line:
    """HTML that a notebook shows."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def format_line(done: int, total: int, text: str) -> str:
    """Format a bar and its text as HTML."""
    return f'<progress value="{done}" max="{total}"></progress> {done}/{total} {escape(text)}'


def describe_round(record: RoundRecord) -> str:
    """Summarise a round in one line."""
    text = f"accuracy {record['main_accuracy']:.1%}"
    if record["backdoor_accuracy"] is not None:
        text += f", backdoor {record['backdoor_accuracy']:.1%}"
    text += f", {sum(record['elected'])} of {len(record['elected'])} elected"
    if "dropped" in record:
        text += f", dropped: {', '.join(f'{client} ({reason})' for client, reason in record['dropped'].items())}"
    return f"{text}, the model stays: {record['kept']}" if "kept" in record else text
