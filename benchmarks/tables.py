"""Writes the measured tables of the documentation from the files in benchmarks/results.

    python benchmarks/tables.py

A table stands between the lines `<!-- NAME -->` and `<!-- end -->` of a page.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from snowball.attacks import ATTACKS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def result(name: str) -> Any:
    """What a benchmark measured."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def number(value: float | None) -> str:
    """Three digits, and all digits of large numbers."""
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(value: float) -> str:
    """A fraction for people."""
    return f"{100 * value:.1f}"


def elections() -> str:
    """Our elections beside the plain ones."""
    rows = []
    for case in result("bench-elections")["cases"]:
        if "times_fedavg" in case:
            continue
        numbers = [number(case[key]) for key in ("seconds", "reference_seconds", "ratio")]
        rows.append([case["name"], *numbers, f"{case['agree']} of {case['of']}" if "agree" in case else "-"])
    return markdown(("case", "ours, s", "plainly, s", "ratio", "elected the same"), rows)


def training() -> str:
    """Every way to train, on each network."""
    keys = ("samples_per_second", "ratio", "ratio_per_core")
    rows = []
    for case in measured("samples_per_second"):
        peaks = ("share_of_peak", "share_of_peak_beside")
        shares = [_share(case[key]) for key in (*peaks, "parallel_efficiency")]
        moved = number(case["bytes_moved"] / 2**20) if case["bytes_moved"] else "-"
        rows.append([case["name"], *(number(case[key]) for key in keys), *shares, number(case["peak_mib"]), moved])
    heads = (
        "samples/s",
        "x plain",
        "x plain a core",
        "of the peak",
        "of that beside",
        "efficiency",
        "memory, MiB",
        "moved, MiB",
    )
    return markdown(("network, way", *heads), rows)


def whole_round() -> str:
    """A round beside the plain one, and what it is made of."""
    keys = ("seconds", "reference_seconds", "ratio", "one_thread_seconds", "ratio_to_one_thread")
    cases = measured("one_thread_seconds")
    rows = [[case["name"].removeprefix("round "), case["data"], *(number(case[key]) for key in keys)] for case in cases]
    heads = ("round", "data", "ours, s", "plainly, s", "ratio", "plainly on one thread, s", "ratio")
    shares = [[name, _share(share)] for case in measured("shares") for name, share in case["shares"].items()]
    return f"{markdown(heads, rows)}\n\n{markdown(('part of a round, with the default judge', 'share, %'), shares)}"


def measured(fact: str) -> list[dict[str, Any]]:
    """The cases of training that have a fact; none before the first measurement."""
    if not (RESULTS / "bench-training.json").exists():
        return []
    return [case for case in result("bench-training")["cases"] if fact in case]


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def judges() -> str:
    """Error rates of the judges."""
    worlds = result("choices")["judges"]
    names = next(iter(worlds.values()))
    rows = (
        [world, *(f"{percent(row[name]['fpr'])} / {percent(row[name]['fnr'])}" for name in names)]
        for world, row in worlds.items()
    )
    return markdown(("FPR / FNR, %", *(f"`{name}`" for name in names)), rows)


def seats(table: str) -> str:
    """Infected among the selectees, small federations of one size and their seeds together."""
    counts: dict[str, dict[str, list[int]]] = {}
    for world, row in result("choices")[table].items():
        group = counts.setdefault(re.sub(r"-s\d$", "", world), {})
        for setting, found in row.items():
            sums = group.setdefault(setting, [0, 0])
            sums[0] += found["infected"]
            sums[1] += found["of"]
    settings = list(dict.fromkeys(setting for row in counts.values() for setting in row))
    settings.sort(key=lambda setting: setting == "gap")
    rows = [[world, str(next(iter(row.values()))[1]), *_infected(row, settings)] for world, row in counts.items()]
    return markdown(("infected among the selectees", "selectees", *settings), [*rows, _totals(counts, settings)])


def floors() -> str:
    """Infected among the selectees for each floor, and a line that counts how many selectees it changes."""
    changed: dict[str, int] = {}
    for row in result("choices")["floors"].values():
        for floor, found in row.items():
            changed[floor] = changed.get(floor, 0) + found["changed"]
    return f"{seats('floors')}\n| selectees changed | | {' | '.join(map(str, changed.values()))} |"


def _infected(row: Mapping[str, list[int]], settings: Sequence[str]) -> list[str]:
    return [str(row[setting][0]) if setting in row else "-" for setting in settings]


def _totals(counts: Mapping[str, Mapping[str, list[int]]], settings: Sequence[str]) -> list[str]:
    """A last line that adds up what can be compared: the worlds in which every setting could be tried."""
    whole = [row for row in counts.values() if set(row) == set(settings)]
    seats = sum(next(iter(row.values()))[1] for row in whole)
    return [
        f"all {len(whole)} complete lines",
        str(seats),
        *(str(sum(row[name][0] for row in whole)) for name in settings),
    ]


def rounds() -> str:
    """Infected among the selectees by round, all worlds together but the one that the paper itself gives up."""
    sums: dict[int, list[int]] = {}
    for world, row in result("choices")["rounds"].items():
        for number, counted in row.items():
            pair = sums.setdefault(int(number), [0, 0])
            if world != "mnist-skewed":
                pair[0] += counted["infected"]
                pair[1] += counted["of"]
    numbers = sorted(sums)
    rows = [["infected", *(str(sums[number][0]) for number in numbers)]]
    rows.append(["selectees", *(str(sums[number][1]) for number in numbers)])
    return markdown(("round", *map(str, numbers)), rows)


def found() -> str:
    """How many clusters the Gap statistic finds."""
    rows = ([world, ", ".join(map(str, numbers))] for world, numbers in result("choices")["found"].items())
    return markdown(("first round of", "clusters found with seeds 0 to 5"), rows)


def cohorts() -> str:
    """Accuracies of small federations."""
    runs: dict[tuple[int, int], dict[str, list[dict[str, float]]]] = {}
    for run in result("cohorts")["runs"]:
        runs.setdefault((run["sites"], run["infected"]), {}).setdefault(run["defense"], []).append(run["last"])
    names = list(dict.fromkeys(name for row in runs.values() for name in row))
    rows = (
        [f"{sites}, {infected} infected", *(_accuracies(row.get(name, [])) for name in names)]
        for (sites, infected), row in runs.items()
    )
    return markdown(("main / backdoor accuracy, %", *names), rows)


def _accuracies(lasts: Sequence[Mapping[str, float]]) -> str:
    """The mean main accuracy, and the backdoor accuracy of every seed."""
    if not lasts:
        return "-"
    main = sum(last["main_accuracy"] for last in lasts) / len(lasts)
    backdoors = ", ".join(f"{100 * last['backdoor_accuracy']:.0f}" for last in lasts)
    return f"{100 * main:.0f} / {backdoors}"


def demo() -> str:
    """The demo, seed by seed: the summaries of its runs."""
    rows = []
    for file in sorted((RESULTS / "demo").glob("*.json")):
        summary = json.loads(file.read_text(encoding="utf-8"))
        rates = [percent(summary["last"][name]) for name in ("main_accuracy", "backdoor_accuracy")]
        rows.append([*file.stem.split("-"), *rates, percent(summary["false_positive_rate"])])
    return markdown(("seed", "defense", "main accuracy, %", "backdoor accuracy, %", "infected elected, %"), rows)


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
"""The thirteen of the paper's tables, in their order."""


def comparison() -> str:
    """Every defense in the demo's federation: accuracies of the last round, and whom it elected."""
    runs: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for run in result("compare")["runs"]:
        runs.setdefault((run["defense"], run["variant"] or ""), {})[run["attack"]] = run
    order = {name: place for place, name in enumerate(PAPER)}
    rows = []
    for (name, variant), attacks in sorted(runs.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0])):
        cells = [cell for attack in ("cba", "dba") for cell in _headline(attacks[attack])]
        rows.append([f"[{name}]({name}.md)", variant, *cells])
    heads = [f"{attack} {what}" for attack in ("CBA", "DBA") for what in ("main", "backdoor", "FPR", "FNR")]
    return markdown(("defense", "variant", *heads), rows)


def _headline(run: Mapping[str, Any]) -> list[str]:
    """Main and backdoor accuracy of the last round, and the error rates of all rounds, in per cent."""
    accuracies = [run["last"]["main_accuracy"], run["last"]["backdoor_accuracy"]]
    rates = (*accuracies, run["false_positive_rate"], run["false_negative_rate"])
    return ["-" if value is None else percent(value) for value in rates]


def one_defense(name: str) -> str:
    """What a defense does in the demo's federation, and what it costs a server."""
    rows = []
    for run in result("compare")["runs"]:
        if run["defense"] == name:
            best = [percent(run["best"][key]) for key in ("main_accuracy", "backdoor_accuracy")]
            rows.append([run["attack"].upper(), run["variant"] or "", *best, *_headline(run)])
    heads = ("best main", "backdoor then", "last main", "last backdoor", "FPR", "FNR")
    accuracies = markdown(("attack", "variant", *heads), rows)
    times = [
        f"{number(case['times_fedavg'])} times FedAvg's {number(case['reference_seconds'])} s ({size})"
        for case in result("bench-elections")["cases"]
        if (size := case["name"].removeprefix(f"{name} ")) != case["name"] and "times_fedavg" in case
    ]
    note = "In the [demo's federation](../simulator.md), all in per cent; see [all defenses side by side](README.md)."
    return f"{note}\n\n{accuracies}\n\nOn the server: {', '.join(times)}."


def peers() -> str:
    """Every defense's time on the server."""
    cases = [case for case in result("bench-elections")["cases"] if "times_fedavg" in case]
    sizes = list(dict.fromkeys(case["name"].partition(" ")[2] for case in cases))
    times = {tuple(case["name"].split(" ", 1)): case for case in cases}
    names = list(dict.fromkeys(name for name, _ in times))
    rows = (
        [
            name,
            *(
                cell
                for size in sizes
                for cell in (number(times[name, size][key]) for key in ("seconds", "times_fedavg"))
            ),
        ]
        for name in names
    )
    return markdown(("defense", *(head for size in sizes for head in (f"{size}, s", "x FedAvg"))), rows)


def attacks() -> str:
    """Every attack against FedAvg and Snowball: accuracies of the last round, and whom Snowball elected."""
    runs: dict[str, dict[str, dict[str, Any]]] = {}
    for run in result("attacks")["runs"]:
        runs.setdefault(run["attack"], {})[run["defense"]] = run
    rows = []
    for name, by_defense in runs.items():
        cells = [_pair(by_defense[defense]["last"]) if defense in by_defense else "" for defense in AGAINST]
        rows.append([f"[{name}]({name}.md)", ATTACKS[name].view, *cells, *_headline(by_defense["snowball"])[2:]])
    heads = ("main / backdoor accuracy, %", "sees", *AGAINST, "infected elected", "benign left out")
    return markdown(heads, rows)


AGAINST = ("fedavg", "snowball", "ideal")


def _pair(last: Mapping[str, float | None]) -> str:
    """Main and backdoor accuracy; the main one alone where there is no backdoor."""
    both = (last["main_accuracy"], last["backdoor_accuracy"])
    return " / ".join(percent(value) for value in both if value is not None)


def one_attack(name: str) -> str:
    """What an attack does in the demo's federation; one on texts, in that of Sent140."""
    file, key, value = ("attacks", "attack", name) if name != "text" else ("worlds", "data", "sent140")
    where = "[demo's federation](../simulator.md)" if name != "text" else "federation of [`cpu/sent140`](../data.md)"
    rows = [[_called(run), *_headline(run)] for run in result(file)["runs"] if run[key] == value]
    heads = ("defense", "main", "backdoor", "infected elected", "benign left out")
    return f"In the {where}, last round, all in per cent; see [all attacks](README.md).\n\n{markdown(heads, rows)}"


def worlds() -> str:
    """Every data set at a size for two cores."""
    rows = []
    for run in result("worlds")["runs"]:
        minutes = f"{sum(run['seconds'].values()) / 60:.1f}"
        rows.append([run["data"], _called(run), *_headline(run), minutes])
    heads = ("data", "defense", "main", "backdoor", "infected elected", "benign left out", "minutes")
    return markdown(heads, rows)


def _called(run: Mapping[str, Any]) -> str:
    """A run's defense, and its variant where there are several."""
    return ", ".join(filter(None, (run["defense"], run.get("variant"))))


def loading() -> str:
    """What it takes to have each data set in memory and dealt out."""
    rows = []
    for case in result("loading")["cases"]:
        size = number(case["bytes"] / 2**20) if "bytes" in case else "-"
        costs = [number(case.get(key)) for key in ("first_seconds", "first_peak", "seconds", "peak")]
        dealt = [f"`{case['partition']}`, {case['clients']:,}", number(case["partition_seconds"])]
        rows.append([case["name"], f"{case['samples']:,}", size, *costs, *dealt])
    heads = ("first, s", "peak, x size", "afterwards, s", "peak, x size", "dealt, clients", "s")
    return markdown(("set", "samples", "MiB", *heads), rows)


def step() -> str:
    """Where the time of a training step goes."""
    measured = result("step")
    total = sum(measured["microseconds"].values())
    rows = [[part, number(time), percent(time / total)] for part, time in measured["microseconds"].items()]
    ideal = f"All its arithmetic at the peak would take {number(measured['ideal_microseconds'])} of {number(total)} µs."
    ready = f"To have its samples ready takes {number(measured['preparation_microseconds'])} µs before."
    return f"{markdown(('part', 'µs', '%'), rows)}\n\n{ideal} {ready}"


def growth() -> str:
    """Time and memory by size; series whose size is a round show their first and last points."""
    cases = result("growth")["cases"]
    ends = [case for name in ("rounds", "writers") for case in _ends(cases, name)]
    rows = []
    for case in [case for case in cases if not case["name"].startswith(("rounds", "writers"))] + ends:
        rows.append([case["name"], number(case.get("seconds")), number(case.get("mib"))])
    exponents = ", ".join(f"{name} {value:.2f}" for name, value in result("growth")["exponents"].items())
    return f"{markdown(('case', 's', 'MiB'), rows)}\n\nExponents: {exponents}."


def _ends(cases: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """The second, the middle and the last case of a series: the first has the start of the workers in it."""
    own = [case for case in cases if case["name"].startswith(name)]
    return [own[1], own[len(own) // 2], own[-1]]


def pages(kind: str) -> list[str]:
    """The names of the defenses or attacks that have a page."""
    return [page.stem for page in sorted((ROOT / "docs" / kind).glob("*.md")) if page.stem != "README"]


TABLES: dict[str, Callable[[], str]] = {
    **{f"defense {name}": partial(one_defense, name) for name in pages("defenses")},
    **{f"attack {name}": partial(one_attack, name) for name in pages("attacks")},
    "attacks": attacks,
    "worlds": worlds,
    "comparison": comparison,
    "peers": peers,
    "elections": elections,
    "training": training,
    "round": whole_round,
    "judges": judges,
    "floors": floors,
    "clusters": lambda: seats("clusters"),
    "rounds": rounds,
    "found": found,
    "cohorts": cohorts,
    "loading": loading,
    "growth": growth,
    "step": step,
    "demo": demo,
}


def fill(page: str) -> str:
    """A page with its tables made anew."""
    for name, make in TABLES.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if place.search(page):
            table = f"\n{make()}\n\n"
            page = place.sub(lambda found, table=table: found[1] + table + found[2], page)
    return page


def main() -> None:
    """Fill every page."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
