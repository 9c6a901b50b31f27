"""The result of a rehearsal: a table of defenses under attacks, and what to choose."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from snowball.api.frames import Frame, make_frame
from snowball.records.sweep import read_failed
from snowball.rehearsal.measure import find_reference, measure_rehearsal, read_last_round
from snowball.rehearsal.plan import Rehearsal
from snowball.rehearsal.verdict import (
    MAX_ACCURACY_LOST,
    MAX_BACKDOOR,
    MAX_HONEST_LEFT_OUT,
    Cell,
    describe_attack,
    judge_cells,
    recommend_defense,
)

HEADERS = ("defense", "attack", "backdoor, %", "lost, points", "honest out, %", "verdict")
"""The columns of the table."""

BOUNDS = {"backdoor": MAX_BACKDOOR, "accuracy_lost": MAX_ACCURACY_LOST, "honest_left_out": MAX_HONEST_LEFT_OUT}
"""A defense holds within these bounds, as fractions; the backdoor counts above that of a clean model."""


@dataclass(frozen=True, eq=False)
class RehearsalResult:
    """What a rehearsal found; `str(result)` is what to choose.

    Attributes:
        folder: the folder of the runs.
        cells: every defense under every attack, with its verdict.
        clean_accuracy: main accuracy of a plain average while nobody attacks, by seed; without failed runs.
    """

    rehearsal: Rehearsal
    folder: Path
    cells: tuple[Cell, ...]
    clean_accuracy: dict[int, float]

    @property
    def defense(self) -> str | None:
        """The defense to choose; None if the rehearsal does not tell."""
        return recommend_defense(self.cells)[0]

    @property
    def recommendation(self) -> str:
        """What to choose, and why."""
        return recommend_defense(self.cells)[1]

    @property
    def guard(self) -> str | None:
        """The line of Python that makes the guard to start with; None if the rehearsal does not tell."""
        return None if self.defense is None else self.rehearsal.guards[self.defense]

    @cached_property
    def frame(self) -> Frame:
        """One row per defense and attack: a pandas DataFrame, or a list of dicts without pandas."""
        return make_frame(self.list_rows())

    def list_rows(self) -> list[dict[str, Any]]:
        """Return one row per defense and attack; numbers are fractions, the worst of the seeds."""
        return [
            {
                "defense": cell.defense,
                "attack": cell.attack,
                "backdoor": cell.numbers and cell.numbers.backdoor,
                "accuracy_lost": cell.numbers and cell.numbers.accuracy_lost,
                "honest_left_out": cell.numbers and cell.numbers.honest_left_out,
                "word": cell.word,
                "reason": cell.reason,
            }
            for cell in self.cells
        ]

    def list_lines(self) -> list[tuple[str, ...]]:
        """Return the table as text, its header first."""
        return [HEADERS, *(format_cell(cell) for cell in self.cells)]

    def plain(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "federation": self.rehearsal.settings.model_dump(mode="json"),
            "hostile_sites": list(self.rehearsal.hostile_sites),
            "examples": self.rehearsal.examples,
            "bounds": BOUNDS,
            "clean_accuracy": {str(seed): accuracy for seed, accuracy in self.clean_accuracy.items()},
            "cells": self.list_rows(),
            "defense": self.defense,
            "recommendation": self.recommendation,
            "guard": self.guard,
            "folder": str(self.folder),
        }

    def __str__(self) -> str:
        return self.recommendation if self.guard is None else f"{self.recommendation}\n{self.guard}"


def judge_rehearsal(rehearsal: Rehearsal, folder: Path) -> RehearsalResult:
    """Judge the runs of a rehearsal that is at its end."""
    failed = read_failed(folder)
    cells = judge_cells(measure_rehearsal(rehearsal, folder, failed))
    references = {seed: find_reference(rehearsal, seed) for seed in rehearsal.settings.seeds}
    clean = {seed: read_last_round(folder / run)[0] for seed, run in references.items() if run not in failed}
    return RehearsalResult(rehearsal, folder, tuple(cells), clean)


def format_cell(cell: Cell) -> tuple[str, ...]:
    """Format a line of the table."""
    numbers = cell.numbers and (cell.numbers.backdoor, cell.numbers.accuracy_lost, cell.numbers.honest_left_out)
    shown = ("" if number is None else f"{100 * number:.1f}" for number in numbers or (None, None, None))
    return (cell.defense, describe_attack(cell.attack), *shown, cell.verdict)
