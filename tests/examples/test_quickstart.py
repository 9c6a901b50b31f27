"""The notebook runs from its first cell to its last, and is committed without what a machine wrote into it."""

import json
import re
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_bytes())["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def run_cells(code: list[str]) -> dict[str, Any]:
    """Run the cells in one session, and return its names."""
    session: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code):
        exec(compile(cell, f"cell {number}", "exec"), session)
    return session


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with the packages that the notebook asks for and without a screen."""
    for package in ("matplotlib", "pandas"):
        pytest.importorskip(package, reason="the notebook shows pictures and tables")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_tmp")
def test_the_cells_lead_from_updates_to_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    short = [cell.replace('"rounds": 20', '"rounds": 1') for cell in CODE]
    assert short != CODE
    session = run_cells(short)
    averaged, left_out = capsys.readouterr().out.splitlines()
    assert averaged.split() == ["averaged:", *(f"site-{number:02}" for number in range(4, 20))]
    assert left_out.split() == [["left", "out:"][0], "out:", "site-00", "site-01", "site-02", "site-03"]
    assert len(session["axes"].collections) == 2
    assert session["result"].summary.last.round == 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_tmp")
def test_the_whole_experiment_keeps_the_backdoor_out_and_fedavg_does_not() -> None:
    session = run_cells(CODE)
    assert session["result"].summary.last.backdoor_accuracy < 0.05
    assert session["result"].summary.last.main_accuracy > 0.9
    assert session["undefended"].summary.last.backdoor_accuracy > 0.25


@pytest.mark.slow
def test_a_kernel_runs_the_notebook(tmp_path: Path) -> None:
    nbclient, nbformat = (pytest.importorskip(name) for name in ("nbclient", "nbformat"))
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in data for data in shown) == 3
    assert any("the backdoor stayed out" in data.get("text/html", "") for data in shown)


def test_outputs_and_paths_of_a_machine_are_not_committed() -> None:
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in CELLS)
    text = NOTEBOOK.read_text(encoding="utf-8")
    for folder in (Path.home(), Path(sys.prefix), Path(gettempdir()), NOTEBOOK.parent):
        assert str(folder) not in text


def test_links_of_the_notebook_lead_somewhere() -> None:
    text = "".join(line for cell in CELLS for line in cell["source"])
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert all((NOTEBOOK.parent / link).exists() for link in links)
