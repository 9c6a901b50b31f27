"""The pages on adding a defense, an attack and a data set work when followed to the letter."""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ["data.clients=10", "cohort=6", "rounds=1", "data.examples=300", "training.epochs=1"]
SMALLER = [*(part for setting in SMALL for part in ("--set", setting)), "--workers", "2"]


@dataclass(frozen=True)
class Page:
    """What is expected of a page; `taken` is a name of ours that its package may want, with what is listed under it."""

    file: str
    kind: str
    name: str
    summary: str
    tests: int
    settings: dict[str, float | str]
    taken: tuple[str, str]
    section: str
    registry: str

    @property
    def text(self) -> str:
        return (DOCS / self.file).read_text(encoding="utf-8")

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    def commands(self, verb: str) -> list[list[str]]:
        return [line.split() for line in re.findall(rf"^snowball ({verb} .*)$", self.text, re.MULTILINE)]

    def write_files(self, folder: Path) -> None:
        for name, code in re.findall(r"```\w+\n# (\S+)\n(.*?)```", self.text, re.DOTALL):
            (folder / name).write_text(code, encoding="utf-8")


PAGES = [
    Page(
        "add-a-defense.md",
        kind="defense",
        name="usual-length",
        summary="Average the updates whose length is nearest",
        tests=1,
        settings={"keep": 0.4},
        taken=("ideal", "Average the updates of benign clients"),
        section="defense",
        registry="snowball.defenses.DEFENSES",
    ),
    Page(
        "add-an-attack.md",
        kind="attack",
        name="same-length",
        summary="All malicious clients plant the trigger and send updates of the same length. (sees colluders)",
        tests=3,
        settings={"stretch": 1.5, "trigger": "line"},
        taken=("cba", "Every malicious client plants the whole trigger"),
        section="attack",
        registry="snowball.attacks.ATTACKS",
    ),
    Page(
        "add-a-dataset.md",
        kind="dataset",
        name="stripes",
        summary="stripes in two directions, 28x28, drawn",
        tests=1,
        settings={},
        taken=("mnist-sample", "handwritten digits"),
        section="data",
        registry="snowball.data.DATASETS",
    ),
]


@pytest.fixture(params=PAGES, ids=lambda page: page.kind)
def page(request: pytest.FixtureRequest) -> Page:
    page: Page = request.param
    return page


@pytest.fixture
def installed(page: Page, tmp_path: Path) -> Path:
    """The page's files, and what an installation makes of its pyproject.toml."""
    page.write_files(tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    name, version = project["project"]["name"], project["project"]["version"]
    assert name == page.name
    assert {f"{module}.py" for module in project["tool"]["setuptools"]["py-modules"]} == {
        file.name for file in tmp_path.glob("*.py") if not file.name.startswith("test_")
    }
    metadata = tmp_path / f"{page.module}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for group, entries in project["project"]["entry-points"].items():
        with (metadata / "entry_points.txt").open("a") as file:
            file.writelines([f"[{group}]\n", *(f"{name} = {value}\n" for name, value in entries.items())])
    return tmp_path


FOLLOW = """
import json, runpy, sys

for module, *arguments in json.loads(sys.argv[1]):
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
"""
"""A program that calls one module after the other, until one fails."""


def call(folder: Path, *arguments: str, code: int = 0, installed: bool = True) -> str:
    """What Python prints where the page's package is installed; what is wrong with it where it fails."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder)] * installed + list(filter(None, given)))}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def rename(installed: Path, old: str, new: str) -> None:
    (entries,) = installed.glob("*.dist-info/entry_points.txt")
    assert old in entries.read_text()
    entries.write_text(entries.read_text().replace(old, new))


def test_a_stranger_gets_the_checks_the_command_line_and_the_report(page: Page, installed: Path) -> None:
    (listing,), (_, run), (report,) = (page.commands(verb) for verb in ("list", "run", "report"))
    files = sorted(file.name for file in installed.glob("test_*.py"))
    tests = ["pytest", "-q", "-p", "no:cacheprovider", *files]
    commands = [tests, *(["snowball", *arguments] for arguments in (listing, [*run, *SMALLER], report))]
    said = call(installed, "-c", FOLLOW, json.dumps(commands))
    assert f"{page.tests} passed" in said
    assert page.summary in said
    assert "of 6 elected" in said
    folder, html = (installed / path for path in (report[1], report[-1]))
    settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"][page.section]
    assert settings | page.settings | {"name": page.name} == settings
    assert page.name in html.read_text(encoding="utf-8")


def test_nothing_needs_to_be_installed(page: Page, tmp_path: Path) -> None:
    page.write_files(tmp_path)
    run, _ = page.commands("run")
    call(
        tmp_path, "-P", "-m", "snowball", *run, *SMALLER, installed=False
    )  # -P: as `snowball` itself, which adds no path
    folder = tmp_path / "runs" / "local"
    settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))["settings"][page.section]
    assert settings["name"].startswith(f"{page.module}:")
    for file in tmp_path.glob("*.py"):
        file.unlink()
    assert "1" in call(tmp_path, "-P", "-m", "snowball", "report", str(folder), installed=False)
    said = call(tmp_path, "-P", "-m", "snowball", *run, *SMALLER, "--resume", code=2, installed=False)
    assert said == f"snowball: {page.kind} '{settings['name']}' cannot be used: No module named '{page.module}'\n"


def test_it_does_not_matter_who_is_imported_first(page: Page, installed: Path) -> None:
    table = page.registry.rpartition(".")[0]
    script = (
        "import os, torch\n"
        f"if os.fork():\n    os.wait()\n    import {page.module}, {table}\n"
        f"else:\n    import {table}, {page.module}\n"
        f"print({page.registry}['{page.name}'].__module__)"
    )
    assert call(installed, "-c", script) == f"{page.module}\n" * 2


@pytest.mark.parametrize("page", PAGES[:1], ids=lambda page: page.kind, indirect=True)
def test_a_stranger_cannot_take_a_name_of_ours(page: Page, installed: Path) -> None:
    name, summary = page.taken
    rename(installed, f"{page.name} =", f"{name} =")
    listing = call(installed, "-m", "snowball", "list", f"{page.kind}s")
    assert summary in listing
    assert page.summary not in listing


@pytest.mark.parametrize("page", PAGES[:1], ids=lambda page: page.kind, indirect=True)
def test_a_package_that_is_broken_is_said_in_one_sentence(page: Page, installed: Path) -> None:
    rename(installed, f"= {page.module}:", f"= {page.module}_moved:")
    said = call(installed, "-m", "snowball", "list", f"{page.kind}s", code=2)
    assert said.startswith(f"snowball: {page.module}_moved:")
    assert said.endswith(f"cannot be used: No module named '{page.module}_moved'\n")
    assert said.count("\n") == 1
