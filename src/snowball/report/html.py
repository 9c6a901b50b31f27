"""Pages of one file: a template, a style, scripts and data, which ask the network for nothing."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from snowball.records import finite, write_bytes

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
)
"""What a page may do: nothing but show itself and run its own scripts."""


def write_page(
    path: str | Path, template: str, styles: Sequence[str], scripts: Sequence[str], data: Any, **values: Any
) -> None:
    """Write a page; all but styles and scripts is text that cannot become markup."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(template).render(
        values,
        data=Markup(safe_json(data)),
        style=Markup("\n".join(styles)),
        scripts=list(map(Markup, scripts)),
        policy=Markup(POLICY + " ".join(map(digest, scripts))),
    )
    write_bytes(Path(path), text.encode(errors="backslashreplace"))  # names may hold what UTF-8 cannot


def asset(name: str) -> str:
    """A file of this package."""
    return (files("snowball.report") / name).read_text(encoding="utf-8")


def digest(script: str) -> str:
    """A script's source expression for the page's content policy: no other script runs, wherever it comes from."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def safe_json(value: Any) -> str:
    """JSON that is still JSON inside a script element, whatever names are in it."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)  # ASCII only: no U+2028 gets through
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def short(value: Any) -> Any:
    """The same numbers in five digits."""
    if isinstance(value, list):
        return [short(entry) for entry in value]
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
