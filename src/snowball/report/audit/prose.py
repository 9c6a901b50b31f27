"""An audit in words."""

from collections.abc import Iterable, Mapping

from snowball.records.states import REPLY_STATES, STATES, knows_suspects
from snowball.records.text import escape_text
from snowball.report.audit.clients import STANDINGS, Client
from snowball.report.audit.history import Moment, describe_decision
from snowball.report.audit.names import write_name
from snowball.report.audit.setups import describe_changes, describe_setup
from snowball.report.audit.summary import RECENT_ROUNDS, Audit
from snowball.report.prose import MAX_NAMES, join_names

MAX_LINE_CHARS = 400
"""The most characters of a round's description that are shown."""


def write_audit_headline(audit: Audit) -> str:
    """Say who is suspect, since when and how often, or that nobody is."""
    suspects = [client for client in audit.clients if client.standing == "suspect"]
    if not audit.entries:
        return "The audit has no round yet."
    if suspects:
        return _write_suspects(suspects)
    if any(entry["left_out"] for entry in audit.entries) and not any(map(knows_suspects, audit.entries)):
        return "This audit is of an earlier version: it says who was left out, but not whether on evidence."
    return f"Nobody is suspect{_explain_no_suspect(audit)}."


def _write_suspects(suspects: list[Client]) -> str:
    named = suspects[: MAX_NAMES - 1]
    parts = [_write_suspicion(client, " has been suspect" if not place else "") for place, client in enumerate(named)]
    more = len(suspects) - len(named)
    rest = f"; {_count_noun(more, 'other client')} {'is' if more == 1 else 'are'} suspect, too" if more else ""
    return f"{'; '.join(parts)}{rest}."


def _write_suspicion(client: Client, verb: str) -> str:
    found = client.suspicion
    assert found
    return (
        f"{write_name(client.client)}{verb} since round {found.first}, "
        f"in {found.suspect} of {_count_noun(found.judged, 'round')}"
    )


def _explain_no_suspect(audit: Audit) -> str:
    """Say why an audit with clients that were left out has no suspects."""
    if not any(entry["left_out"] for entry in audit.entries):
        return "" if any(entry["elected"] for entry in audit.entries) else ": no round was judged"
    if all(entry["clarity"] is None and not entry["suspects"] for entry in audit.entries):
        return f": {escape_text(audit.entries[-1]['defense'])} prefers some updates to others and accuses nobody"
    return ""


def write_audit_prose(audit: Audit) -> str:
    """Describe the audit in one paragraph."""
    if not audit.entries:
        return ""
    parts = (
        _write_clarity(audit),
        _write_outcomes(audit),
        _write_malformed(audit),
        _write_cleared(audit),
        _write_decisions(audit),
        _write_often(audit),
        _write_unknown(audit),
        _write_monitoring(audit),
        _write_setups(audit),
        _write_restarts(audit),
    )
    return " ".join(filter(None, parts))


def _write_clarity(audit: Audit) -> str:
    found = audit.clarity
    if not found:
        return ""
    last = _count_noun(min(RECENT_ROUNDS, len(audit.entries)), "round")
    unclear = f"; {found['unclear']} {'was' if found['unclear'] == 1 else 'were'} unclear" if found["unclear"] else ""
    return f"Somebody was charged in {found['charged']} of the last {last}{unclear}."


def _write_outcomes(audit: Audit) -> str:
    kept = sum(audit.kept.values())
    because = f": {_list_reasons(audit.kept)}" if kept else ""
    remarks = f" Remarks: {_list_reasons(audit.remarks)}." if audit.remarks else ""
    rounds = _count_noun(len(audit.entries) - kept, "round")
    return f"{rounds} aggregated, {kept} kept the old model{because}.{remarks}"


def _list_reasons(reasons: Mapping[str, int]) -> str:
    counted = [
        f"{escape_text(each, MAX_LINE_CHARS)} ({_count_noun(count, 'round')})" for each, count in reasons.items()
    ]
    return join_names(counted)


def _write_malformed(audit: Audit) -> str:
    found = [client for client in audit.clients if client.rounds.get("malformed")]
    names = [f"{write_name(client.client)} ({write_malformed(client)})" for client in found]
    return f"Sent malformed replies: {join_names(names)}." if names else ""


def write_malformed(client: Client) -> str:
    """Say how many replies of a client were malformed, by reason."""
    reasons = [reason for reason in client.dropped if REPLY_STATES.get(reason) == "malformed"]
    return ", ".join(f"{client.dropped[reason]} {escape_text(reason)}" for reason in reasons)


def _write_cleared(audit: Audit) -> str:
    found = [client for client in audit.clients if client.suspicion and not client.suspicion.stands]
    names = [f"{write_name(each.client)} (last in round {each.suspicion.last})" for each in found if each.suspicion]
    return f"No longer suspect: {join_names(names)}." if names else ""


def _write_decisions(audit: Audit) -> str:
    found = [client for client in audit.clients if client.decision]
    names = [
        f"{write_name(client.client)} is {describe_decision(client.decision)}" for client in found if client.decision
    ]
    return f"Decisions of people: {'; '.join(names[:MAX_NAMES])}." if names else ""


def _write_often(audit: Audit) -> str:
    found = [client for client in audit.clients if client.standing == "often"]
    names = [
        f"{write_name(each.client)} ({each.passed_over} rounds, about {each.fair_share:.0f} by chance)"
        for each in found
    ]
    if not names:
        return ""
    remark = "That is no evidence of an attack: unusual data are enough for it."
    return f"Left out far more often than others: {join_names(names)}. {remark}"


def _write_unknown(audit: Audit) -> str:
    count = sum(not knows_suspects(entry) and bool(entry["left_out"]) for entry in audit.entries)
    if not count or count == sum(bool(entry["left_out"]) for entry in audit.entries):
        return ""
    return f"{_count_noun(count, 'round')} of an earlier version do not say whether anybody was left out on evidence."


def _write_monitoring(audit: Audit) -> str:
    if not audit.monitored:
        return ""
    rounds = "every round" if audit.monitored == len(audit.entries) else _count_noun(audit.monitored, "round")
    return f"The guard only watched in {rounds}: there, nobody that could be judged was kept out for real."


def _write_setups(audit: Audit) -> str:
    first, *_ = audit.setups
    changes = describe_changes(audit.setups)
    shown = changes[-(MAX_NAMES - 1) :]
    hidden = [_count_noun(len(changes) - len(shown), "earlier change")] if len(changes) > len(shown) else []
    return f"{'; '.join([f'Judged by {describe_setup(first)}', *hidden, *shown])}."


def _write_restarts(audit: Audit) -> str:
    times = _count_noun(audit.restarts, "time")
    return f"Rounds start over {times}: the federation was resumed or begun again." if audit.restarts else ""


def write_standing(client: Client) -> str:
    """Say what there is against a client, and what people decided about it."""
    words = STANDINGS[client.standing]
    if client.standing == "suspect" and client.suspicion:
        found = client.suspicion
        words = f"suspect since round {found.first}, in {found.suspect} of {_count_noun(found.judged, 'round')}"
    if client.decision and client.standing not in ("denied", "probation"):
        rules = {"allow": "allowed", "deny": "denied", "probation": "on probation"}
        words = f"{words}; {rules[client.decision['rule']]}"
    return words


def write_client_line(client: Client, audit: Audit, moments: int) -> str:
    """Say in one line how a client fared."""
    rounds = len(audit.entries)
    parts = [f"{STATES[state]} {_count_noun(count, 'time')}" for state, count in _order_rounds(client)]
    absent = f"had no part in {rounds - moments} of {_count_noun(rounds, 'round')}"
    watched = f" {_write_monitoring(audit)}" if audit.monitored else ""
    return f"{client.label}: {write_standing(client)}; {', '.join([*parts, absent])}.{watched}"


def _order_rounds(client: Client) -> Iterable[tuple[str, int]]:
    return ((state, client.rounds[state]) for state in STATES if client.rounds.get(state))


def write_moment_line(moment: Moment) -> str:
    """Write a client's round as one line, with its numbers next to those of the elected."""
    facts = ", ".join(_write_fact(moment, name) for name in moment.facts)
    return f"round {moment.round}: {escape_text(moment.words, MAX_LINE_CHARS)}{f' ({facts})' if facts else ''}"


def _write_fact(moment: Moment, name: str) -> str:
    """Write a number, next to those of the elected if the client was left out."""
    lowest, highest = (f"{end:.4g}" for end in moment.ranges.get(name, (0, 0)))
    elected = f" against {lowest}{'' if lowest == highest else f' to {highest}'}" if name in moment.ranges else ""
    return f"{escape_text(name)} {moment.facts[name]:.4g}{elected}"


def _count_noun(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
