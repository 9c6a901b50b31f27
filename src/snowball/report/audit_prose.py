"""An audit in words."""

from snowball.report.audit import Audit, Client, Moment, escape_text
from snowball.report.prose import MAX_NAMES, join_names

MAX_LINE_CHARS = 400
"""The most characters of a round's description that are shown."""


def write_audit_headline(audit: Audit) -> str:
    """Say in one line how the rounds ended."""
    total, kept = len(audit.entries), sum(audit.kept.values())
    if not total:
        return "The audit has no round yet."
    return f"{_count_noun(total - kept, 'round')} aggregated, {kept} kept the old model."


def write_audit_prose(audit: Audit) -> str:
    """Describe the audit in one paragraph."""
    return " ".join(
        filter(None, (_write_monitoring(audit), _write_kept(audit), _write_clients(audit), _write_restarts(audit)))
    )


def write_moment_line(moment: Moment) -> str:
    """Write a client's round as one line, with its numbers next to those of the elected."""
    facts = ", ".join(_write_fact(moment, name) for name in moment.facts)
    return f"round {moment.round}: {escape_text(moment.words, MAX_LINE_CHARS)}{f' ({facts})' if facts else ''}"


def write_client_line(client: Client, audit: Audit, moments: int) -> str:
    """Say in one line how a client fared."""
    dropped, rounds = sum(client.dropped.values()), len(audit.entries)
    parts = [
        f"elected {_count_noun(client.elected, 'time')}",
        f"left out {client.left_out}",
        f"dropped {dropped}",
        f"silent {client.silent}",
        f"had no part in {rounds - moments} of {_count_noun(rounds, 'round')}",
    ]
    watched = f" {_write_monitoring(audit)}" if audit.monitored else ""
    return f"{escape_text(client.client)}: {', '.join(parts)}.{watched}"


def _write_fact(moment: Moment, name: str) -> str:
    """Write a number, next to those of the elected if the client was left out."""
    lowest, highest = (f"{end:.4g}" for end in moment.ranges.get(name, (0, 0)))
    elected = f" against {lowest}{'' if lowest == highest else f' to {highest}'}" if name in moment.ranges else ""
    return f"{escape_text(name)} {moment.facts[name]:.4g}{elected}"


def _write_monitoring(audit: Audit) -> str:
    if not audit.monitored:
        return ""
    rounds = "every round" if audit.monitored == len(audit.entries) else _count_noun(audit.monitored, "round")
    return f"The guard only watched in {rounds}: there, nobody that could be judged was kept out for real."


def _write_kept(audit: Audit) -> str:
    reasons = [f"{escape_text(reason)} ({_count_noun(count, 'round')})" for reason, count in audit.kept.items()]
    return f"The old model was kept because: {join_names(reasons)}." if reasons else ""


def _write_clients(audit: Audit) -> str:
    if not audit.clients:
        return ""
    out = [client for client in audit.clients if client.left_out][: MAX_NAMES - 1]
    most = [f"{escape_text(each.client)} ({each.left_out} of {each.left_out + each.elected})" for each in out]
    dropped = sum(bool(client.dropped) for client in audit.clients)
    some = f" Replies of {_count_noun(dropped, 'client')} were dropped." if dropped else ""
    left = f"Left out most: {join_names(most)}." if most else "Nobody was left out."
    return f"{_count_noun(len(audit.clients), 'client')}. {left}{some}"


def _write_restarts(audit: Audit) -> str:
    times = _count_noun(audit.restarts, "time")
    return f"Rounds start over {times}: the federation was resumed or begun again." if audit.restarts else ""


def _count_noun(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
