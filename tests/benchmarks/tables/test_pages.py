"""The measured tables of the documentation match the results in every number."""

from pathlib import Path

import pytest

from benchmarks.files import ROOT
from benchmarks.tables import pages
from benchmarks.tables.runs import read_kept_sweeps
from snowball.report.export.write import write_exports

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_number_of_a_table_is_typed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert pages.fill_page(text) == text


def test_every_place_for_a_table_has_one() -> None:
    marks = {line[5:-4] for page in PAGES for line in page.read_text(encoding="utf-8").splitlines() if is_mark(line)}
    assert marks - {"end"} <= set(pages.TABLES)


def is_mark(line: str) -> bool:
    return line.startswith("<!-- ") and line.endswith(" -->")


def test_exported_tables_are_those_of_the_results(tmp_path: Path) -> None:
    made = {file.name: file.read_bytes() for file in write_exports(read_kept_sweeps(), tmp_path)}
    exported = [file for file in (ROOT / "docs" / "paper").iterdir() if file.suffix != ".svg"]
    assert {file.name: file.read_bytes() for file in exported} == made
