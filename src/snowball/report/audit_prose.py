"""An audit in words."""

from snowball.report.audit import Audit, Client, Moment, visible
from snowball.report.prose import FEW, listing

LINE = 400
"""Characters of a round's words that are shown."""


def audit_headline(audit: Audit) -> str:
    """What became of the rounds, in one line."""
    total, kept = len(audit.entries), sum(audit.kept.values())
    if not total:
        return "The audit has no round yet."
    return f"{_many(total - kept, 'round')} aggregated, {kept} kept the old model."


def audit_story(audit: Audit) -> str:
    """What there is to know, in one paragraph."""
    return " ".join(filter(None, (_monitoring(audit), _kept(audit), _clients(audit), _restarts(audit))))


def moment_line(moment: Moment) -> str:
    """A client's round on one line, its numbers beside those of the elected."""
    facts = ", ".join(_fact(moment, name) for name in moment.facts)
    return f"round {moment.round}: {visible(moment.words, LINE)}{f' ({facts})' if facts else ''}"


def client_story(client: Client, audit: Audit, moments: int) -> str:
    """How a client fared, in one line."""
    dropped, rounds = sum(client.dropped.values()), len(audit.entries)
    parts = [
        f"elected {_many(client.elected, 'time')}",
        f"left out {client.left_out}",
        f"dropped {dropped}",
        f"silent {client.silent}",
        f"had no part in {rounds - moments} of {_many(rounds, 'round')}",
    ]
    watched = f" {_monitoring(audit)}" if audit.monitored else ""
    return f"{visible(client.client)}: {', '.join(parts)}.{watched}"


def _fact(moment: Moment, name: str) -> str:
    """A number, beside those of the elected where there is something to compare."""
    lowest, highest = (f"{end:.4g}" for end in moment.ranges.get(name, (0, 0)))
    elected = f" against {lowest}{'' if lowest == highest else f' to {highest}'}" if name in moment.ranges else ""
    return f"{visible(name)} {moment.facts[name]:.4g}{elected}"


def _monitoring(audit: Audit) -> str:
    if not audit.monitored:
        return ""
    rounds = "every round" if audit.monitored == len(audit.entries) else _many(audit.monitored, "round")
    return f"The guard only watched in {rounds}: there, nobody that could be judged was kept out for real."


def _kept(audit: Audit) -> str:
    reasons = [f"{visible(reason)} ({_many(count, 'round')})" for reason, count in audit.kept.items()]
    return f"The old model was kept because: {listing(reasons)}." if reasons else ""


def _clients(audit: Audit) -> str:
    if not audit.clients:
        return ""
    out = [client for client in audit.clients if client.left_out][: FEW - 1]
    most = [f"{visible(each.client)} ({each.left_out} of {each.left_out + each.elected})" for each in out]
    dropped = sum(bool(client.dropped) for client in audit.clients)
    some = f" Replies of {_many(dropped, 'client')} were dropped." if dropped else ""
    left = f"Left out most: {listing(most)}." if most else "Nobody was left out."
    return f"{_many(len(audit.clients), 'client')}. {left}{some}"


def _restarts(audit: Audit) -> str:
    times = _many(audit.restarts, "time")
    return f"Rounds start over {times}: the federation was resumed or begun again." if audit.restarts else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
