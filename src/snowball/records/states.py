"""What a round means to each client in it: evidence against it, a fault of its own, or nothing of the kind."""

from snowball.records.audit import UNCLEAR_FROM, Decision, DroppedReply, JudgedRound

STATES = {
    "suspect": "suspect",
    "malformed": "malformed",
    "failed": "failed",
    "denied": "denied",
    "probation": "on probation",
    "left_out": "left out",
    "not_needed": "not needed",
    "dropped": "not counted",
    "unjudged": "answered, not judged",
    "silent": "silent",
    "elected": "elected",
}
"""What a round can mean to a client that takes part in it; only the first is an accusation.

"left out" is of earlier versions, whose audits do not say whether a client was left out on evidence.
"""

REPLY_STATES = {
    **dict.fromkeys(("names", "shape", "dtype", "not-finite", "range", "norm", "examples"), "malformed"),
    "error": "failed",
    "denied": "denied",
}
"""The state of a client whose reply was dropped, by reason; any other reason is "dropped"."""

JUDGED_STATES = ("suspect", "probation", "left_out", "not_needed", "elected")
LEFT_OUT_STATES = ("suspect", "left_out", "not_needed")
DROPPED_STATES = ("malformed", "failed", "denied", "dropped")

SECOND_REPLY = "duplicate"
"""The reason for dropping a reply that says nothing about its client: the first one counts."""

CLARITIES = {"charged": "charged somebody", "unclear": "unclear", "calm": "without a charge"}


def is_kept(entry: JudgedRound) -> bool:
    """Whether the round kept the old model."""
    return entry["outcome"] == "kept"


def knows_suspects(entry: JudgedRound) -> bool:
    """Whether the round says who was left out on evidence; rounds of earlier versions do not."""
    return entry["version"] != ""


def classify_clients(entry: JudgedRound) -> dict[str, str]:
    """Return what the round means to each client in it, a key of `STATES`; an election takes precedence."""
    left_out, elected = entry["left_out"], set(entry["elected"])
    found = {
        **dict.fromkeys([*(entry["asked"] or ()), *entry["silent"]], "silent"),
        **dict.fromkeys(entry["answered"], "unjudged"),
        **{
            fault["client"]: REPLY_STATES.get(fault["reason"], "dropped")
            for fault in entry["dropped"]
            if fault["reason"] != SECOND_REPLY
        },
        **dict.fromkeys(left_out, "not_needed" if knows_suspects(entry) else "left_out"),
        **dict.fromkeys(elected, "elected"),
    }
    for decision in entry["decisions"]:
        if decision["rule"] == "probation" and found.get(decision["client"]) in JUDGED_STATES:
            found[decision["client"]] = "probation"
    for client in set(entry["suspects"]).intersection(left_out) - elected:
        found[client] = "suspect"
    return found


def classify_clarity(entry: JudgedRound) -> str | None:
    """Return how clear a round was, a key of `CLARITIES`; None if the defense does not measure it."""
    clarity = entry["clarity"]
    if clarity is None:
        return None
    return "charged" if clarity >= 1 else "unclear" if clarity >= UNCLEAR_FROM else "calm"


def find_decision(entry: JudgedRound, client: str) -> Decision | None:
    """Return the decision of a person about a client that was in force."""
    return next((decision for decision in entry["decisions"] if decision["client"] == client), None)


def find_faults(entry: JudgedRound, client: str) -> list[DroppedReply]:
    """Return the replies of a client that were dropped."""
    return [fault for fault in entry["dropped"] if fault["client"] == client]
