"""Every Python example of the documentation runs as it stands."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from snowball.attacks import ATTACKS
from snowball.defenses import DEFENSES
from snowball.settings import collect_fields
from snowball.sim.experiment import SECTIONS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_code(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    if page.parent != ROOT
    and not page.name.startswith(("add-", "python", "tutorial"))  # which are followed to the letter
    for number, code in enumerate(read_code(page))
    if (page.name, number) not in (("own-data.md", 0), ("audit.md", 1))  # they have tests of their own
]


def follow_page(page: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Type all examples of a page into one session, and return the lines that it prints."""
    session: dict[str, Any] = {"__name__": "session"}
    for code in read_code(page):
        exec(compile(code, page.name, "exec"), session)
    return capsys.readouterr().out.splitlines()


def test_the_library_example_leaves_out_the_attackers(capsys: pytest.CaptureFixture[str]) -> None:
    printed, *averaged = follow_page(ROOT / "README.md", capsys)[0].split()
    assert (printed, averaged) == ("averaged:", sorted(f"site-{number}" for number in range(4, 20)))


def test_the_tutorial_works_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    undefended, defended, left_out, *_, report = follow_page(ROOT / "docs" / "tutorial.md", capsys)
    backdoor = [int(line.split()[-1].rstrip("%")) for line in (undefended, defended)]
    assert backdoor[0] > 50
    assert backdoor[1] < 5
    assert f"    {left_out}\n" in (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert Path(report).is_file()


def test_the_page_on_python_works_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas", reason="the page shows tables")
    monkeypatch.chdir(tmp_path)
    verdict, *_ = follow_page(ROOT / "docs" / "python.md", capsys)
    assert verdict.startswith("flame ")
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "flame.png", "flame.html", "report.html"}
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 5


def test_every_setting_has_a_type_and_a_meaning_in_the_reference(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "scripts" / "write_reference.py"))["main"](tmp_path)
    for kind, choices in (("defense", DEFENSES), ("attack", ATTACKS), ("experiment", SECTIONS)):
        page = (tmp_path / f"{kind}-settings.md").read_text(encoding="utf-8")
        for name in choices:
            assert f"\n## {name}\n" in page
        rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
        assert all(len(row) == 4 and all(cell.strip(" |") for cell in row) for row in rows)


def test_the_picture_of_the_layers_is_up_to_date() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts" / "draw_layers.py"))
    for module in (module for layer in drawn["read_layers"]() for module in layer):
        assert f">{module}</tspan>" in drawn["PICTURE"].read_text(encoding="utf-8"), "run scripts/draw_layers.py"


def make_reader_inputs() -> dict[str, Any]:
    """Return what an example starts from: a global model, the clients' models and the clients' names."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 3))
    states = [
        {name: tensor + torch.randn_like(tensor) for name, tensor in model.state_dict().items()} for _ in range(12)
    ]
    names = [f"site {number}" for number in range(12)]
    return {
        "global_state": model.state_dict(),
        "client_states": states,
        "counts": list(range(20, 32)),
        "names": names,
        "state": None,
    }


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if "flwr" in code:
        pytest.importorskip("flwr", reason="the Flower example needs flwr")
    exec(compile(code, "example", "exec"), make_reader_inputs())
    if "print(" in code:
        assert capsys.readouterr().out.strip()


def test_the_page_on_own_data_leads_to_what_it_says_and_two_pictures_in_twenty_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "own-data.md"
    code = read_code(page)[0]
    assert len(code.splitlines()) <= 20
    exec(compile(code, page.name, "exec"), {"__name__": "session"})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(f"    {line}\n" in page.read_text(encoding="utf-8") for line in printed)
    assert {path.name for path in tmp_path.glob("*.png")} == {"fedavg.png", "snowball-plus.png"}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_paper_is_cited_by_its_authors() -> None:
    cited = [name for page in PAGES for name in re.findall(r"Qin(?:, \w+)+(?=, \"Resist)", page.read_text("utf-8"))]
    assert set(cited) == {"Qin, Chen, Zhi, Yan, Deng"}


@pytest.mark.parametrize("name", DEFENSES)
def test_every_defense_has_a_page_that_names_its_settings(name: str) -> None:
    page = (ROOT / "docs" / "defenses" / f"{name}.md").read_text(encoding="utf-8")
    for heading in ("Idea", "What it assumes", "Settings", "Deviations", "Cost", "Measured"):
        assert f"## {heading}\n" in page
    assert f"snowball.defenses.{DEFENSES[name].__name__}`" in page
    for setting in collect_fields(DEFENSES[name]):
        assert f"`{setting}" in page or (name == "snowball" and setting in collect_fields(DEFENSES["snowball-minus"]))


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_has_a_page_that_names_its_settings_and_its_view(name: str) -> None:
    page = (ROOT / "docs" / "attacks" / f"{name}.md").read_text(encoding="utf-8")
    for heading in ("Idea", "Settings", "Deviations", "Measured"):
        assert f"## {heading}\n" in page
    assert f"snowball.attacks.{ATTACKS[name].__name__}`" in page
    assert f"(`{ATTACKS[name].knowledge}`)" in page
    for setting in collect_fields(ATTACKS[name]):
        assert f"`{setting}`" in page


def test_contributing_names_files_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = re.findall(r"`((?:src|docs|scripts|benchmarks)/[\w./-]+\w)`", page)
    assert len(files) > 10
    for file in files:
        assert (ROOT / file.replace("NAME.py", "__init__.py")).exists(), f"there is no {file}"


def test_every_decision_is_listed_once() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| \[([\w-]+\.md)\]", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted([*listed, "README.md"]) == sorted(page.name for page in folder.glob("*.md"))
