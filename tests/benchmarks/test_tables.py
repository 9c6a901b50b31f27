"""The measured tables of the documentation are those of the results, every number of them."""

from pathlib import Path

import pytest

import tables
from words import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_number_of_a_table_is_typed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.fill(text) == text


def test_every_place_for_a_table_has_one() -> None:
    marks = {line[5:-4] for page in PAGES for line in page.read_text(encoding="utf-8").splitlines() if is_mark(line)}
    assert marks - {"end"} <= set(tables.TABLES)


def is_mark(line: str) -> bool:
    return line.startswith("<!-- ") and line.endswith(" -->")
