"""Self-contained HTML pages: a template, styles, scripts and data, with no request to the network."""

import base64
import hashlib
import json
import sys
import zlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from snowball.records.files import replace_non_finite, write_bytes
from snowball.report.palette import write_palette_css

STANDARD_OUTPUT = "-"
"""The path that means the standard output."""

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
)
"""The content security policy: a page may show itself and run its own scripts, nothing else."""


def write_page(
    path: str | Path,
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Any,
    **values: Any,
) -> None:
    """Write a page, to the standard output if the path is `-`; everything except styles and scripts is escaped."""
    text = compile_template(template).render(
        values,
        data=Markup(encode_json(data)),
        style=Markup("\n".join([write_palette_css(), *styles])),
        scripts=list(map(Markup, scripts)),
        policy=Markup(POLICY + " ".join(map(hash_script, scripts))),
    )
    content = text.encode(errors="backslashreplace")  # names may hold lone surrogates
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
    else:
        write_bytes(Path(path), content)


@lru_cache(maxsize=4)
def compile_template(template: str) -> Template:
    """Compile a template; a page's own is the same each time."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template)


def read_asset(name: str) -> str:
    """Read a file of this package."""
    return (files("snowball.report.web") / "assets" / name).read_text(encoding="utf-8")


def bundle_scripts(*names: str) -> str:
    """Join scripts of this package into one, with its own scope."""
    return f'"use strict";\n(() => {{\n{"".join(map(read_asset, names))}}})();\n'


def pack_text(text: str) -> str:
    """Compress a text and encode it in base64; the page's script reverses it."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def hash_script(script: str) -> str:
    """Return a script's hash for the page's content security policy, so that no other script runs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def encode_json(value: Any) -> str:
    """Encode JSON that stays JSON inside a script element, whatever names are in it."""
    text = json.dumps(
        replace_non_finite(value), separators=(",", ":"), allow_nan=False
    )  # ASCII only, so without U+2028
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def round_numbers(value: Any, digits: int = 5) -> Any:
    """Round numbers to a few significant digits."""
    if isinstance(value, list):
        return [
            _round_number(entry, digits) if isinstance(entry, float) else round_numbers(entry, digits)
            for entry in value
        ]
    return _round_number(value, digits) if isinstance(value, float) else value


def _round_number(value: float, digits: int) -> float | int:
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
