"""Summarises the runs of `judge.py` for a defense: cell by cell, and in a few numbers. All are fractions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.strength.worlds import CLEAN, Cell, Job
from benchmarks.tables.markdown import format_percent, format_table
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import summarise_rounds

Run = dict[str, Any]
"""The stored facts of a run: its cell, defense, seed and name, and its outcome or the sentence that it failed with."""

TAKEN = 0.8
"""FedAvg's backdoor accuracy in the last round above which an attack works, and a run counts."""

WHEN = ("best", "last")
"""The round of the best main accuracy, as the paper reports, and the last one."""

SEEN = 3
"""Rounds that a client must have taken part in to count among those never elected."""


def describe_run(job: Job, name: str, folder: RunFolder) -> Run:
    """Return the facts to store of a finished run with this name."""
    rounds, settings = folder.read_rounds(), folder.run["settings"]
    summary = summarise_rounds(rounds).plain()
    drawn = {name: settings["attack"].get(name) for name in ("trigger", "target")}
    return {
        **label_run(job, name),
        **drawn,
        **{when: summary[when] for when in WHEN},
        "infected_elected": summary["false_positive_rate"],
        "honest_left_out": summary["false_negative_rate"],
        "clients": summarise_clients(rounds),
        "seconds": sum(
            seconds for name, seconds in summary["seconds"].items() if name in ("train", "defense", "evaluate")
        ),
    }


def label_run(job: Job, name: str) -> Run:
    """Return the job of a run, and the run's name, which shows whether its settings still match the job's."""
    return {"world": job.cell.world, "attack": job.cell.attack, "defense": job.defense, "seed": job.seed, "run": name}


def summarise_clients(rounds: Sequence[RoundRecord]) -> dict[str, Any]:
    """Summarise how often honest clients were left out: on average, at most, and how many were never elected."""
    taken_part: dict[str, list[bool]] = {}
    for record in rounds:
        for client, malicious, elected in zip(
            record["participants"], record["malicious"], record["elected"], strict=True
        ):
            if not malicious:
                taken_part.setdefault(client, []).append(not elected)
    shares = {client: fmean(left_out) for client, left_out in taken_part.items()}
    most = max(shares, key=lambda client: (shares[client], len(taken_part[client])), default=None)
    never = [client for client, left_out in taken_part.items() if len(left_out) >= SEEN and all(left_out)]
    return {
        "honest": len(shares),
        "mean_share": fmean(shares.values()) if shares else None,
        "most": most,
        "most_share": None if most is None else shares[most],
        "most_rounds": None if most is None else len(taken_part[most]),
        "never_elected": len(never),
    }


class Judged(NamedTuple):
    """A defense in a cell; None means unknown.

    Attributes:
        counts: FedAvg learns the backdoor with at least one seed, or nobody is malicious.
        found: number of runs judged.
        of: number of runs expected.
        fedavg: FedAvg's mean backdoor accuracy in the last round, over all seeds.
        numbers: means over the seeds that count, or over all if none does.
        highest: backdoor accuracy above Ideal's for the worst of these seeds, at the best and at the last round.
    """

    cell: Cell
    counts: bool
    found: int
    of: int
    fedavg: float | None
    numbers: dict[str, float | None]
    highest: dict[str, float | None]


def judge_cells(runs: Iterable[Run], defense: str, jobs: Iterable[Job]) -> list[Judged]:
    """Judge a defense cell by cell, in the order of the jobs."""
    index = {(Cell(run["world"], run["attack"]), run["defense"], run["seed"]): run for run in runs}
    seeds: dict[Cell, list[int]] = {}
    for job in jobs:
        if job.defense == "fedavg":
            seeds.setdefault(job.cell, []).append(job.seed)
    usable = {key: run for key, run in index.items() if "fault" not in run}
    return [judge_cell(usable, defense, cell, each) for cell, each in seeds.items()]


def judge_cell(runs: Mapping[tuple[Cell, str, int], Run], defense: str, cell: Cell, seeds: Sequence[int]) -> Judged:
    """Judge a defense in one cell, over the seeds with which FedAvg learns the backdoor, or is not known yet.

    If there is no such seed, the cell does not count, and its numbers are those of all seeds.
    """

    def find(name: str, seed: int) -> Run | None:
        return runs.get((cell, "fedavg" if (cell.attack, name) == (CLEAN, "ideal") else name, seed))

    plain = {seed: find("fedavg", seed) for seed in seeds}
    taken = [run["last"]["backdoor_accuracy"] for run in plain.values() if run]
    counting = [seed for seed, run in plain.items() if run is None or is_counted(run)]
    trios = []
    looked_at = counting or seeds
    for seed in looked_at:
        fedavg, ideal, run = plain[seed], find("ideal", seed), find(defense, seed)
        if fedavg and ideal and run:
            trios.append((fedavg, ideal, run))
    compared = [compare_runs(*trio) for trio in trios]
    numbers = {name: mean_known(run[name] for run in compared) for name in NUMBERS}
    highest = {when: pick_known(max, (run[f"backdoor_{when}"] for run in compared)) for when in WHEN}
    return Judged(cell, bool(counting), len(trios), len(looked_at), mean_known(taken), numbers, highest)


def is_counted(fedavg: Run) -> bool:
    """Return whether a run of FedAvg learns the backdoor, or its federation has no malicious clients."""
    return fedavg["attack"] == CLEAN or bool(fedavg["last"]["backdoor_accuracy"] > TAKEN)


NUMBERS = (
    *(f"backdoor_{when}" for when in WHEN),
    *(f"main_lost_{when}" for when in WHEN),
    "infected_elected",
    "honest_left_out",
    "most_left_out",
    "never_elected",
)
"""The numbers by which runs are compared."""


def compare_runs(fedavg: Run, ideal: Run, run: Run) -> dict[str, float | None]:
    """Compare a run with FedAvg's and Ideal's of one seed: backdoor above Ideal's, main accuracy below FedAvg's."""
    clients, is_clean = run["clients"], run["attack"] == CLEAN
    found: dict[str, float | None] = {}
    for when in WHEN:
        above = None if is_clean else run[when]["backdoor_accuracy"] - ideal[when]["backdoor_accuracy"]
        found[f"backdoor_{when}"] = above
        found[f"main_lost_{when}"] = fedavg[when]["main_accuracy"] - run[when]["main_accuracy"]
    return found | {
        "infected_elected": run["infected_elected"],
        "honest_left_out": run["honest_left_out"],
        "most_left_out": clients["most_share"] / clients["mean_share"] if clients["mean_share"] else None,
        "never_elected": clients["never_elected"] / clients["honest"] if clients["honest"] else None,
    }


def make_headline(cells: Sequence[Judged], defense: str) -> dict[str, Any]:
    """Summarise a defense: the mean and the worst over the cells that count, each cell itself a mean."""
    attacked = [cell for cell in cells if cell.cell.attack != CLEAN]
    return {
        "defense": defense,
        "missing_runs": sum(cell.of - cell.found for cell in cells),
        "attacked": summarise_cells([cell for cell in attacked if cell.counts]),
        "not_counting": summarise_cells([cell for cell in attacked if not cell.counts]),
        "clean": summarise_cells([cell for cell in cells if cell.cell.attack == CLEAN]),
    }


def summarise_cells(cells: Sequence[Judged]) -> dict[str, Any]:
    """Return the mean and the worst of every known number, and the cell of the worst."""
    found: dict[str, Any] = {"cells": sum(cell.found > 0 for cell in cells), "of": len(cells)}
    for name in NUMBERS:
        known = {cell.cell: value for cell in cells if (value := cell.numbers[name]) is not None}
        if known:
            worst = max(known, key=lambda cell: known[cell])
            found[name] = {"mean": fmean(known.values()), "worst": known[worst], "worst_cell": " ".join(worst)}
    for when in WHEN:
        highest = pick_known(max, (cell.highest[when] for cell in cells))
        if highest is not None:
            found[f"backdoor_{when}"]["worst_run"] = highest
    return found


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values."""
    return pick_known(fmean, values)


def pick_known(pick: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Pick one number from the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return pick(known) if known else None


def tabulate_headlines(headlines: Sequence[Mapping[str, Any]]) -> str:
    """Format one column per defense and one line per number, with attacked and clean federations apart."""
    rows = [
        ["runs missing", *(str(headline["missing_runs"]) for headline in headlines)],
        [
            "cells judged, of those that count",
            *("{cells} of {of}".format_map(headline["attacked"]) for headline in headlines),
        ],
    ]
    for kind, name, measure in LINES:
        values = [headline[kind].get(name, {}).get(measure) for headline in headlines]
        title = f"{kind}: {TITLES[name]}, {measure}".replace("_", " ")
        rows.append([title, *(format_value(value, name) for value in values)])
    return format_table(("", *(headline["defense"] for headline in headlines)), rows)


TITLES = {
    "backdoor_best": "backdoor over Ideal's, best round",
    "backdoor_last": "backdoor over Ideal's, last round",
    "main_lost_best": "main accuracy lost, best round",
    "main_lost_last": "main accuracy lost, last round",
    "infected_elected": "infected elected",
    "honest_left_out": "honest left out",
    "most_left_out": "most left out, times the mean",
    "never_elected": "never elected",
}

LINES = (
    *(("attacked", f"backdoor_{when}", each) for when in WHEN for each in ("worst", "worst_cell", "worst_run", "mean")),
    *(("attacked", name, measure) for name in NUMBERS[2:6] for measure in ("worst", "mean")),
    *(("not_counting", "backdoor_last", each) for each in ("worst", "worst_cell")),
    *(("clean", name, measure) for name in NUMBERS[2:4] + NUMBERS[5:] for measure in ("worst", "mean")),
)
"""Kind of federation, name and measure of each number in the table of defenses."""


def tabulate_cells(cells: Iterable[Judged]) -> str:
    """Format one line per cell."""
    rows = []
    for cell in cells:
        fedavg = "-" if cell.fedavg is None else format_percent(cell.fedavg)
        numbers = [format_value(cell.numbers[name], name) for name in NUMBERS]
        rows.append([*cell.cell, fedavg, show_count(cell), f"{cell.found} of {cell.of}", *numbers])
    head = ("world", "attack", "FedAvg's backdoor", "counts", "seeds", *(TITLES[name] for name in NUMBERS))
    return format_table(head, rows)


def show_count(cell: Judged) -> str:
    """Tell whether a cell counts; unknown without a run of FedAvg."""
    if cell.fedavg is None and cell.cell.attack != CLEAN:
        return "unknown"
    return "yes" if cell.counts else "no"


def format_value(value: float | str | None, name: str) -> str:
    """Format a number for people: per cent, except for multiples; a cell by its name."""
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:.2f}" if name == "most_left_out" else format_percent(value)
