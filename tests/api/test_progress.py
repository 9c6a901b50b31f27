"""The line of progress: on a terminal and in a notebook, and nowhere else."""

import io
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from snowball.api import progress
from snowball.api.progress import format_line, open_bar, show_progress


def test_nothing_is_shown_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with show_progress(2) as update:
        update(1, "accuracy 50.0%")
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_with_the_text_as_it_is() -> None:
    screen = io.StringIO()
    with open_bar(2, Console(file=screen, force_terminal=True, width=100)) as update:
        update(1, "dropped: [bold] (norm)")
    assert "1/2" in screen.getvalue()
    assert "dropped: [bold] (norm)" in screen.getvalue()


class Display:
    """Records what a notebook would show."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, line: Any, display_id: bool) -> "Display":
        assert display_id
        self.shown.append(line._repr_html_())
        return self

    def update(self, line: Any) -> None:
        self.shown.append(line._repr_html_())


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Display:
    display = Display()
    for name in ("IPython", "IPython.display"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["IPython.display"], "display", display, raising=False)
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(stderr=stderr, force_jupyter=True))
    return display


def test_a_notebook_shows_one_line_that_is_updated(notebook: Display) -> None:
    with show_progress(2) as update:
        update(1, "accuracy 50.0% <b>")
        update(2, "accuracy 60.0%")
    start, first, last = notebook.shown
    assert start == format_line(0, 2, "starting")
    assert first.startswith('<progress value="1" max="2"></progress> 1/2 accuracy 50.0% &lt;b&gt;, ')
    assert first.endswith(" s left")
    assert last == format_line(2, 2, "accuracy 60.0%")


def test_a_notebook_counts_the_rounds_of_this_call_only(notebook: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    with show_progress(20) as update:
        update(15, "accuracy 50.0%")
    assert notebook.shown[-1].endswith(", 50 s left")


def test_progress_can_be_switched_off(notebook: Display) -> None:
    with show_progress(2, wanted=False) as update:
        update(1, "accuracy 50.0%")
    assert notebook.shown == []
