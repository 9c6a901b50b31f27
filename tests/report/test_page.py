import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from snowball.errors import RunError
from snowball.records import RunFolder
from snowball.report import write_html
from snowball.report.page import MOST_FACTS, page_data, safe_json, short

Make = Callable[..., RunFolder]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'\u2028"


class Outline(HTMLParser):
    """A page's tags with their attributes, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data


def render(folders: list[RunFolder], path: Path) -> str:
    write_html(folders, path)
    return path.read_text(encoding="utf-8")


def test_the_page_needs_nothing_but_itself(two_runs: list[RunFolder], tmp_path: Path) -> None:
    page = render(two_runs, tmp_path / "report.html")
    assert page.count(get_plotlyjs()) == 1
    links = [
        value for _, attributes in Outline(page).tags for name, value in attributes.items() if name in ("src", "href")
    ]
    assert links == ["data:,"]
    assert "url(" not in page.split("<style>")[1].split("</style>")[0]
    assert "default-src 'none'" in page


def test_the_data_is_small(two_runs: list[RunFolder]) -> None:
    assert len(safe_json(page_data(two_runs))) < 150_000


def test_the_same_runs_make_the_same_page(two_runs: list[RunFolder], tmp_path: Path) -> None:
    assert render(two_runs, tmp_path / "a.html") == render(two_runs, tmp_path / "b.html")


def test_names_cannot_become_code(make_run: Make, tmp_path: Path) -> None:
    changes = {"participants": [f"{HOSTILE}{index}" for index in range(50)], "facts": {HOSTILE: [1.0] * 50}}
    run = make_run(tmp_path / HOSTILE.replace("/", "_"), "fedavg", rounds=1, **changes)
    run = RunFolder(run.path, {"settings": {"defense": HOSTILE}})
    page = render([run], tmp_path / "report.html")
    outline = Outline(page)
    assert len(outline.scripts) == 3
    assert not [tag for tag, attributes in outline.tags if tag == "img" or "onerror" in attributes]
    assert "\u2028" not in outline.scripts[0]
    (data,) = json.loads(outline.scripts[0])
    assert data["rounds"][0]["clients"][7] == f"{HOSTILE}7"
    assert HOSTILE in data["rounds"][0]["columns"]


def test_the_script_never_parses_data_as_markup() -> None:
    script = (Path(__file__).parents[2] / "src/snowball/report/page.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_unknown_facts_are_sorted_or_left_out(make_run: Make, tmp_path: Path) -> None:
    facts = {
        "votes": list(range(50)),
        "gaps": [None] * 49 + [1.5],
        "clusters": 3,
        "short": [1, 2],
        "words": ["x"] * 50,
        "matrix": [[1.0] * 50] * 50,
        "nested": {"a": 1},
        "text": "hello",
        "null": None,
        "seconds.gram": 0.5,
    }
    (data,) = page_data([make_run(tmp_path / "a", "fedavg", rounds=1, facts=facts)])
    assert data["rounds"][0]["columns"] == {"gaps": facts["gaps"], "votes": facts["votes"]}
    assert data["rounds"][0]["numbers"] == {"clusters": 3}


def test_facts_of_layers_give_way_to_facts_of_the_round(make_run: Make, tmp_path: Path) -> None:
    facts = {f"votes.layer{index}": [1] * 50 for index in range(100)} | {"votes": [2] * 50}
    (data,) = page_data([make_run(tmp_path / "a", "fedavg", rounds=1, facts=facts)])
    assert len(data["rounds"][0]["columns"]) == MOST_FACTS
    assert next(iter(data["rounds"][0]["columns"])) == "votes"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1 / 3, 0.33333), (2.0, 2), (True, True), (None, None), ([1e-9 / 3, "x"], [3.3333e-10, "x"]), (1e300, 1e300)],
)
def test_numbers_keep_five_digits(value: object, shown: object) -> None:
    assert short(value) == shown


def test_unfinished_and_empty_runs_and_runs_without_an_attack_have_a_page(make_run: Make, tmp_path: Path) -> None:
    clean = make_run(tmp_path / "clean", "fedavg", rounds=1, backdoor_accuracy=None, malicious=[False] * 50, map=None)
    (clean.path / "summary.json").unlink()
    page = render([clean, RunFolder.create(tmp_path / "empty", {})], tmp_path / "report.html")
    assert "clean trained without an attack; empty finished no round yet." in page
    assert "1, unfinished" in page


def test_a_report_on_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run to report on"):
        write_html([], tmp_path / "report.html")
