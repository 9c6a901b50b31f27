"""Tables of speed: elections, training, rounds, defenses, sweeps, loading, growth, histories."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import files
from benchmarks.files import read_result
from benchmarks.tables.markdown import format_number, format_percent, format_table


def tabulate_elections() -> str:
    """Tabulate the package's elections beside the plain ones."""
    rows = []
    for case in read_result("bench-elections")["cases"]:
        if "times_fedavg" in case:
            continue
        numbers = [format_number(case[key]) for key in ("seconds", "reference_seconds", "ratio")]
        rows.append([case["name"], *numbers, f"{case['agree']} of {case['of']}" if "agree" in case else "-"])
    return format_table(("case", "ours, s", "plainly, s", "ratio", "elected the same"), rows)


def tabulate_guard() -> str:
    """Tabulate a guard's round beside plain means, and its parts; then elections beside a float32 Gram matrix."""
    measured = read_result("bench-guard")["cases"]
    cases = [case for case in measured if "times_plain" in case]
    keys = ("seconds", "reference_seconds", "times_plain", "flower_seconds", "times_flower", "guard_mib", "replies_mib")
    rows = [[case["name"], *(format_number(case[key]) for key in keys)] for case in cases]
    heads = ("guard, s", "plain, s", "times", "Flower's, s", "times", "guard adds, MiB", "replies, MiB")
    parts = [
        [name, *(format_percent(case["parts"][name] / case["seconds"]) for case in cases)] for name in cases[0]["parts"]
    ]
    sizes = [case["name"].removeprefix("guard fedavg ") for case in cases]
    averages = (
        f"{format_table(('case', *heads), rows)}\n\n{format_table(('part of a guarded round, %', *sizes), parts)}"
    )
    elections = [case for case in measured if "times_both" in case]
    return f"{averages}\n\n{_tabulate_guarded_elections(elections)}" if elections else averages


def _tabulate_guarded_elections(cases: Sequence[Mapping[str, Any]]) -> str:
    """Tabulate a guard's rounds that elect, and their parts in per cent."""
    keys = ("seconds", "plain_seconds", "gram_seconds", "times_both", "guard_mib", "replies_mib")
    names = list(cases[0]["parts"])
    rows = [
        [case["name"], *(format_number(case[key]) for key in keys)]
        + [format_percent(case["parts"][name] / case["seconds"]) for name in names]
        for case in cases
    ]
    heads = ("guard, s", "plain mean, s", "float32 Gram, s", "times both", "guard adds, MiB", "replies, MiB")
    return format_table(("case", *heads, *(f"{name}, %" for name in names)), rows)


def tabulate_training() -> str:
    """Tabulate every way to train, on each network."""
    keys = ("samples_per_second", "ratio", "ratio_per_core")
    rows = []
    for case in select_measured("samples_per_second"):
        peaks = ("share_of_peak", "share_of_peak_beside")
        shares = [_format_share(case[key]) for key in (*peaks, "parallel_efficiency")]
        moved = format_number(case["bytes_moved"] / 2**20) if case["bytes_moved"] else "-"
        rows.append(
            [case["name"], *(format_number(case[key]) for key in keys), *shares, format_number(case["peak_mib"]), moved]
        )
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
    return format_table(("network, way", *heads), rows)


def tabulate_round() -> str:
    """Tabulate a round beside the plain one, and its parts."""
    keys = ("seconds", "reference_seconds", "ratio", "one_thread_seconds", "ratio_to_one_thread")
    cases = select_measured("one_thread_seconds")
    rows = [
        [case["name"].removeprefix("round "), case["data"], *(format_number(case[key]) for key in keys)]
        for case in cases
    ]
    heads = ("round", "data", "ours, s", "plainly, s", "ratio", "plainly on one thread, s", "ratio")
    shares = [
        [name, _format_share(share)] for case in select_measured("shares") for name, share in case["shares"].items()
    ]
    parts = format_table(("part of a round, with the default judge", "share, %"), shares)
    return f"{format_table(heads, rows)}\n\n{parts}"


def select_measured(fact: str) -> list[dict[str, Any]]:
    """Return the training cases that have a fact; none before the first measurement."""
    if not (files.RESULTS / "bench-training.json").exists():
        return []
    return [case for case in read_result("bench-training")["cases"] if fact in case]


def _format_share(value: float | None) -> str:
    return "-" if value is None else format_percent(value)


def tabulate_start() -> str:
    """Tabulate what users wait for before the first result, beside an import of torch."""
    cases = [case for case in read_result("bench-start")["cases"] if "seconds" in case]
    keys = ("seconds", "reference_seconds", "ratio")
    rows = [[case["name"], *(format_number(case[key]) for key in keys)] for case in cases]
    return format_table(("case", "s", "import of torch, s", "ratio"), rows)


def tabulate_peers() -> str:
    """Tabulate every defense's time on the server."""
    cases = [case for case in read_result("bench-elections")["cases"] if "times_fedavg" in case]
    sizes = list(dict.fromkeys(case["name"].partition(" ")[2] for case in cases))
    times = {tuple(case["name"].split(" ", 1)): case for case in cases}
    names = list(dict.fromkeys(name for name, _ in times))
    rows = (
        [
            name,
            *(
                cell
                for size in sizes
                for cell in (format_number(times[name, size][key]) for key in ("seconds", "times_fedavg"))
            ),
        ]
        for name in names
    )
    return format_table(("defense", *(head for size in sizes for head in (f"{size}, s", "x FedAvg"))), rows)


def tabulate_loading() -> str:
    """Tabulate the time and memory needed to load and partition each data set."""
    rows = []
    for case in read_result("loading")["cases"]:
        size = format_number(case["bytes"] / 2**20) if "bytes" in case else "-"
        costs = [format_number(case.get(key)) for key in ("first_seconds", "first_peak", "seconds", "peak")]
        dealt = [f"`{case['partition']}`, {case['clients']:,}", format_number(case["partition_seconds"])]
        rows.append([case["name"], f"{case['samples']:,}", size, *costs, *dealt])
    heads = ("first, s", "peak, x size", "afterwards, s", "peak, x size", "dealt, clients", "s")
    return format_table(("set", "samples", "MiB", *heads), rows)


def tabulate_busy() -> str:
    """Tabulate how busy a sweep keeps the cores."""
    found = read_result("sweep")
    shares = (format_percent(found[name]) for name in ("busy_share", "waiting_share"))
    row = (str(found["runs"]), str(found["jobs"]), f"{found['seconds'] / 60:.1f}", *shares)
    return format_table(("runs", "at a time", "minutes", "cores busy, %", "waiting for a core, %"), [row])


def tabulate_report() -> str:
    """Tabulate how long a report takes, and how large it is."""
    found = read_result("report")
    row = (str(found["runs"]), *(f"{found[name]:.1f}" for name in ("records_mb", "seconds", "page_mb")))
    return format_table(("runs", "records, MB", "seconds", "page, MB"), [row])


def tabulate_step() -> str:
    """Tabulate the time of a training step by part."""
    measured = read_result("step")
    total, roofline = sum(measured["microseconds"].values()), measured["roofline_microseconds"]
    rows = [
        [part, format_number(time), format_percent(time / total), format_number(roofline.get(part))]
        for part, time in measured["microseconds"].items()
    ]
    ideal, ready = (format_number(measured[f"{name}_microseconds"]) for name in ("ideal", "preparation"))
    note = (
        f"All its arithmetic at the peak would take {ideal} of {format_number(total)} µs, and all parts at their "
        f"roofline {format_number(sum(roofline.values()))}. "
        f"To have its samples ready takes {ready} µs before."
    )
    return f"{format_table(('part', 'µs', '%', 'roofline, µs'), rows)}\n\n{note}"


def tabulate_models() -> str:
    """Tabulate the time of a training step of each network for images."""
    cases = read_result("models")["cases"]
    sizes = list(dict.fromkeys(case["size"] for case in cases))
    rows = []
    for name in dict.fromkeys(case["name"] for case in cases):
        own = {case["size"]: case for case in cases if case["name"] == name}
        numbers = [format_number(own[size][key]) for size in sizes for key in ("milliseconds", "times_cnn")]
        rows.append([f"`{name}`", f"{own[sizes[-1]]['parameters']:,}", *numbers])
    heads = [head for size in sizes for head in (f"{size}, ms", "x cnn")]
    return format_table(("network", f"parameters, {sizes[-1]}", *heads), rows)


def tabulate_growth() -> str:
    """Tabulate time and memory by size; series whose size is a round show their first and last points."""
    cases = read_result("growth")["cases"]
    ends = [case for name in ("rounds", "writers") for case in _select_ends(cases, name)]
    rows = []
    for case in [case for case in cases if not case["name"].startswith(("rounds", "writers"))] + ends:
        rows.append([case["name"], format_number(case.get("seconds")), format_number(case.get("mib"))])
    exponents = ", ".join(f"{name} {value:.2f}" for name, value in read_result("growth")["exponents"].items())
    return f"{format_table(('case', 's', 'MiB'), rows)}\n\nExponents: {exponents}."


def _select_ends(cases: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the second, the middle and the last case of a series: the first includes the start of the workers."""
    own = [case for case in cases if case["name"].startswith(name)]
    return [own[1], own[len(own) // 2], own[-1]]


def tabulate_history(name: str) -> str:
    """Tabulate what it costs a defense to remember clients, and the benefit."""
    measured = read_result("history")
    rows = []
    for case in measured["cases"]:
        if case["name"] == name:
            sizes = [case["checkpoint_bytes"] / 2**20, case["written_bytes"] / 2**20]
            totals = [case["run_bytes"] / 2**30, case["run_bytes_whole"] / 2**30]
            shares = [format_percent(case[key]) for key in ("known", "infected_out", "benign_out")]
            rows.append(
                [
                    str(case["remember"] or "all"),
                    format_number(case["clients"]),
                    *map(format_number, sizes + totals),
                    *shares,
                ]
            )
    heads = ("clients kept", "checkpoint, MiB", "written per round, MiB", "per run, GiB", "whole each round, GiB")
    outcomes = ("known, %", "infected left out, %", "benign left out, %")
    (times,) = (case for case in measured["seconds"] if case["name"] == name)
    defense, changed, ratio = (format_number(times[name]) for name in ("defense", "changed", "ratio"))
    note = (
        f"With the default, a round takes {defense} s in the defense and {changed} s to write what changed; "
        f"the same checkpoint as one file takes {ratio} times as long to write."
    )
    return f"{format_table(('`remember`', *heads, *outcomes), rows)}\n\n{note}"
