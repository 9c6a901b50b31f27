"""The decisions of people about sites: a TOML file, which a guard reads in every round.

    [[decision]]
    site = "Aachen"
    rule = "probation"
    reason = "its scanner was replaced; two weeks of watching"
    by = "M. Weber"
    until = 2026-09-30

If several decisions about a site are in force, the strictest counts: deny, then probation, then allow. So a way back
can be written down in advance.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, get_args

from snowball.errors import SettingError
from snowball.guard.names import MAX_NAME_CHARS, Names
from snowball.guard.watched_file import check_text
from snowball.records.audit import Decision, Rule

MAX_REASON_CHARS = 300
"""Longest reason, which every entry of the audit repeats while a decision is in force."""

STRICTNESS: dict[Rule, int] = {"allow": 0, "probation": 1, "deny": 2}

REQUIRED = ("site", "rule", "reason", "by")
"""What a decision has to say; `until` may follow."""


def parse_decisions(content: Mapping[str, Any]) -> Sequence[Decision]:
    """Return the decisions in a file; refuse one that is not understood, since it might deny somebody."""
    listed = content.get("decision", [])
    if set(content) - {"decision"} or not isinstance(listed, list):
        raise SettingError("decisions go into tables [[decision]] and nowhere else")
    return [parse_decision(number, given) for number, given in enumerate(listed, 1)]


def parse_decision(number: int, given: Any) -> Decision:
    """Return one decision of a file."""
    where = f"decision {number}"
    if not isinstance(given, Mapping):
        raise SettingError(f"{where} must be a table [[decision]]")
    if missing := [name for name in REQUIRED if name not in given]:
        raise SettingError(f"{where} lacks {', '.join(missing)}")
    if unknown := sorted(set(given) - {*REQUIRED, "until"}):
        raise SettingError(f"{where} has {ascii(unknown[0])[:60]}, expected {', '.join(REQUIRED)} and until")
    if given["rule"] not in get_args(Rule):
        rules = ", ".join(get_args(Rule))
        raise SettingError(f"the rule of {where} must be one of {rules}, got {ascii(given['rule'])[:60]}")
    return {
        "client": check_text(given["site"], f"the site of {where}", MAX_NAME_CHARS),
        "rule": given["rule"],
        "reason": check_text(given["reason"], f"the reason of {where}", MAX_REASON_CHARS),
        "by": check_text(given["by"], f"by in {where}", MAX_NAME_CHARS),
        "until": None if "until" not in given else parse_last_day(given["until"], where),
    }


def parse_last_day(until: Any, where: str) -> str:
    """Return the last day of a decision; TOML has dates of its own, without quotation marks."""
    if not isinstance(until, date) or isinstance(until, datetime):
        raise SettingError(
            f"until in {where} must be a day such as 2026-09-30, without quotes, got {ascii(until)[:60]}"
        )
    return until.isoformat()


def find_in_force(decisions: Iterable[Decision], names: Names, today: date | None = None) -> dict[str, Decision]:
    """Return the decision in force about each site, by its name; the file may also say a site's id.

    A decision is in force through its last day, in UTC, as the times in the audit.
    """
    day = (today or datetime.now(UTC).date()).isoformat()
    found: dict[str, Decision] = {}
    for decision in decisions:
        site = decision["client"]
        name = site if site in names.values() else names.get(site, site)
        known = found.get(name)
        if decision["until"] is not None and decision["until"] < day:
            continue
        if known is None or STRICTNESS[decision["rule"]] > STRICTNESS[known["rule"]]:
            found[name] = {**decision, "client": name}
    return found
