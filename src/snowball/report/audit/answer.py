"""Answers "why was this client left out in that round?" in two sentences, with the evidence of each ballot."""

from dataclasses import dataclass

from snowball.records.audit import REASONS, AuditEntry
from snowball.records.states import (
    JUDGED_STATES,
    LEFT_OUT_STATES,
    classify_clients,
    find_decision,
    find_faults,
)
from snowball.records.text import escape_text
from snowball.report.audit.clients import Client
from snowball.report.audit.facts import (
    DIRECTIONS,
    Ballot,
    Range,
    find_elected_ranges,
    find_meaning,
    list_fact_names,
    read_ballots,
    read_charge,
    read_number,
)
from snowball.report.audit.history import add_reason, describe_decision
from snowball.report.audit.prose import MAX_LINE_CHARS
from snowball.report.audit.summary import Audit

SENTENCES = {
    "suspect": "{who} was suspect {when}{handled}: {accused}",
    "not_needed": "{who} was not needed {when}{exception}: {defense} elected {elected} and does not accuse the others",
    "left_out": "{who} was left out {when}{exception}{charge}; this audit does not say whether on evidence",
    "elected": "{who} was elected {when}{share}",
    "probation": "{who} was on probation {when} ({decided}): the defense {chose} it, and it was {averaged}",
    "denied": "{who} was denied {when} ({decided}), so its reply was dropped",
    "malformed": "{who} sent a malformed reply {when}: {faults}",
    "failed": "{who} failed {when}: {faults}",
    "dropped": "The reply of {who} was not counted {when}: {faults}",
    "unjudged": "{who} answered {when}, and nobody was judged",
    "silent": "{who} was asked {when} and did not answer",
    "not_asked": "{who} was not asked {when}",
    "absent": "{who} had no part {when}, and this audit does not say who was asked",
}
"""The first sentence of an answer, by state; the last two are for a client that had no part in the round."""

CONSEQUENCES = {
    "malformed": "It was dropped before anything was judged: a fault of its reply, and not a suspicion",
    "failed": "It sent nothing that could be judged, which is not a suspicion",
    "denied": "That is a person's decision, whatever it sent",
    "dropped": "It had no part in the result, which is not a suspicion",
    "unjudged": "So this round has no evidence for or against it",
    "silent": "It had no part in the result, which is not a suspicion",
}
"""The second sentence about a client that was not judged."""


@dataclass(frozen=True)
class Finding:
    """A client's number in a round.

    Attributes:
        elected: the lowest and the highest number among the elected; None if there is none.
        worse: which numbers are worse, a key of `DIRECTIONS`; empty if that is not known.
        meaning: what the number means; empty if that is not known.
        words: all of it in words.
    """

    name: str
    value: float
    elected: Range | None
    worse: str
    meaning: str
    words: str


@dataclass(frozen=True)
class Answer:
    """What a round meant to a client, and why.

    Attributes:
        state: a key of `STATES`; None if the client had no part in the round.
        sentences: the answer.
        findings: the client's numbers, the most telling first.
        ballots: what each ballot found; `evidence` says it in words.
    """

    client: str
    ids: list[str]
    round: int
    time: str
    defense: str
    state: str | None
    sentences: list[str]
    findings: list[Finding]
    ballots: list[Ballot]
    evidence: list[str]
    clarity: float | None
    share: float | None


def explain_round(audit: Audit, text: str, round: int) -> Answer:
    """Answer why a client, meant by its name or id, was left out in a round, or what else happened to it."""
    client, entry = audit.find_client(text), audit.find_round(round)
    state = classify_clients(entry).get(client.client)
    judged = state in JUDGED_STATES
    findings = list_findings(entry, client.client, state in LEFT_OUT_STATES) if judged else []
    ballots = read_ballots(entry) if judged else []
    first = _tell_what_happened(entry, client, state, ballots) + escape_text(add_reason(entry), MAX_LINE_CHARS)
    second = _give_reason(state, findings)
    return Answer(
        client=client.client,
        ids=client.ids,
        round=entry["round"],
        time=entry["time"],
        defense=entry["defense"],
        state=state,
        sentences=[f"{sentence}." for sentence in (first, second) if sentence],
        findings=findings,
        ballots=ballots,
        evidence=[describe_ballot(ballot, client.client) for ballot in ballots],
        clarity=entry["clarity"],
        share=entry["shares"].get(client.client),
    )


def list_findings(entry: AuditEntry, client: str, left_out: bool) -> list[Finding]:
    """List a client's numbers, next to those of the elected; of one left out, say which do not tell why."""
    ranges, found = find_elected_ranges(entry), []
    for name in list_fact_names(entry):
        if (value := read_number(entry["facts"][name], client)) is not None:
            worse, meaning = find_meaning(name) or ("", "")
            words = f"{escape_text(name)} {value:.4g}{_compare(ranges.get(name), worse)}"
            if left_out and not _stands_out(value, ranges.get(name), worse):
                words = f"{words}, so it does not stand out by this"
            found.append(Finding(name, value, ranges.get(name), worse, meaning, words))
    return found


def _compare(elected: Range | None, worse: str) -> str:
    """Say what the elected had, and which direction is bad."""
    direction = DIRECTIONS.get(worse, 0)
    bad = f"; {worse} is worse" if direction else ""
    if elected is None:
        return bad
    lowest, highest = (f"{end:.4g}" for end in elected)
    if lowest == highest:
        return f", the elected had {lowest}{bad}"
    among = {-1: f"{lowest} or more", 0: f"{lowest} to {highest}", 1: f"{highest} or less"}[direction]
    return f", the elected had {among}{bad}"


def _stands_out(value: float, elected: Range | None, worse: str) -> bool:
    """Whether a number is worse than that of any of the elected, as far as that is known."""
    direction = DIRECTIONS.get(worse, 0)
    return elected is None or not direction or direction * value > max(direction * end for end in elected)


def _tell_what_happened(entry: AuditEntry, client: Client, state: str | None, ballots: list[Ballot]) -> str:
    """Tell what a round meant to a client, as a sentence without its full stop."""
    name, charge, decision = client.client, read_charge(entry), find_decision(entry, client.client)
    absent = "absent" if entry["asked"] is None else "not_asked"
    return SENTENCES[state or absent].format(
        who=client.label,
        when=f"in round {entry['round']}",
        exception=_say_averaged(entry, name),
        handled=_say_averaged(entry, name) or " and left out",
        accused=_accuse(entry, name, ballots),
        charge=f": {charge}" if charge else "",
        defense=escape_text(entry["defense"]) or "the defense",
        elected=f"{len(entry['elected'])} of {len(entry['elected']) + len(entry['left_out'])}",
        share=_say_share(entry, name),
        decided=describe_decision(decision) if decision else "the audit does not say by whom",
        chose="elected" if name in entry["elected"] else "did not elect",
        averaged="averaged" if name in entry["averaged"] else "not averaged",
        faults=_list_faults(entry, name),
    )


def _list_faults(entry: AuditEntry, client: str) -> str:
    return "; ".join(
        f"{REASONS.get(fault['reason'], escape_text(fault['reason']))} ({escape_text(fault['detail'], MAX_LINE_CHARS)})"
        for fault in find_faults(entry, client)
    )


def _accuse(entry: AuditEntry, client: str, ballots: list[Ballot]) -> str:
    """Say what a suspect is accused of: by the ballots that charged it, or by the round's charge."""
    own = [ballot.words for ballot in ballots if ballot.words and client in (ballot.charged or ())]
    return "; ".join(own) or read_charge(entry) or f"{escape_text(entry['defense'])} does not say more in words"


def _say_averaged(entry: AuditEntry, client: str) -> str:
    """Say if a client that the defense leaves out was averaged all the same, and why."""
    decision = find_decision(entry, client)
    if client not in entry["averaged"]:
        return ""
    if decision and decision["rule"] == "allow":
        return f", but averaged ({describe_decision(decision)})"
    return ", but averaged in monitor mode" if entry["mode"] == "monitor" else ", but averaged"


def _say_share(entry: AuditEntry, client: str) -> str:
    share = entry["shares"].get(client)
    return "" if share is None else f" and made up {100 * share:.3g} % of the average"


def _give_reason(state: str | None, findings: list[Finding]) -> str:
    """Give the most telling number of a client that was judged, or say what the state means."""
    if state in JUDGED_STATES:
        if findings:
            telling = findings[0]
            meaning = f" ({telling.meaning})" if telling.meaning else ""
            return f"It had {telling.words}{meaning}"
        return "The defense reports no number for it"
    return CONSEQUENCES.get(state or "", "")


def describe_ballot(ballot: Ballot, client: str) -> str:
    """Say what a ballot found, and whom it charged."""
    words = f": {ballot.words}" if ballot.words else ""
    numbers = "" if ballot.clarity is None else f" (clarity {ballot.clarity:.4g}"
    if numbers:
        numbers += ")" if ballot.bound is None else f", charges from {ballot.bound:.4g} on; higher is worse)"
    return f"{escape_text(ballot.name)} {_say_charged(ballot, client)}{words}{numbers}"


def _say_charged(ballot: Ballot, client: str) -> str:
    if ballot.charged is None:
        return "does not say whom it charged"
    if client in ballot.charged:
        return "charged it"
    return "charged others" if ballot.charged else "charged nobody"
