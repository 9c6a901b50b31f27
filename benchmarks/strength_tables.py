"""Tables of what snowball-plus came to: in the federations of `strength.py`, and ballot by ballot."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from strength_headline import Run, counts
from strength_worlds import CLEAN, WORLDS, Cell
from words import markdown, percent, result

DEFENSES = ("snowball-plus", "snowball-plus:suspect_crowds=true")
"""By their names in the results; the second one was not run everywhere."""

Runs = Mapping[tuple[str, int], Run]
"""The runs of a cell, by defense and seed."""


def attacked() -> str:
    """Attacked federations in which FedAvg learns the backdoor: accuracies of the last round, and who was left out."""
    rows = [
        [*cell, *tabulate_attacked(runs)]
        for cell, runs in read_cells().items()
        if cell.attack != CLEAN and learned_by_fedavg(runs)
    ]
    heads = ("backdoor", "main lost", "honest left out")
    crowds = (f"{head}, crowds" for head in heads)
    return markdown(("world", "attack", "seeds", "FedAvg's backdoor", "Ideal's", *heads, *crowds), rows)


def unlearned() -> str:
    """Attacked federations in which FedAvg does not learn the backdoor, which say little: those of the last round."""
    rows = [
        [*cell, *tabulate_attacked(runs)[:4]]
        for cell, runs in read_cells().items()
        if cell.attack != CLEAN and not learned_by_fedavg(runs)
    ]
    return markdown(("world", "attack", "seeds", "FedAvg's backdoor", "Ideal's", "backdoor"), rows)


def clean() -> str:
    """Federations in which nobody attacks: what the defense costs."""
    rows = []
    for cell, runs in read_cells().items():
        if cell.attack == CLEAN:
            seeds = find_seeds(runs, DEFENSES[0])
            costs = [cost for defense in DEFENSES for cost in (lose_main(runs, defense), leave_out(runs, defense))]
            rows.append([cell.world, str(len(seeds)), *map(show, costs)])
    heads = ("main lost", "honest left out")
    return markdown(("world", "seeds", *heads, *(f"{head}, crowds" for head in heads)), rows)


def ballots() -> str:
    """Every ballot alone, on rounds in which no backdoor has settled."""
    rows = []
    for cell in result("ballots")["cells"]:
        keys = ("charged", "alone_missed", "alone_wrong", "joint_missed", "joint_wrong")
        charging = {name: found for name, found in cell["ballots"].items() if found["charged"]}
        for name, found in (charging or {"none charges": {"charged": 0.0}}).items():
            rows.append([cell["world"], cell["attack"], name, *(show(found.get(key)) for key in keys)])
    heads = ("rounds charged", "infected missed", "honest charged", "missed, all traces", "honest accused, all traces")
    return markdown(("world", "attack", "ballot", *heads), rows)


def traces() -> str:
    """How well each trace orders infected above honest updates, given suspects."""
    cells = [cell for cell in result("ballots")["cells"] if cell["traces"]]
    names = dict.fromkeys(name for cell in cells for name in cell["traces"])
    rows = [[name, *(show(cell["traces"].get(name)) for cell in cells)] for name in names]
    return markdown(("trace", *(f"{cell['world']} {cell['attack']}" for cell in cells)), rows)


def read_cells() -> dict[Cell, Runs]:
    """The runs of every cell in which the defense was run, in the order of the worlds."""
    cells: dict[Cell, dict[tuple[str, int], Run]] = {}
    for run in result("strength-report")["runs"]:
        if "fault" not in run:
            cells.setdefault(Cell(run["world"], run["attack"]), {})[run["defense"], run["seed"]] = run
    order = [Cell(world, attack) for world in WORLDS for attack in WORLDS[world].attacks]
    return {cell: cells[cell] for cell in order if any(name == DEFENSES[0] for name, _ in cells.get(cell, {}))}


def find_seeds(runs: Runs, defense: str) -> list[int]:
    """The seeds with which a defense, FedAvg and, under attack, Ideal were run."""
    seeds = sorted({seed for _, seed in runs})
    needed = {defense, "fedavg"}
    return [seed for seed in seeds if needed <= {name for name, each in runs if each == seed}]


def learned_by_fedavg(runs: Runs) -> bool:
    """Whether FedAvg learns the backdoor with any seed."""
    return any(counts(run) for (name, _), run in runs.items() if name == "fedavg")


def tabulate_attacked(runs: Runs) -> list[str]:
    """The numbers of a cell's line, over the seeds with which FedAvg learns the backdoor, or all if it never does."""
    counting = {seed for (name, seed), run in runs.items() if name == "fedavg" and counts(run)}
    kept = {key: run for key, run in runs.items() if not counting or key[1] in counting}
    numbers: list[float | None] = [mean_backdoor(kept, name) for name in ("fedavg", "ideal")]
    for defense in DEFENSES:
        numbers += [mean_backdoor(kept, defense), lose_main(kept, defense), leave_out(kept, defense)]
    return [str(len(find_seeds(kept, DEFENSES[0]))), *map(show, numbers)]


def mean_backdoor(runs: Runs, defense: str) -> float | None:
    """The mean backdoor accuracy of the last round."""
    return mean_known([run["last"]["backdoor_accuracy"] for (name, _), run in runs.items() if name == defense])


def lose_main(runs: Runs, defense: str) -> float | None:
    """The mean main accuracy of the last round that is lost against FedAvg with the same seed."""
    seeds = find_seeds(runs, defense)
    main = {key: run["last"]["main_accuracy"] for key, run in runs.items()}
    return mean_known([main["fedavg", seed] - main[defense, seed] for seed in seeds])


def leave_out(runs: Runs, defense: str) -> float | None:
    """The mean share of honest updates that were left out."""
    return mean_known([run["honest_left_out"] for (name, _), run in runs.items() if name == defense])


def mean_known(values: Sequence[Any]) -> float | None:
    """The mean, where there is anything to take it of."""
    return fmean(values) if values else None


def show(value: float | None) -> str:
    """Per cent, or nothing."""
    return "" if value is None else percent(value)
