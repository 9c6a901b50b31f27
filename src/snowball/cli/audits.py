"""Audits of a guard."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import WIDE, Json, app, grid

if TYPE_CHECKING:
    from snowball.report import Audit


@app.command()
def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A guard's audit.")],
    client: Annotated[str | None, typer.Option(metavar="ID", help="Show one client's history.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="PAGE", help="Write a page that opens offline.")] = None,
    as_json: Json = False,
) -> None:
    """Say who a guard left out, and why."""
    from snowball.records.audit import read_audit
    from snowball.report import Audit, write_audit

    found = Audit(read_audit(file))
    show = show_client if client is not None else show_audit
    show(found, client or "", as_json)
    if html:
        write_audit(found, html)
        typer.echo(f"The page is {html}: open it in a browser.", err=as_json)


def show_audit(audit: "Audit", _: str, as_json: bool) -> None:
    """Print what an audit amounts to."""
    from rich.console import Console

    from snowball.report.audit import HEADERS
    from snowball.report.audit_prose import audit_headline, audit_story

    if as_json:
        typer.echo(json.dumps(audit.plain(), indent=2))
        return
    typer.echo("\n".join(filter(None, (audit_headline(audit), audit_story(audit)))))
    if audit.clients:
        console = Console(width=None if sys.stdout.isatty() else WIDE)
        console.print(grid([HEADERS, *(each.cells() for each in audit.clients)]))


def show_client(audit: "Audit", client: str, as_json: bool) -> None:
    """Print one client's history."""
    from dataclasses import asdict

    from snowball.report.audit_prose import client_story, moment_line

    moments = audit.history(client)
    if as_json:
        typer.echo(json.dumps([asdict(moment) for moment in moments], indent=2))
        return
    typer.echo(client_story(next(each for each in audit.clients if each.client == client), audit, len(moments)))
    for moment in moments:
        typer.echo(moment_line(moment))
