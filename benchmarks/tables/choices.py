"""Tables of the measurements behind the defaults."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.files import read_result
from benchmarks.operators.report import Row, tabulate_rows
from benchmarks.tables.markdown import format_percent, format_table
from snowball.rehearsal.verdict import describe_attack

INFECTED_ELECTED = ("infected_elected", "infected_elected_raw")
"""Counts of infected updates that are elected: as published, and with a faulty copy's scores."""


def tabulate_judges() -> str:
    """Tabulate the error rates of the judges."""
    worlds = read_result("defaults")["judges"]
    names = next(iter(worlds.values()))
    rows = (
        [world, *(f"{format_percent(row[name]['fpr'])} / {format_percent(row[name]['fnr'])}" for name in names)]
        for world, row in worlds.items()
    )
    return format_table(("FPR / FNR, %", *(f"`{name}`" for name in names)), rows)


def tabulate_ranking() -> str:
    """Tabulate the published VAE beside the distance, in the same rounds of every data set."""
    rows = []
    for case in read_result("ranking")["cases"]:
        infected = (str(case["infected"][judge]) for judge in ("distance", "vae"))
        same = f"{case['same']} of {case['elected']}"
        rows.append([case["data"], str(case["round"]), f"{case['correlation']:.3f}", same, *infected])
    heads = ("data", "round", "rank correlation", "elected by both", "infected by distance", "infected by VAE")
    return format_table(heads, rows)


def tabulate_copies() -> str:
    """Tabulate whom the published top-down election and a faulty copy's elect, in the same rounds."""
    rows = [
        [case["round"], f"{case['same']} of {case['elected']}", *(str(case[name]) for name in INFECTED_ELECTED)]
        for case in read_result("copies")["rounds"]
    ]
    return format_table(("round", "elected by both", "infected, as published", "infected, the copy's scores"), rows)


def tabulate_texts() -> str:
    """Tabulate how often a text ends in a word without a vector, and how two tokenisers split it."""
    rows = []
    for case in read_result("texts")["cases"]:
        both = (" / ".join(f"{value:.1f}" for value in case["words"]), " / ".join(map(format_percent, case["found"])))
        shares = (format_percent(case[name]) for name in ("moved", "other", "other_length"))
        rows.append([f"{case['name']}, {case['part']}", f"{case['texts']:,}", *shares, *both])
    heads = ("end without a vector, %", "other words, %", "another length, %", "words a text", "have a vector, %")
    return format_table(("set", "texts", *heads), rows)


def tabulate_latent() -> str:
    """Tabulate how well a VAE separates infected from benign candidates, by its training data."""
    rows = []
    for name, taken in read_result("latent")["rounds"].items():
        rows.append([name, "none: the distance", "-", "-", f"{taken['distance_auc']:.2f}"])
        for case in taken["cases"]:
            scores = (f"{fmean(case[score]):.2f}" for score in ("code_auc", "error_auc"))
            rows.append([name, f"`{case['judge']}`", case["learned"], *scores])
    return format_table(("round of", "VAE", "taught", "AUC by code", "AUC by error"), rows)


def tabulate_seats() -> str:
    """Tabulate the distances of infected updates to the others, and the seats that they win, by case."""
    rows = []
    for case in read_result("seats")["cases"]:
        rounds = case["rounds"]
        won, of = (sum(each[name] for each in rounds) for name in ("infected", "selectees"))
        means = [f"{fmean(each[name] for each in rounds):.2f}" for name in ("between", "together")]
        rows.append([case["name"], f"{won} of {of}", *means])
    heads = ("rounds of", "infected among selectees", "infected to benign", "infected to infected")
    return format_table(heads, rows)


def tabulate_selectees(table: str) -> str:
    """Tabulate infected selectees; small federations of one size, and their seeds, are added up."""
    counts: dict[str, dict[str, list[int]]] = {}
    for world, row in read_result("defaults")[table].items():
        group = counts.setdefault(re.sub(r"-s\d$", "", world), {})
        for setting, found in row.items():
            sums = group.setdefault(setting, [0, 0])
            sums[0] += found["infected"]
            sums[1] += found["of"]
    settings = list(dict.fromkeys(setting for row in counts.values() for setting in row))
    settings.sort(key=lambda setting: setting == "gap")
    rows = [
        [world, str(next(iter(row.values()))[1]), *_format_infected(row, settings)] for world, row in counts.items()
    ]
    heads = ("infected among the selectees", "selectees", *map(_name_setting, settings))
    return format_table(heads, [*rows, _add_totals(counts, settings)])


def tabulate_floors() -> str:
    """Tabulate infected selectees for each floor, with a line that counts the selectees that it changes."""
    changed: dict[str, int] = {}
    for row in read_result("defaults")["floors"].values():
        for floor, found in row.items():
            changed[floor] = changed.get(floor, 0) + found["changed"]
    return f"{tabulate_selectees('floors')}\n| selectees changed | | {' | '.join(map(str, changed.values()))} |"


def _format_infected(row: Mapping[str, list[int]], settings: Sequence[str]) -> list[str]:
    return [str(row[setting][0]) if setting in row else "-" for setting in settings]


def _add_totals(counts: Mapping[str, Mapping[str, list[int]]], settings: Sequence[str]) -> list[str]:
    """Make a last line that adds up what is comparable: the worlds in which every setting could be tried."""
    whole = [row for row in counts.values() if set(row) == set(settings)]
    seats = sum(next(iter(row.values()))[1] for row in whole)
    return [
        f"all {len(whole)} complete lines",
        str(seats),
        *(str(sum(row[name][0] for row in whole)) for name in settings),
    ]


def tabulate_rounds() -> str:
    """Tabulate infected selectees by round, over all worlds except the one that the paper itself gives up."""
    sums: dict[int, list[int]] = {}
    for world, row in read_result("defaults")["rounds"].items():
        for number, counted in row.items():
            pair = sums.setdefault(int(number), [0, 0])
            if world != "mnist-skewed":
                pair[0] += counted["infected"]
                pair[1] += counted["of"]
    numbers = sorted(sums)
    rows = [["infected", *(str(sums[number][0]) for number in numbers)]]
    rows.append(["selectees", *(str(sums[number][1]) for number in numbers)])
    return format_table(("round", *map(str, numbers)), rows)


def tabulate_found() -> str:
    """List the numbers of clusters that the Gap statistic finds."""
    rows = ([world, ", ".join(map(str, numbers))] for world, numbers in read_result("defaults")["found"].items())
    return format_table(("first round of", "clusters found with seeds 0 to 5"), rows)


def tabulate_cohorts() -> str:
    """Tabulate the accuracies of small federations."""
    runs: dict[tuple[int, int], dict[str, list[dict[str, float]]]] = {}
    for run in read_result("cohorts")["runs"]:
        runs.setdefault((run["sites"], run["infected"]), {}).setdefault(run["defense"], []).append(run["last"])
    names = list(dict.fromkeys(name for row in runs.values() for name in row))
    rows = (
        [f"{sites}, {infected} infected", *(_format_accuracies(row.get(name, [])) for name in names)]
        for (sites, infected), row in runs.items()
    )
    return format_table(("main / backdoor accuracy, %", *map(_name_setting, names)), rows)


def _name_setting(setting: str) -> str:
    """Return the heading of a setting: the number of clusters that the Gap statistic finds is our default."""
    return re.sub("^gap(?=,|$)", "our defaults", setting)


def _format_accuracies(lasts: Sequence[Mapping[str, float]]) -> str:
    """Format the mean main accuracy, and the backdoor accuracy of every seed."""
    if not lasts:
        return "-"
    main = sum(last["main_accuracy"] for last in lasts) / len(lasts)
    backdoors = ", ".join(f"{100 * last['backdoor_accuracy']:.0f}" for last in lasts)
    return f"{100 * main:.0f} / {backdoors}"


def tabulate_operators() -> str:
    """Tabulate what hostile sites achieve through Flower, NVFlare and in a plain loop."""
    return tabulate_rows(Row(**row) for row in read_result("operators")["rows"])


def tabulate_unequal() -> str:
    """Tabulate how far each rule is from the plain weighted mean, without attackers."""
    result = read_result("unequal")
    heads = (
        "rule",
        f"rounds 1 to {result['first_rounds']}",
        f"rounds {result['first_rounds'] + 1} to {result['rounds']}",
    )
    rows = ([name, f"{each['first']:.3f}", f"{each['later']:.3f}"] for name, each in result["errors"].items())
    return format_table(heads, rows)


def tabulate_rehearsal(federation: str) -> str:
    """Tabulate a rehearsal: the attacks, and under each how every defense does."""
    cells = read_result("rehearsals")["federations"][federation]["cells"]
    defenses, attacks = (list(dict.fromkeys(cell[key] for cell in cells)) for key in ("defense", "attack"))
    by_pair = {(cell["attack"], cell["defense"]): cell for cell in cells}
    rows = (
        [describe_attack(attack), *(format_rehearsed(by_pair[attack, defense]) for defense in defenses)]
        for attack in attacks
    )
    return format_table(("backdoor, % / accuracy lost, points / honest left out, %", *defenses), rows)


def format_rehearsed(cell: Mapping[str, Any]) -> str:
    """Format a defense under an attack: its numbers, and whether it holds."""
    numbers = (cell[name] for name in ("backdoor", "accuracy_lost", "honest_left_out"))
    return f"{' / '.join('-' if number is None else format_percent(number) for number in numbers)}, {cell['word']}"
