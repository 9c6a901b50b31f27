"""Admits a round's clients: names them as the operator does, and drops those that must not be judged at all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import getLogger

from snowball.guard.decisions import find_in_force
from snowball.guard.names import Names, name_clients
from snowball.guard.reply import MAX_DETAIL_CHARS, Reply
from snowball.records.audit import Decision
from snowball.server import Dropped

logger = getLogger("snowball")


@dataclass(frozen=True, eq=False)
class Admitted:
    """A round's clients under their names.

    Attributes:
        replies: the replies that may be validated and judged.
        asked: None if nobody knows who was asked.
        expected: those of the asked whose reply may be judged; None likewise.
        dropped: the other replies, and those that could not be read.
        decisions: the decisions of people in force, by name.
        ids: the framework's id of each client, by name.
    """

    replies: list[Reply]
    asked: list[str] | None
    expected: list[str] | None
    dropped: list[Dropped]
    decisions: Mapping[str, Decision]
    ids: Mapping[str, str]


def admit_clients(
    replies: Sequence[Reply],
    asked: Sequence[str] | None,
    failures: Sequence[Dropped],
    names: Names,
    decisions: Iterable[Decision],
) -> Admitted:
    """Name all clients; drop the replies of those who are denied, and of unknown ids that equal a site's name."""
    clients = [reply.client for reply in replies] + [fault.client for fault in failures] + list(asked or ())
    named = name_clients(names, clients)
    in_force = find_in_force(decisions, names)
    warn_of_strangers(names, named, in_force)
    refused = refuse_clients(names, named, in_force)
    answers = [replace(reply, client=named[reply.client]) for reply in replies]
    invited = None if asked is None else [named[client] for client in asked]
    return Admitted(
        replies=[reply for reply in answers if reply.client not in refused],
        asked=invited,
        expected=None if invited is None else [client for client in invited if client not in refused],
        dropped=[replace(fault, client=named[fault.client]) for fault in failures]
        + [refused[reply.client] for reply in answers if reply.client in refused],
        decisions=in_force,
        ids={name: client for client, name in named.items()},
    )


def warn_of_strangers(names: Names, named: Names, decisions: Iterable[str]) -> None:
    """Warn of decisions about sites that nobody knows: a misspelt name would deny nobody."""
    known = {*names.values(), *named.values()}
    for site in decisions if names else ():
        if site not in known:
            advice = "whom the file of names lacks and who takes no part in this round"
            logger.warning("a decision is about %r, %s", site, advice)


def refuse_clients(names: Names, named: Names, decisions: Mapping[str, Decision]) -> dict[str, Dropped]:
    """Return why the replies of some of a round's clients are dropped, by name."""
    refused = {}
    for client, name in named.items():
        decision = decisions.get(name)
        if client not in names and client != name:
            refused[name] = Dropped(name, "identity", "its id is the name of a site, and the file of names lacks it")
        elif decision and decision["rule"] == "deny":
            detail = f"{decision['by']} decided: {decision['reason']}"
            refused[name] = Dropped(name, "denied", detail[:MAX_DETAIL_CHARS])
    return refused
