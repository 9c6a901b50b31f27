"""Tables of snowball-plus's results: in the federations of `strength/judge.py`, and ballot by ballot."""

import json
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.files import read_result
from benchmarks.strength.headline import Run, is_counted
from benchmarks.strength.worlds import CLEAN, WORLDS, Cell
from benchmarks.tables.markdown import format_percent, format_table

DEFENSE, PUBLISHED = "snowball-plus", "snowball"
"""The defenses' names in the results; Snowball was not run everywhere."""

Runs = Mapping[tuple[str, int], Run]
"""The runs of a cell, by defense and seed."""


def tabulate_attacked_cells() -> str:
    """Tabulate attacked federations whose backdoor FedAvg learns: last-round accuracies, and who is left out."""
    chosen = {
        cell: count_seeds(runs)
        for cell, runs in read_cells().items()
        if cell.attack != CLEAN and is_learned_by_fedavg(runs)
    }
    published = any(name == PUBLISHED for runs in chosen.values() for name, _ in runs)
    others = ("fedavg", "ideal", *([PUBLISHED] if published else []))
    rows = [
        [*cell, *format_attacked(runs, others), *map(format_share, tell_cost(runs))] for cell, runs in chosen.items()
    ]
    named = ("FedAvg's backdoor", "Ideal's", *(["Snowball's"] if published else []))
    heads = ("backdoor", "infected averaged", "main lost", "honest left out", "unluckiest client")
    return format_table(("world", "attack", "seeds", *named, *heads), rows)


def tabulate_unlearned() -> str:
    """Tabulate the last round of attacked federations in which FedAvg does not learn the backdoor: they say little."""
    rows = [
        [*cell, *format_attacked(runs, ("fedavg", "ideal"))]
        for cell, runs in read_cells().items()
        if cell.attack != CLEAN and not is_learned_by_fedavg(runs)
    ]
    return format_table(("world", "attack", "seeds", "FedAvg's backdoor", "Ideal's", "backdoor"), rows)


def tabulate_clean() -> str:
    """Tabulate the defense's cost in federations in which nobody attacks."""
    rows = [
        [
            cell.world,
            str(len(find_seeds(runs))),
            format_share(measure_lost_main(runs)),
            format_share(mean_share(runs, "honest_left_out")),
        ]
        for cell, runs in read_cells().items()
        if cell.attack == CLEAN
    ]
    return format_table(("world", "seeds", "main lost", "honest left out"), rows)


def tabulate_ablation() -> str:
    """Tabulate the last round's backdoor in attacked federations, with all ballots and without each of them."""
    heads = {"fedavg": "FedAvg's backdoor", "ideal": "Ideal's", DEFENSE: "all ballots"}
    return tabulate_variants("backdoor_accuracy", heads)


def tabulate_clean_ablation() -> str:
    """Tabulate the last round's main accuracy where nobody attacks, with all ballots and without some."""
    return tabulate_variants("main_accuracy", {"fedavg": "FedAvg", "norm-clip": "norm-clip", DEFENSE: "all ballots"})


def tabulate_variants(accuracy: str, heads: Mapping[str, str]) -> str:
    """Tabulate an accuracy of the last round cell by cell: defenses under their heads, then those without ballots.

    Backdoors are those of attacked federations, main accuracies those of clean ones.
    """
    cells: dict[Cell, dict[str, float]] = {}
    for run in read_result("strength-ablation")["runs"]:
        if (run["attack"] == CLEAN) == (accuracy == "main_accuracy"):
            cells.setdefault(Cell(run["world"], run["attack"]), {})[run["defense"]] = run["last"][accuracy]
    run_names = dict.fromkeys(name for found in cells.values() for name in found)
    without = {name: name_variant(name) for name in run_names if name.startswith(f"{DEFENSE}:")}
    columns = {**heads, **without}
    rows = [[*cell, *(format_share(found.get(name)) for name in columns)] for cell, found in cells.items()]
    return format_table(("world", "attack", *columns.values()), rows)


def name_variant(defense: str) -> str:
    """Return the head of a variant's column, such as `no crowd, no position`."""
    return ", ".join(f"no {ballot}" for ballot in json.loads(defense.partition("=")[2]))


def tabulate_ballots() -> str:
    """Tabulate every ballot alone, on rounds in which no backdoor has settled."""
    rows = []
    for cell in read_result("ballots")["cells"]:
        keys = ("charged", "alone_missed", "alone_wrong", "joint_missed", "joint_wrong")
        charging = {name: found for name, found in cell["ballots"].items() if found["charged"]}
        for name, found in (charging or {"none charges": {"charged": 0.0}}).items():
            rows.append([cell["world"], cell["attack"], name, *(format_share(found.get(key)) for key in keys)])
    heads = ("rounds charged", "infected missed", "honest charged", "missed, all traces", "honest accused, all traces")
    return format_table(("world", "attack", "ballot", *heads), rows)


def tabulate_traces() -> str:
    """Tabulate how well each trace orders infected above honest updates, given suspects."""
    cells = [cell for cell in read_result("ballots")["cells"] if cell["traces"]]
    names = dict.fromkeys(name for cell in cells for name in cell["traces"])
    rows = [[name, *(format_share(cell["traces"].get(name)) for cell in cells)] for name in names]
    return format_table(("trace", *(f"{cell['world']} {cell['attack']}" for cell in cells)), rows)


def read_cells() -> dict[Cell, Runs]:
    """Return every cell's runs with the seeds that the defense was run with there, in the order of the worlds."""
    cells: dict[Cell, dict[tuple[str, int], Run]] = {}
    for run in read_result("strength-report")["runs"]:
        if "fault" not in run:
            cells.setdefault(Cell(run["world"], run["attack"]), {})[run["defense"], run["seed"]] = run
    order = [Cell(world, attack) for world in WORLDS for attack in WORLDS[world].attacks]
    compared = {cell: keep_seeds(cells[cell], find_seeds(cells[cell])) for cell in order if cell in cells}
    return {cell: runs for cell, runs in compared.items() if runs}


def keep_seeds(runs: Runs, seeds: Collection[int]) -> Runs:
    """Return the runs with these seeds."""
    return {key: run for key, run in runs.items() if key[1] in seeds}


def find_seeds(runs: Runs) -> list[int]:
    """Return the seeds with which both the defense and FedAvg were run."""
    seeds = sorted({seed for _, seed in runs})
    return [seed for seed in seeds if {DEFENSE, "fedavg"} <= {name for name, each in runs if each == seed}]


def is_learned_by_fedavg(runs: Runs) -> bool:
    """Return whether FedAvg learns the backdoor with any seed."""
    return any(is_counted(run) for (name, _), run in runs.items() if name == "fedavg")


def count_seeds(runs: Runs) -> Runs:
    """Return the runs with the seeds with which FedAvg learns the backdoor."""
    return keep_seeds(runs, {seed for (name, seed), run in runs.items() if name == "fedavg" and is_counted(run)})


def format_attacked(runs: Runs, others: Sequence[str]) -> list[str]:
    """Format the number of seeds, and the backdoor accuracies of other defenses and of this one."""
    return [str(len(find_seeds(runs))), *(format_share(mean_backdoor(runs, name)) for name in (*others, DEFENSE))]


def tell_cost(runs: Runs) -> list[float | None]:
    """Return the share of infected updates that the defense averages, and its cost."""
    left_out = mean_share(runs, "honest_left_out")
    return [mean_share(runs, "infected_elected"), measure_lost_main(runs), left_out, measure_unluckiest(runs)]


def mean_backdoor(runs: Runs, defense: str) -> float | None:
    """Return the mean backdoor accuracy of the last round."""
    return mean_known([run["last"]["backdoor_accuracy"] for (name, _), run in runs.items() if name == defense])


def measure_lost_main(runs: Runs) -> float | None:
    """Return the mean loss of main accuracy in the last round, against FedAvg with the same seed."""
    main = {key: run["last"]["main_accuracy"] for key, run in runs.items()}
    return mean_known([main["fedavg", seed] - main[DEFENSE, seed] for seed in find_seeds(runs)])


def mean_share(runs: Runs, share: str) -> float | None:
    """Return the mean of a share of updates over the defense's runs."""
    return mean_known([run[share] for (name, _), run in runs.items() if name == DEFENSE])


def measure_unluckiest(runs: Runs) -> float | None:
    """Return the mean over runs of the highest share of its rounds from which one honest client was left out."""
    return mean_known([run["clients"]["most_share"] for (name, _), run in runs.items() if name == DEFENSE])


def mean_known(values: Sequence[Any]) -> float | None:
    """Return the mean, or None without values."""
    return fmean(values) if values else None


def format_share(value: float | None) -> str:
    """Format per cent; empty for None."""
    return "" if value is None else format_percent(value)
