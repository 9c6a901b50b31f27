"""Tables of the results of runs: the demo, every defense, every attack, sweeps."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks.files import read_result
from benchmarks.strength.attacks import TEXTS
from benchmarks.tables.markdown import format_number, format_percent, format_table
from benchmarks.tables.packed import unpack_once
from snowball.attacks import ATTACKS
from snowball.report import Sweep, read_sweeps
from snowball.report.export.markdown import format_markdown
from snowball.report.tables import build_sweep_table

PAPER = [
    "ideal",
    "fedavg",
    "krum",
    "crfl",
    "rlr",
    "fldetector",
    "dnc",
    "flame",
    "flip",
    "voting-random",
    "voting-center",
    "snowball-minus",
    "snowball",
]
"""The thirteen defenses of the paper's tables, in their order."""

AGAINST = ("fedavg", "snowball", "ideal")


def tabulate_sweep(name: str, **chosen: Collection[str]) -> str:
    """Tabulate a sweep, or a part of it, beside the published numbers, as `snowball report --paper` does."""
    (found,) = (sweep for sweep in read_kept_sweeps() if sweep.name == name)
    runs = [run for run in found.runs if all(run.at[f"{key}.name"] in value for key, value in chosen.items())]
    return format_markdown(build_sweep_table(replace(found, runs=runs))).partition("\n")[2].strip()


def tabulate_all_rounds() -> str:
    """Tabulate Snowball's rates of table 3 over all rounds, including the first ones, which elect few."""
    (found,) = (sweep for sweep in read_kept_sweeps() if sweep.name == "cpu/table3")
    table = {**(found.table or {}), "values": ["false_positive_rate", "false_negative_rate"]}
    runs = [run for run in found.runs if run.at["defense.name"] == "snowball"]
    return format_markdown(build_sweep_table(replace(found, table=table, runs=runs))).partition("\n")[2].strip()


@cache
def read_kept_sweeps() -> list[Sweep]:
    """Read all stored sweeps."""
    return read_sweeps([unpack_once()])[0]


def tabulate_demo() -> str:
    """Tabulate the demo, seed by seed: the summaries of its runs."""
    rows = []
    for run in read_result("demo")["runs"]:
        rates = [format_percent(run["last"][name]) for name in ("main_accuracy", "backdoor_accuracy")]
        rows.append([str(run["seed"]), run["defense"], *rates, format_percent(run["false_positive_rate"])])
    return format_table(("seed", "defense", "main accuracy, %", "backdoor accuracy, %", "infected elected, %"), rows)


def tabulate_defenses() -> str:
    """Tabulate every defense in the demo's federation: accuracies of the last round, and error rates of all rounds."""
    runs: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for run in read_result("compare")["runs"]:
        runs.setdefault((run["defense"], run["variant"] or ""), {})[run["attack"]] = run
    order = {name: place for place, name in enumerate(PAPER)}
    rows = []
    for (name, variant), attacks in sorted(runs.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0])):
        cells = [cell for attack in ("cba", "dba") for cell in _format_headline(attacks[attack])]
        rows.append([f"[{name}]({name}.md)", variant, *cells])
    heads = [f"{attack} {what}" for attack in ("CBA", "DBA") for what in ("main", "backdoor", "FPR", "FNR")]
    return format_table(("defense", "variant", *heads), rows)


def _format_headline(run: Mapping[str, Any]) -> list[str]:
    """Format the main and backdoor accuracy of the last round, and the error rates of all rounds, in per cent."""
    accuracies = [run["last"]["main_accuracy"], run["last"]["backdoor_accuracy"]]
    rates = (*accuracies, run["false_positive_rate"], run["false_negative_rate"])
    return ["-" if value is None else format_percent(value) for value in rates]


def tabulate_defense(name: str) -> str:
    """Tabulate a defense's results in the demo's federation, and its cost for a server."""
    rows = []
    for run in read_result("compare")["runs"]:
        if run["defense"] == name:
            best = [format_percent(run["best"][key]) for key in ("main_accuracy", "backdoor_accuracy")]
            rows.append([run["attack"].upper(), run["variant"] or "", *best, *_format_headline(run)])
    heads = ("best main", "backdoor then", "last main", "last backdoor", "FPR", "FNR")
    accuracies = format_table(("attack", "variant", *heads), rows)
    times = [
        f"{format_number(case['times_fedavg'])} times FedAvg's {format_number(case['reference_seconds'])} s ({size})"
        for case in read_result("bench-elections")["cases"]
        if (size := case["name"].removeprefix(f"{name} ")) != case["name"] and "times_fedavg" in case
    ]
    note = "In the [demo's federation](../simulator.md), all in per cent; see [all defenses side by side](README.md)."
    cost = f"\n\nOn the server: {', '.join(times)}." if times else ""
    return f"{note}\n\n{accuracies}{cost}"


def tabulate_attacks() -> str:
    """Tabulate every attack on images: accuracies of the last round, and Snowball's error rates."""
    runs: dict[str, dict[str, dict[str, Any]]] = {}
    for run in read_result("attacks")["runs"]:
        if run["attack"] not in TEXTS:
            runs.setdefault(run["attack"], {})[run["defense"]] = run
    rows = []
    for name, by_defense in runs.items():
        cells = [_format_pair(by_defense[defense]["last"]) if defense in by_defense else "" for defense in AGAINST]
        rows.append(
            [f"[{name}]({name}.md)", ATTACKS[name].knowledge, *cells, *_format_headline(by_defense["snowball"])[2:]]
        )
    heads = ("main / backdoor accuracy, %", "sees", *AGAINST, "infected elected", "benign left out")
    return format_table(heads, rows)


def _format_pair(last: Mapping[str, float | None]) -> str:
    """Format main and backdoor accuracy, or the main one alone if there is no backdoor."""
    both = (last["main_accuracy"], last["backdoor_accuracy"])
    return " / ".join(format_percent(value) for value in both if value is not None)


def tabulate_attack(name: str) -> str:
    """Tabulate an attack on images in the demo's federation."""
    rows = [[run["defense"], *_format_headline(run)] for run in read_result("attacks")["runs"] if run["attack"] == name]
    heads = ("defense", "main", "backdoor", "infected elected", "benign left out")
    where = "In the [demo's federation](../simulator.md), last round, all in per cent; see [all attacks](README.md)."
    return f"{where}\n\n{format_table(heads, rows)}"


def tabulate_text_attacks() -> str:
    """Tabulate the attacks on texts."""
    rows = [
        [run["attack"], run["defense"], *_format_headline(run)]
        for name in TEXTS
        for run in read_result("attacks")["runs"]
        if run["attack"] == name
    ]
    heads = ("attack", "defense", "main", "backdoor", "infected elected", "benign left out")
    where = "In the federation of `cpu/sent140` with 25 clients per round, last round, all in per cent; one seed."
    return f"{where}\n\n{format_table(heads, rows)}"


def tabulate_persistence() -> str:
    """Tabulate the backdoors of attacks that stop: in the last round of the attack, and in honest rounds after it."""
    runs = read_result("persistence")["runs"]
    last, count = runs[0]["last_attack"], len(runs[0]["main_accuracy"])
    shown = [last, last + 1, last + 2, last + 5, count]
    rows = []
    for run in runs:
        backdoor = [format_percent(run["backdoor_accuracy"][round - 1]) for round in shown]
        rows.append([f"[{run['attack']}]({run['attack']}.md)", *backdoor, format_percent(run["main_accuracy"][-1])])
    heads = ("backdoor accuracy, %", *(f"round {round}" for round in shown), f"main, round {count}")
    return format_table(heads, rows)
