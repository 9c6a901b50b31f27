"""Reads the numbers of a rehearsal from its runs."""

from collections.abc import Mapping
from pathlib import Path

from snowball.records.run import RunFolder
from snowball.rehearsal.plan import NOBODY, REFERENCE, Rehearsal, Trial
from snowball.rehearsal.verdict import Measured, Numbers


def measure_rehearsal(rehearsal: Rehearsal, folder: Path, failed: Mapping[str, str]) -> Measured:
    """Return the numbers of every defense under every attack; `failed` says why runs failed, by name."""
    cells: dict[tuple[str, str], list[Trial]] = {}
    for trial in rehearsal.trials:
        cells.setdefault((trial.defense, trial.attack), []).append(trial)
    return {cell: measure_trials(rehearsal, trials, folder, failed) for cell, trials in cells.items()}


def measure_trials(
    rehearsal: Rehearsal, trials: list[Trial], folder: Path, failed: Mapping[str, str]
) -> list[Numbers] | str:
    """Return the numbers of a defense under an attack, one entry per seed, or why a run has none."""
    numbers = []
    for trial in trials:
        reference = find_reference(rehearsal, trial.seed)
        probe = rehearsal.probes.get((trial.attack, trial.seed), reference)
        for run in (trial.run, reference, probe):
            if run in failed:
                return failed[run]
        numbers.append(compare_run(folder / trial.run, folder / reference, folder / probe))
    return numbers


def find_reference(rehearsal: Rehearsal, seed: int) -> str:
    """Return the run of a plain average while nobody attacks."""
    return next(trial.run for trial in rehearsal.trials if trial[:3] == (REFERENCE, NOBODY, seed))


def compare_run(path: Path, reference: Path, probe: Path) -> Numbers:
    """Compare the last round of a run with clean runs of a plain average, one of them with the attack's trigger."""
    accuracy, backdoor, left_out = read_last_round(path)
    clean_backdoor = read_last_round(probe)[1]
    return Numbers(
        backdoor,
        None if backdoor is None else backdoor - (clean_backdoor or 0.0),
        read_last_round(reference)[0] - accuracy,
        left_out,
    )


def read_last_round(path: Path) -> tuple[float, float | None, float]:
    """Return main accuracy, backdoor accuracy and the share of honest updates left out; a diverged model has none."""
    summary = RunFolder.open(path).read_summary(complete=True)
    if summary is None or summary.last is None:
        return 0.0, None, 0.0
    return summary.last.main_accuracy or 0.0, summary.last.backdoor_accuracy, summary.false_negative_rate or 0.0
