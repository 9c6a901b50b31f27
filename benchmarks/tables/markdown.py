"""Formats Markdown tables, and the numbers in them."""

from collections.abc import Iterable, Sequence


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_number(value: float | None) -> str:
    """Return three digits, or all digits of a large number."""
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_percent(value: float) -> str:
    """Return a fraction in per cent, with one decimal."""
    return f"{100 * value:.1f}"
