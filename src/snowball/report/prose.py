"""Runs in words, from the numbers of the table."""

from collections.abc import Mapping, Sequence

from snowball.records.fading import LATER_ROUNDS
from snowball.report.outcomes import CHANCE, MAX_OUT, Outcome, judge_rows
from snowball.report.runs import ABSENT, Row

OUTCOMES = {
    "in": "lost to the backdoor",
    "partly": "lost to the backdoor in part",
    "gone": "recovered from the backdoor",
    "low": "let attackers in but did not lose yet",
    "unclear": "cannot be judged",
    "out": "held",
    "damage": "met an attack without a backdoor",
    "none": "trained without an attack",
    "empty": "finished no round yet",
}
"""The outcomes of a run, worst first; `snowball.report.outcomes` decides which it is."""

REASONS = {
    ("low", "alone"): ", and no fedavg run beside it shows that the attack works",
    ("low", "harmless"): ", nor had it with fedavg by then",
    ("unclear", "harmless"): ": fedavg had not learned the backdoor by then either",
    ("out", "averaged"): " where fedavg did not",
    ("none", "waiting"): " so far",
}
"""What is added to an outcome that has such a reason."""

MAX_NAMES, MAX_DETAILED = 4, 2
"""The most runs or defenses that are named in prose, more are counted; and the most whose outcome has its numbers."""


def write_headline(rows: Sequence[Row]) -> str:
    """Say in one line how the runs ended: each if they are few, or how many of each defense, or of all."""
    outcomes = judge_rows(rows)
    if len(rows) <= MAX_NAMES:
        parts = _describe_each(rows, outcomes)
    elif len(defenses := dict.fromkeys(row.defense for row in rows)) <= MAX_NAMES:
        judged = list(zip(rows, outcomes, strict=True))
        parts = [f"{defense}: {_count_outcomes(judged, defense)}" for defense in defenses]
    else:
        parts = [f"{len(group)} of {len(rows)} runs {OUTCOMES[key]}" for key, group in _group_rows(rows).items()]
    return "; ".join(parts) + "."


def _describe_each(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> list[str]:
    """Say how each run ended, worst first; runs that ended alike share a clause."""
    named: dict[str, list[str]] = {}
    for row, outcome in sorted(zip(rows, outcomes, strict=True), key=lambda each: list(OUTCOMES).index(each[1].key)):
        said = describe_outcome(row, outcome) if len(rows) <= MAX_DETAILED else shorten_outcome(outcome)
        named.setdefault(said, []).append(_name_run(row, rows))
    return [f"{join_names(names)} {said}" for said, names in named.items()]


def describe_outcome(row: Row, outcome: Outcome) -> str:
    """Say how a run ended and how many infected updates were averaged, as what follows its name."""
    if outcome.key == "low":
        reason = REASONS.get((outcome.key, outcome.reason), "")
        return f"averaged {_count_averaged(row)}, but the backdoor has not taken hold yet{reason}"
    stayed = ": the backdoor stayed out" if outcome == Outcome("out") else ""
    text = shorten_outcome(outcome) + stayed + _add_numbers(row, outcome)
    return f"{text} ({_count_averaged(row)} averaged)" if row.infected and outcome.key != "empty" else text


def shorten_outcome(outcome: Outcome) -> str:
    """Say how a run ended, without its numbers."""
    round = f" in round {outcome.until or outcome.since}" if outcome.since else ""
    reason = "" if outcome.key == "low" else REASONS.get((outcome.key, outcome.reason), "")
    return OUTCOMES[outcome.key] + round + reason


def _add_numbers(row: Row, outcome: Outcome) -> str:
    """Return the numbers that belong to an outcome."""
    main, backdoor = _format_share(row.last_main_accuracy or 0.0), row.last_backdoor_accuracy or 0.0
    match outcome.key, outcome.reason:
        case "gone", _:
            return f", having lost to it in round {outcome.since}"
        case "partly", _:
            return f": the trigger works on {_format_share(backdoor)} of samples"
        case "unclear", "untrained":
            return f": its model is right on only {main} of clean samples"
        case "unclear", "short":
            return f" after {_count_attacked_rounds(row)}"
        case "out", _:
            erring = f" though its model errs on {_format_share(backdoor)} of triggered samples"
            return ("" if row.finished else " so far") + (erring if backdoor > CHANCE + MAX_OUT else "")
        case _:
            return ""


def _count_attacked_rounds(row: Row) -> str:
    count = sum(point.infected > 0 for point in row.points)
    return f"only {count} attacked round{'s' if count > 1 else ''}"


def _count_averaged(row: Row) -> str:
    """Say how many infected updates were averaged, of how many."""
    share = {0: f"none of {row.infected}", row.infected: f"all {row.infected}"}
    updates = "update" if row.infected == 1 else "updates"
    return f"{share.get(row.averaged, f'{row.averaged} of {row.infected}')} infected {updates}"


def _name_run(row: Row, rows: Sequence[Row]) -> str:
    """Name a run by its defense, with its own name where several runs share the defense."""
    if row.defense in (ABSENT, row.name):
        return row.name
    return f"{row.defense} ({row.name})" if [each.defense for each in rows].count(row.defense) > 1 else row.defense


def _count_outcomes(judged: Sequence[tuple[Row, Outcome]], defense: str) -> str:
    """Count the outcomes of the runs with this defense."""
    keys = [outcome.key for row, outcome in judged if row.defense == defense]
    first, *others = [key for key in OUTCOMES if key in keys]
    counts = [f"{keys.count(first)} of {len(keys)} {OUTCOMES[first]}"]
    return ", ".join(counts + [f"{keys.count(key)} {OUTCOMES[key]}" for key in others])


def write_prose(rows: Sequence[Row]) -> str:
    """Describe the runs in one paragraph."""
    return " ".join(map(_describe_run, rows) if len(rows) <= MAX_NAMES else _describe_groups(rows))


def _group_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    keys = [outcome.key for outcome in judge_rows(rows)]
    groups = {key: [row for row, own in zip(rows, keys, strict=True) if own == key] for key in OUTCOMES}
    return {key: group for key, group in groups.items() if group}


def _describe_run(row: Row) -> str:
    if row.last_main_accuracy is None:
        return f"{row.name} has no round to show yet."
    text = f"The last model of {row.name} is right on {_format_share(row.last_main_accuracy)} of clean samples"
    if row.last_backdoor_accuracy is not None:
        text += f" and does as the attacker likes with {_format_share(row.last_backdoor_accuracy)} of triggered ones"
    text += _describe_election(row) + "." + _describe_best_round(row)
    return " ".join(filter(None, (text, describe_fading(row), describe_exceptions(row))))


def describe_fading(row: Row) -> str:
    """Say how the backdoor fades after the attack has stopped; empty if it does not stop before the last round."""
    fading, last = row.fading, row.last_backdoor_accuracy
    if fading is None:
        return ""
    later = fading.later_backdoor_accuracy
    parts = [
        f"on {_format_share(later)} {LATER_ROUNDS} rounds later" if later is not None else "",
        f"on {_format_share(last)} in the last round" if last is not None else "",
    ]
    trend = "it did not fall below half of that"
    if fading.half_rounds is not None:
        trend = f"it fell below half of that after {fading.half_rounds} round{'s' * (fading.half_rounds > 1)}"
    before = _format_share(fading.backdoor_accuracy)
    worked = f"The attack stopped in round {fading.stop}, when the trigger worked on {before}"
    return f"{', '.join(filter(None, (worked, *parts)))}; {trend}."


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
    """Mention the best round if the backdoor was out in only one of it and the last."""
    best, last = row.best_backdoor_accuracy, row.last_backdoor_accuracy
    if best is None or last is None or (best <= CHANCE + MAX_OUT) == (last <= CHANCE + MAX_OUT):
        return ""
    return f" In its best round, {row.best_round}, the trigger worked on {_format_share(best)}."


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
