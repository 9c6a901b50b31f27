"""`import snowball` is fast and gives exactly the names that the reference documents."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import snowball
from snowball.defenses import DEFENSES

REFERENCE = Path(__file__).parent.parent / "docs" / "reference" / "api.md"

SMALL = ["rounds=1", "cohort=6", "data.clients=10", "data.examples=400", "defense.name=fedavg"]

GRID = """# Two defenses, small
[[grid]]
preset = "demo"
set = { rounds = 1, cohort = 6, "data.clients" = 10, "data.examples" = 400 }
[grid.axes]
"defense.name" = ["fedavg", "median"]
"""


def test_import_loads_no_torch() -> None:
    code = "import sys, snowball; dir(snowball); snowball.__version__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_name_is_in_the_reference_and_nothing_else_is() -> None:
    documented = re.findall(
        r"^::: snowball\.(?:report\.write_)?(\w+)$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(documented) == sorted(snowball.__all__)


@pytest.mark.parametrize("name", snowball.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(snowball, name) is not None
    assert name in dir(snowball)


def test_every_defense_is_there_by_its_class_name() -> None:
    for defense in DEFENSES.values():
        assert getattr(snowball, defense.__name__) is defense


def test_an_unknown_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'snowball' has no attribute 'snow'"):
        snowball.snow  # noqa: B018


def test_the_version_is_the_package_s() -> None:
    assert snowball.__version__ == version("snowball-fl")


def test_run_continues_a_run_and_report_shows_it(tmp_path: Path) -> None:
    folder = snowball.run("demo", tmp_path / "run", SMALL)
    again = snowball.run("demo", tmp_path / "run", SMALL)
    page = snowball.report(tmp_path / "run", tmp_path / "report.html")
    assert [record["round"] for record in folder.read_rounds()] == [1]
    assert again.read_summary() == folder.read_summary()
    assert "<html" in page.read_text(encoding="utf-8")


def test_simulate_gives_the_records_of_run(tmp_path: Path) -> None:
    on_disk = snowball.run("demo", tmp_path / "run", SMALL).read_rounds()
    in_memory = list(snowball.simulate(snowball.load_experiment("demo", SMALL)))
    for record in [*on_disk, *in_memory]:
        del record["seconds"]
    assert in_memory == on_disk


def test_sweep_runs_a_grid_and_says_what_failed(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID, encoding="utf-8")
    assert snowball.sweep(grid, tmp_path / "runs", jobs=1) == {}
    page = snowball.report([tmp_path / "runs"], tmp_path / "report.html")
    assert "median" in page.read_text(encoding="utf-8")
