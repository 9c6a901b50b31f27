"""Text that clients may have chosen, made fit to be shown."""

from snowball.errors import escape_characters

MAX_NAME_CHARS = 60
"""The most characters of a name that are shown."""


def escape_text(text: str, longest: int = MAX_NAME_CHARS) -> str:
    """Return untrusted text on one line, with no control or invisible characters and at most `longest` characters."""
    shown = escape_characters(text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[:longest]}…"
