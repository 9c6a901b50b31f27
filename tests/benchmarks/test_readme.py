"""The tables of benchmarks/README.md name the existing files."""

import re

import pytest

from benchmarks.files import RESULTS, ROOT

FOLDER = ROOT / "benchmarks"
LINES = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES if line.startswith("| `")]
PROGRAMS = [row for row in ROWS if len(row) == 5]
PARTS = [row[0].strip("`") for row in ROWS if len(row) == 2]


def test_every_file_is_a_program_or_a_part_of_one() -> None:
    files = {file.relative_to(FOLDER) for file in FOLDER.rglob("*.py") if file.name != "__init__.py"}
    programs = {
        str(file.parent if file.stem == "__main__" else file.with_suffix("")).replace("/", ".")
        for file in files
        if file.stem == "__main__" or '\nif __name__ == "__main__":' in (FOLDER / file).read_text(encoding="utf-8")
    }
    assert programs == {row[0].strip("`") for row in PROGRAMS}
    parts = {str(file) for file in files if str(file.with_suffix("")).replace("/", ".") not in programs}
    assert {part for part in parts if not part.endswith("__main__.py")} == set(PARTS)


def test_every_result_is_that_of_a_program() -> None:
    named = {name for row in PROGRAMS for name in re.findall(r"`([\w./-]+)`", row[2])}
    assert {path.name for path in RESULTS.iterdir()} <= named
    assert all((RESULTS / name).exists() or (ROOT / name).exists() for name in named)


@pytest.mark.parametrize("row", PROGRAMS, ids=lambda row: row[0].strip("`"))
def test_every_program_is_on_the_page_that_shows_it(row: list[str]) -> None:
    program = row[0].strip("`")
    commands = {f"speed.{name}": f"snowball bench {name}" for name in ("elections", "guard", "training")}
    command = commands.get(program)
    pages = [(FOLDER / link).read_text(encoding="utf-8") for link in re.findall(r"\]\(([^)]+)\)", row[-1])]
    assert any((command or f"python -m benchmarks.{program}") in page for page in pages)
