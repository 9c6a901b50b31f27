"""Runs in words, from the numbers of the table."""

from collections.abc import Mapping, Sequence

from snowball.report.runs import Row

MIN_BACKDOOR_IN, MAX_BACKDOOR_OUT = 0.5, 0.2
"""Backdoor accuracy from which a model has learned the backdoor, and up to which it has not: clean models err too."""

OUTCOMES = {
    "in": "let the backdoor in",
    "partly": "let the backdoor in part of the way",
    "out": "kept the backdoor out",
    "none": "trained without an attack",
    "empty": "finished no round yet",
}
"""The outcomes of a run, worst first."""

MAX_NAMES = 4
"""The most runs that are named in prose; more are counted."""


def classify_outcome(main_accuracy: float | None, backdoor_accuracy: float | None) -> str:
    """Return the outcome of a run: a key of `OUTCOMES`."""
    if main_accuracy is None:
        return "empty"
    if backdoor_accuracy is None:
        return "none"
    if backdoor_accuracy >= MIN_BACKDOOR_IN:
        return "in"
    return "out" if backdoor_accuracy <= MAX_BACKDOOR_OUT else "partly"


def write_headline(rows: Sequence[Row]) -> str:
    """Say in one line how the runs ended."""
    groups = _group_rows(rows)
    if len(rows) <= MAX_NAMES:
        parts = [f"{join_names([row.name for row in group])} {OUTCOMES[key]}" for key, group in groups.items()]
    else:
        parts = [f"{len(group)} of {len(rows)} runs {OUTCOMES[key]}" for key, group in groups.items()]
    return "; ".join(parts) + "."


def write_prose(rows: Sequence[Row]) -> str:
    """Describe the runs in one paragraph."""
    return " ".join(map(_describe_run, rows) if len(rows) <= MAX_NAMES else _describe_groups(rows))


def _group_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    keys = [classify_outcome(row.last_main_accuracy, row.last_backdoor_accuracy) for row in rows]
    groups = {key: [row for row, own in zip(rows, keys, strict=True) if own == key] for key in OUTCOMES}
    return {key: group for key, group in groups.items() if group}


def _describe_run(row: Row) -> str:
    if row.last_main_accuracy is None:
        return f"{row.name} has no round to show yet."
    text = f"The last model of {row.name} is right on {_format_share(row.last_main_accuracy)} of clean samples"
    if row.last_backdoor_accuracy is not None:
        text += f" and does as the attacker likes with {_format_share(row.last_backdoor_accuracy)} of triggered ones"
    return " ".join(
        filter(None, (text + _describe_election(row) + "." + _describe_best_round(row), describe_exceptions(row)))
    )


def describe_exceptions(row: Row) -> str:
    """Say who was dropped and why, and which rounds left the model unchanged; empty if there are none."""
    dropped = [f"{client} {_count_reasons(reasons)}" for client, reasons in row.dropped.items()]
    sentences = [f"Dropped: {join_names(dropped)}."] if dropped else []
    if row.kept:
        rounds = "round" if len(row.kept) == 1 else "rounds"
        sentences.append(f"The model stayed as it was in {rounds} {join_names([str(round) for round in row.kept])}.")
    return " ".join(sentences)


def _count_reasons(reasons: Mapping[str, int]) -> str:
    """Say how often a client was dropped for each reason."""
    counted = ", ".join(f"{count} × {reason}" for reason, count in reasons.items())  # noqa: RUF001
    return f"({counted})"


def _describe_election(row: Row) -> str:
    left_out = _format_share(row.false_negative_rate) if row.false_negative_rate else "none"
    if row.false_positive_rate is None:
        return f"; it left out {left_out} of the updates" if row.false_negative_rate else ""
    used = _format_share(row.false_positive_rate)
    return f"; it used {used} of infected updates and left out {left_out} of the benign ones"


def _describe_best_round(row: Row) -> str:
    """Mention the best round if its outcome differs from the last one's."""
    best = classify_outcome(row.best_main_accuracy, row.best_backdoor_accuracy)
    if row.best_backdoor_accuracy is None or best == classify_outcome(
        row.last_main_accuracy, row.last_backdoor_accuracy
    ):
        return ""
    return f" In its best round, {row.best_round}, the trigger worked on {_format_share(row.best_backdoor_accuracy)}."


def _describe_groups(rows: Sequence[Row]) -> list[str]:
    return [
        f"{join_names([row.name for row in group])} {OUTCOMES[key]}{_describe_ranges(group)}."
        for key, group in _group_rows(rows).items()
    ]


def _describe_ranges(rows: Sequence[Row]) -> str:
    """Give the ranges of the last models' accuracies."""
    main = _format_range([row.last_main_accuracy for row in rows])
    backdoor = _format_range([row.last_backdoor_accuracy for row in rows])
    words = [f"main accuracy {main}" if main else "", f"backdoor {backdoor}" if backdoor else ""]
    return f" ({', '.join(filter(None, words))})" if any(words) else ""


def _format_range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = _format_share(min(known)), _format_share(max(known))
    return low if low == high else f"{low} to {high}"


def join_names(names: Sequence[str]) -> str:
    """Join names for prose; if there are many, name a few and count the others."""
    shown = list(names) if len(names) <= MAX_NAMES else [*names[: MAX_NAMES - 1], f"{len(names) - MAX_NAMES + 1} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _format_share(value: float) -> str:
    """Format a fraction in whole per cent, with a decimal if it is small."""
    return f"{100 * value:.0f}%" if value >= 0.1 or value == 0 else f"{100 * value:.1f}%"
