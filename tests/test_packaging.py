"""What the package says about itself is true: extras, versions, Pythons, links."""

import re
import runpy
import tomllib
from importlib.metadata import requires
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GPU_PACKAGES = set(re.findall(r"^[a-z].*$", (ROOT / "scripts/torch-gpu-packages.txt").read_text(), re.MULTILINE))
TEXTS = [
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/**/*.md",
        "examples/**/*.py",
        "examples/*.ipynb",
        "src/**/*.py",
        "src/**/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"
]


def find_installs(text: str) -> list[str]:
    """Return what a text tells people to `pip install` in quotes."""
    return re.findall(r"pip\s+install\s+'([^']+)'", text)


def test_errors_name_packages_that_an_extra_lists() -> None:
    listed = {package for extra in PROJECT["optional-dependencies"].values() for package in extra}
    named = [each for path in (ROOT / "src").rglob("*.py") for each in find_installs(path.read_text(encoding="utf-8"))]
    assert len(named) >= 6
    assert set(named) <= listed


def test_nothing_is_installed_from_an_index_that_lacks_it() -> None:
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip\s+install[^\n]*snowball-fl", text), path
        extras = [extra for named in find_installs(text) for extra in re.findall(r"(?:\.|\.whl)\[(\w+)\]$", named)]
        assert set(extras) <= set(PROJECT["optional-dependencies"]), path


def test_the_readme_names_the_wheel_the_pythons_and_the_extras() -> None:
    assert set(re.findall(r"snowball_fl-([\w.]+)-py3", README)) == {PROJECT["version"]}
    pythons = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if ":: Python :: 3." in each]
    assert f"Python {', '.join(pythons[:-1])} or {pythons[-1]}" in README
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    floor = next(each for each in PROJECT["dependencies"] if each.startswith("torch"))
    assert f"any torch from\n{floor.removeprefix('torch>=')} on" in README
    listed = README.partition("The extras are ")[2].partition(".\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(PROJECT["optional-dependencies"]) - {"dev"}


def read_pins(file: str) -> dict[str, str]:
    """Return the names and versions that a requirements file pins."""
    return {
        name.lower().replace("_", "-"): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    }


def find_needed(requirements: list[str]) -> set[str]:
    """Return the names of packages that requirements bring, as installed here, without torch's for GPUs."""
    needed: set[str] = set()
    queue = [Requirement(each) for each in requirements]
    while queue:
        requirement = queue.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name not in needed | GPU_PACKAGES:
            needed.add(requirement.name)
            queue += [Requirement(each) for each in requires(requirement.name) or []]
    return {name.lower().replace("_", "-") for name in needed}


def test_what_a_user_installs_is_pinned_and_hashed_as_tested() -> None:
    pins, tested = read_pins("requirements-hashed.txt"), read_pins("constraints.txt")
    assert {name: tested[name] for name in pins if name in tested} == {
        name: version for name, version in pins.items() if name in tested
    }
    assert find_needed(PROJECT["dependencies"]) - {"torch"} <= set(pins)
    assert not {"torch", *GPU_PACKAGES} & set(pins)


def test_each_pin_has_hashes_and_no_source_is_built() -> None:
    text = (ROOT / "requirements-hashed.txt").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z])", text.partition("--only-binary :all:\n")[2].strip())
    assert len(entries) > 20
    assert all(re.search(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$", entry, re.MULTILINE) for entry in entries)
    assert "://" not in text


def test_the_wheel_s_description_has_no_link_that_needs_a_checkout() -> None:
    description = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)\"", description)
    assert links
    assert all("".join(link).startswith("https://") for link in links)


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert citation.count(PROJECT["urls"]["Paper"].removeprefix("https://doi.org/")) == 1
    assert re.findall(r"family-names: (\w+)", citation) == ["Qin", "Chen", "Zhi", "Yan", "Deng"]


def test_a_wheel_with_wrong_files_or_links_is_found_out(tmp_path: Path) -> None:
    check = runpy.run_path(str(ROOT / "scripts" / "check_wheel.py"))
    wheel, description = tmp_path / "snowball.whl", "[paper](https://doi.org/1) and [docs](docs/results.md)"
    files = {*check["list_source_files"](ROOT / "src"), "tests/test_map.py"} - {"snowball/py.typed"}
    with ZipFile(wheel, "w") as archive:
        for name in files:
            archive.writestr(name, "")
        archive.writestr("snowball_fl-0.1.0.dist-info/METADATA", description)
    assert check["find_faults"](wheel) == [
        "snowball/py.typed is missing",
        "tests/test_map.py is not part of the package",
        "the license is missing",
        "the description links to docs/results.md, which a wheel does not have",
    ]
    assert any(name.startswith("snowball/data/sample/") for name in files)
