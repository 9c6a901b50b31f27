"""The command `audit`: shows a guard's audit log, and checks that it is unchanged."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import (
    TABLE_CHARS,
    Html,
    Json,
    app,
    build_table,
    free_standard_output,
    is_standard_output,
)
from snowball.errors import RunError, SettingError

if TYPE_CHECKING:
    from snowball.report import Audit

WIDE_CHARS = 140
"""The width of a terminal from which the table has one column per state."""

MAX_WHOLE_CHARS = 22
"""The most characters of a name that stay on one line in a narrow terminal: ids of Flower have 20, in parentheses."""


@app.command("audit")
def inspect_audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A guard's audit log (JSON Lines).")],
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show the history of one client, by its name or id.")
    ] = None,
    round: Annotated[
        int | None, typer.Option(metavar="N", help="With --client: say why it was left out in this round.")
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(metavar="N", help="Show who went into each model from this round on, or when --client did."),
    ] = None,
    html: Html = None,
    as_json: Json = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Say whether the audit is unchanged, or which line was changed first.")
    ] = False,
    key: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="With --verify: a public key that may have signed (PEM); can be repeated."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --verify: the guard's state, which knows the last line.")
    ] = None,
) -> None:
    """Show which clients are suspect, whom a guard left out, and why."""
    from snowball.records.audit import read_audit
    from snowball.report import Audit, write_audit

    if verify:
        if html or any(view is not None for view in (client, round, since)):
            raise SettingError("--verify cannot be used with --client, --round, --since or --html")
        show_verification(file, key or [], state, as_json)
        return
    if key or state:
        raise SettingError("--key and --state need --verify")
    if round is not None and (client is None or since is not None):
        raise SettingError("--round needs --client, and cannot be used with --since")
    found = Audit(read_audit(file))
    with free_standard_output(html):
        if since is not None:
            show_contributions(found, since, client, as_json)
        elif client is None:
            show_audit(found, as_json)
        elif round is None:
            show_client(found, client, as_json)
        else:
            show_answer(found, client, round, as_json)
    if html:
        write_audit(found, html)
    if html and not is_standard_output(html):
        typer.echo(f"The page is {html}: open it in a browser.", err=as_json)


def show_audit(audit: "Audit", as_json: bool) -> None:
    """Print a summary of an audit."""
    from rich.console import Console

    from snowball.report.audit.prose import write_audit_headline, write_audit_prose
    from snowball.report.audit.table import build_client_table, build_narrow_table

    if as_json:
        typer.echo(json.dumps({"headline": write_audit_headline(audit), **audit.plain()}, indent=2))
        return
    typer.echo("\n".join(filter(None, (write_audit_headline(audit), write_audit_prose(audit)))))
    if audit.clients:
        console = Console(width=None if sys.stdout.isatty() else TABLE_CHARS)
        lines = (build_client_table if console.width >= WIDE_CHARS else build_narrow_table)(audit)
        table = build_table(lines)
        words = [word for cells in lines for word in cells[0].split()]
        table.columns[0].min_width = min(MAX_WHOLE_CHARS, max(map(len, words), default=0))
        console.print(table)


def show_client(audit: "Audit", text: str, as_json: bool) -> None:
    """Print the history of one client."""
    from snowball.report.audit.prose import write_client_line, write_moment_line

    client, moments = audit.find_client(text), audit.history(text)
    if as_json:
        typer.echo(json.dumps([asdict(moment) for moment in moments], indent=2))
        return
    typer.echo(write_client_line(client, audit, len(moments)))
    for moment in moments:
        typer.echo(write_moment_line(moment))


def show_answer(audit: "Audit", text: str, round: int, as_json: bool) -> None:
    """Print why a client was left out in a round, or what else happened to it."""
    from snowball.report.audit.answer import explain_round

    answer = explain_round(audit, text, round)
    if as_json:
        typer.echo(json.dumps(asdict(answer), indent=2))
        return
    typer.echo(" ".join(answer.sentences))
    for line in [*(finding.words for finding in answer.findings[1:]), *answer.evidence]:
        typer.echo(f"  {line}")


def show_contributions(audit: "Audit", since: int, text: str | None, as_json: bool) -> None:
    """Print who went into each model since a round, or when one client did."""
    from snowball.report.audit.contributions import (
        find_rollback,
        list_contributions,
        write_contribution,
        write_rollback,
        write_start,
    )

    client = audit.find_client(text) if text is not None else None
    rollback = find_rollback(audit, since, client.client) if client else None
    rounds = rollback.rounds if rollback else list_contributions(audit, since)
    if as_json:
        typer.echo(json.dumps(asdict(rollback) if rollback else [asdict(each) for each in rounds], indent=2))
        return
    typer.echo(write_rollback(rollback, client.label, since) if client and rollback else write_start(rounds))
    for each in rounds:
        typer.echo(write_contribution(each, rollback.client if rollback else None))


def show_verification(file: Path, keys: list[Path], state: Path | None, as_json: bool) -> None:
    """Print whether an audit is unchanged, and what this cannot tell; exit with 1 if it was changed."""
    from snowball.records.audit_check import verify_audit
    from snowball.records.signing import read_public_key
    from snowball.report.audit.verification import list_limits, write_verification

    found = verify_audit(file, [read_public_key(key) for key in keys], read_end(state) if state else None)
    limits = list_limits(found, bool(keys))
    if as_json:
        typer.echo(json.dumps({"unchanged": found.fault is None, **asdict(found), "limits": limits}, indent=2))
    else:
        typer.echo("\n".join([write_verification(found), *limits]))
    if found.fault is not None:
        raise typer.Exit(1)


def read_end(state: Path) -> tuple[int, str]:
    """Return the round and the hash of the last line of the audit that a guard's state remembers."""
    from snowball.guard.state import read_state

    end = read_state(state).audit
    if end is None:
        raise RunError(f"{state} does not remember an audit: its guard wrote none, or is of an earlier version")
    return end
