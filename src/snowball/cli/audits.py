"""The command `audit`: shows a guard's audit log."""

import json
import sys
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

if TYPE_CHECKING:
    from snowball.report import Audit


@app.command("audit")
def inspect_audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A guard's audit log (JSON Lines).")],
    client: Annotated[str | None, typer.Option(metavar="ID", help="Show the history of one client.")] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Show which clients a guard left out, and why."""
    from snowball.records.audit import read_audit
    from snowball.report import Audit, write_audit

    found = Audit(read_audit(file))
    show = show_client if client is not None else show_audit
    with free_standard_output(html):
        show(found, client or "", as_json)
    if html:
        write_audit(found, html)
    if html and not is_standard_output(html):
        typer.echo(f"The page is {html}: open it in a browser.", err=as_json)


def show_audit(audit: "Audit", _: str, as_json: bool) -> None:
    """Print a summary of an audit."""
    from rich.console import Console

    from snowball.report.audit import HEADERS
    from snowball.report.audit_prose import write_audit_headline, write_audit_prose

    if as_json:
        typer.echo(json.dumps(audit.plain(), indent=2))
        return
    typer.echo("\n".join(filter(None, (write_audit_headline(audit), write_audit_prose(audit)))))
    if audit.clients:
        console = Console(width=None if sys.stdout.isatty() else TABLE_CHARS)
        console.print(build_table([HEADERS, *(each.cells() for each in audit.clients)]))


def show_client(audit: "Audit", client: str, as_json: bool) -> None:
    """Print the history of one client."""
    from dataclasses import asdict

    from snowball.report.audit_prose import write_client_line, write_moment_line

    moments = audit.history(client)
    if as_json:
        typer.echo(json.dumps([asdict(moment) for moment in moments], indent=2))
        return
    typer.echo(write_client_line(next(each for each in audit.clients if each.client == client), audit, len(moments)))
    for moment in moments:
        typer.echo(write_moment_line(moment))
