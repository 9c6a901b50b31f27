"""The table of an audit's clients."""

from snowball.records.states import STATES
from snowball.report.audit.clients import Client
from snowball.report.audit.prose import write_malformed, write_standing
from snowball.report.audit.summary import Audit
from snowball.report.runs import ABSENT

COLUMNS = ("suspect", "malformed", "failed", "denied", "probation", "left_out", "not_needed", "dropped", "silent")
"""The states that have a column of their own, before the column of the elected."""

OPTIONAL = ("denied", "probation", "left_out", "not_needed", "dropped")
"""Those of them whose column is left out if no client was in that state."""

Lines = list[tuple[str, ...]]


def build_client_table(audit: Audit) -> Lines:
    """Return the table as text, with one column per state; the first line is the header."""
    seen = {state for client in audit.clients for state in client.rounds}
    states = [state for state in COLUMNS if state in seen or state not in OPTIONAL]
    names = [STATES[state].capitalize() for state in states]
    header = ("Client", "Standing", *names, "Elected", "Averaged", "Answered", "Asked")
    return [header, *(_write_cells(client, states) for client in audit.clients)]


def build_narrow_table(audit: Audit) -> Lines:
    """Return the table as text in three columns, for a narrow terminal; the first line is the header."""
    lines = [(client.label, write_standing(client), write_rounds(client)) for client in audit.clients]
    return [("Client", "Standing", "Rounds"), *lines]


def write_rounds(client: Client) -> str:
    """Say in how many rounds a client was in each state."""
    return ", ".join(f"{STATES[state]} {client.rounds[state]}" for state in STATES if client.rounds.get(state))


def _write_cells(client: Client, states: list[str]) -> tuple[str, ...]:
    counts = [write_malformed(client) or 0 if state == "malformed" else client.rounds.get(state, 0) for state in states]
    asked = ABSENT if client.asked is None else client.asked
    rest = (client.rounds.get("elected", 0), client.averaged, client.answered, asked)
    return client.label, write_standing(client), *map(str, (*counts, *rest))
