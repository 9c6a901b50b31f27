import base64
import json
import re
import runpy
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowball.errors import RunError
from snowball.records.run import RunFolder
from snowball.report import write_html
from snowball.report.web.html import hash_script, round_numbers
from snowball.report.web.page import SCRIPTS
from snowball.report.web.run_payload import MAX_FACTS, build_run_payload, pack_run

Make = Callable[..., RunFolder]
Outline = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))["Outline"]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'\u2028"


def render(folders: list[RunFolder], path: Path) -> str:
    write_html(folders, path)
    return path.read_text(encoding="utf-8")


def unpacked(page: str, name: str) -> str:
    """A block of the page as its script unpacks it."""
    text = page.split(f'<script type="application/octet-stream" id="{name}">')[1].split("</script>")[0]
    return zlib.decompress(base64.b64decode(text)).decode()


def test_the_page_needs_nothing_but_itself(two_runs: list[RunFolder], tmp_path: Path) -> None:
    page = render(two_runs, tmp_path / "report.html")
    links = [
        value for _, attributes in Outline(page).tags for name, value in attributes.items() if name in ("src", "href")
    ]
    assert all(link == "data:," or link.startswith("#") for link in links)
    assert "url(" not in page.split("<style>")[1].split("</style>")[0]
    assert "default-src 'none'" in page


def test_the_policy_starts_the_pages_own_script_alone(two_runs: list[RunFolder], tmp_path: Path) -> None:
    page = render(two_runs, tmp_path / "report.html")
    policy = page.split('Content-Security-Policy" content="')[1].split('"')[0]
    allowed = policy.split("script-src ")[1].split()
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    assert allowed == [hash_script(script)]


def test_a_run_is_small(two_runs: list[RunFolder]) -> None:
    assert all(len(pack_run(run.run, run.read_rounds())) < 50_000 for run in two_runs)


def test_the_same_runs_make_the_same_page(two_runs: list[RunFolder], tmp_path: Path) -> None:
    assert render(two_runs, tmp_path / "a.html") == render(two_runs, tmp_path / "b.html")


def test_names_cannot_become_code(make_run: Make, tmp_path: Path) -> None:
    changes = {"participants": [f"{HOSTILE}{index}" for index in range(50)], "facts": {HOSTILE: [1.0] * 50}}
    run = make_run(tmp_path / HOSTILE.replace("/", "_"), "fedavg", rounds=1, **changes)
    run = RunFolder(run.path, {"settings": {"defense": HOSTILE}})
    page = render([run], tmp_path / "report.html")
    outline = Outline(page)
    assert len(outline.scripts) == 4
    assert not [tag for tag, attributes in outline.tags if tag == "img" or "onerror" in attributes]
    assert "\u2028" not in outline.scripts[0]
    data = json.loads(unpacked(page, "block-0"))
    assert data["rounds"][0]["clients"][7] == f"{HOSTILE}7"
    assert HOSTILE in data["rounds"][0]["columns"]


def test_the_script_never_parses_data_as_markup() -> None:
    scripts = list((Path(__file__).parents[3] / "src/snowball/report/web/assets").glob("*.js"))
    assert len(scripts) > len(SCRIPTS)
    for script in scripts:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script.read_text())


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
    run = make_run(tmp_path / "a", "fedavg", rounds=1, facts=facts)
    data = build_run_payload(run.run, run.read_rounds())
    assert data["rounds"][0]["columns"] == {"gaps": facts["gaps"], "votes": facts["votes"]}
    assert data["rounds"][0]["numbers"] == {"clusters": 3}


def test_facts_of_layers_give_way_to_facts_of_the_round(make_run: Make, tmp_path: Path) -> None:
    facts = {f"votes.layer{index}": [1] * 50 for index in range(100)} | {"votes": [2] * 50}
    run = make_run(tmp_path / "a", "fedavg", rounds=1, facts=facts)
    data = build_run_payload(run.run, run.read_rounds())
    assert len(data["rounds"][0]["columns"]) == MAX_FACTS
    assert next(iter(data["rounds"][0]["columns"])) == "votes"


def test_settings_come_with_the_run_but_for_its_pictures(tmp_path: Path) -> None:
    page = render([run_with(tmp_path / "a", trigger={**SQUARE, "picture": PICTURE})], tmp_path / "report.html")
    settings = json.loads(json.loads(unpacked(page, "block-0"))["settings"])
    assert settings == {"settings": {"defense": "fedavg", "data": {"name": "mnist-sample"}}}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1 / 3, 0.33333), (2.0, 2), (True, True), (None, None), ([1e-9 / 3, "x"], [3.3333e-10, "x"]), (1e300, 1e300)],
)
def test_numbers_keep_five_digits(value: object, shown: object) -> None:
    assert round_numbers(value) == shown


def test_unfinished_and_empty_runs_and_runs_without_an_attack_have_a_page(make_run: Make, tmp_path: Path) -> None:
    clean = make_run(tmp_path / "clean", "fedavg", rounds=1, backdoor_accuracy=None, malicious=[False] * 50, map=None)
    (clean.path / "summary.json").unlink()
    page = render([clean, RunFolder.create(tmp_path / "empty", {})], tmp_path / "report.html")
    assert "fedavg trained without an attack; empty finished no round yet." in page
    assert "1, unfinished" in page


def test_a_report_on_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run to report on"):
        write_html([], tmp_path / "report.html")


def png(width: int = 2, height: int = 3) -> str:
    """The start of a PNG file, which says how large it is, in base64."""
    header = struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 0, 0, 0, 0)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header).decode()


PICTURE = {"clean": png(), "stamped": png(28, 28), "parts": [png(8, 8)] * 3, "changed": 9}
TEXT = {"clean": ["all", "is", "well"], "stamped": ["all", "is", "BD"], "changed": [2]}
SQUARE = {"name": "white-square", "summary": "white pixels", "data": "mnist-sample", "label": 7, "target": 1}
DATA = {"source": "sample", "file": "mnist.npz", "complete": False, "train": 12000, "test": 2000, "sha256": "ab" * 32}


def run_with(folder: Path, **fields: Any) -> RunFolder:
    return RunFolder.create(folder, {"settings": {"defense": "fedavg", "data": {"name": "mnist-sample"}}, **fields})


def images(page: str) -> list[dict[str, str | None]]:
    return [attributes for tag, attributes in Outline(page).tags if tag == "img"]


def test_runs_of_one_trigger_share_a_figure(tmp_path: Path) -> None:
    trigger = {**SQUARE, "picture": PICTURE}
    runs = [run_with(tmp_path / name, trigger=trigger) for name in ("one", "two")]
    other = run_with(tmp_path / "other", trigger={**trigger, "target": 2})
    page = render([*runs, other, run_with(tmp_path / "none", trigger=None)], tmp_path / "report.html")
    assert page.count('<figure class="trigger">') == 2
    assert "Runs: one and two." in page
    assert "A sample of mnist-sample, class 7, which the attackers want to be taken for class 2; 9 of its" in page
    shown = images(page)[:5]
    assert [image["src"] for image in shown] == [
        f"data:image/png;base64,{png(*size)}" for size in ((2, 3), (28, 28))
    ] + [f"data:image/png;base64,{png(8, 8)}"] * 3
    assert [(image["width"], image["height"]) for image in shown[:3]] == [("106", "159"), ("140", "140"), ("96", "96")]
    assert [image["alt"] for image in shown[1:3]] == [
        "white-square: the sample, stamped",
        "white-square: the sample, part 1",
    ]


def test_a_trigger_of_words_is_quoted_and_marked(tmp_path: Path) -> None:
    page = render([run_with(tmp_path / "a", trigger={**SQUARE, "text": TEXT})], tmp_path / "report.html")
    assert "<blockquote>all is well</blockquote>" in page
    assert "<blockquote>all is <mark>BD</mark></blockquote>" in page
    assert not images(page)


def test_the_page_has_no_figure_and_no_data_where_a_run_records_none(tmp_path: Path) -> None:
    page = render([RunFolder.create(tmp_path / "old", {"settings": {"defense": "fedavg"}})], tmp_path / "report.html")
    assert 'id="trigger-title"' not in page
    assert 'id="loaded"' not in page


def test_the_pictures_are_not_among_the_settings_again(tmp_path: Path) -> None:
    page = render([run_with(tmp_path / "a", trigger={**SQUARE, "picture": PICTURE})], tmp_path / "report.html")
    assert page.count(png(28, 28)) == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        "iVBORw0KGgo",
        'x" onerror="alert(1)',
        f"{png()}\n",
        f'{png()}" onload="alert(1)',
        f"data:image/png;base64,{png()}",
        "\u2028" + png(),
        base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>").decode(),
        png(0, 1),
        png(30_000, 1),
        png(1, 30_000),
        base64.b64encode(base64.b64decode(png()) + bytes(1 << 18)).decode(),
        base64.b64encode(b"GIF89a\0\0" + base64.b64decode(png())[8:]).decode(),
        7,
        None,
        ["x"],
        {"clean": png()},
    ],
)
def test_what_is_no_picture_is_left_out(tmp_path: Path, content: Any) -> None:
    page = render(
        [
            run_with(tmp_path / "clean", trigger={**SQUARE, "picture": {**PICTURE, "clean": content}}),
            run_with(tmp_path / "part", trigger={**SQUARE, "picture": {**PICTURE, "parts": [content, png()]}}),
        ],
        tmp_path / "report.html",
    )
    assert page.count('<figure class="trigger">') == 1
    assert [image["src"] for image in images(page)] == [
        f"data:image/png;base64,{file}" for file in (png(), png(28, 28), png())
    ]
    assert not [attributes for _, attributes in Outline(page).tags if {"onerror", "onload"} & set(attributes)]


ODD: list[Any] = [None, True, 7, -1.5, "", HOSTILE, [], [HOSTILE, None, 3, [[]]], {}, {"name": HOSTILE, "clean": 1}]


@pytest.mark.parametrize("odd", ODD)
def test_records_of_wrong_types_break_nothing(tmp_path: Path, odd: Any) -> None:
    trigger = {**SQUARE, "picture": PICTURE, "text": TEXT}
    records = [
        *({"trigger": changed} for changed in (odd, *({**trigger, name: odd} for name in trigger))),
        *({"trigger": {**trigger, "picture": {**PICTURE, name: odd}}} for name in PICTURE),
        *({"trigger": {**trigger, "text": {**TEXT, name: odd}}} for name in TEXT),
        *({"data": changed} for changed in (odd, *({**DATA, name: odd} for name in (*DATA, HOSTILE)))),
        {"settings": {"data": odd}, "data": DATA},
    ]
    runs = [RunFolder.create(tmp_path / f"{number}", {"settings": {}, **each}) for number, each in enumerate(records)]
    outline = Outline(render(runs, tmp_path / "report.html"))
    assert len(outline.scripts) == len(runs) + 3
    assert all(
        (attributes["src"] or "").startswith("data:image/png;") for tag, attributes in outline.tags if tag == "img"
    )
    assert not [tag for tag, attributes in outline.tags if "onerror" in attributes]


def test_the_page_says_which_data_was_loaded(tmp_path: Path) -> None:
    whole = {**DATA, "source": "folder", "complete": True, "writers": 3597, "vectors_sha256": "cd" * 32, "odd": [1]}
    runs = [
        run_with(tmp_path / "one", data=DATA),
        run_with(tmp_path / "two", data=DATA),
        run_with(tmp_path / "whole", data=whole),
    ]
    page = render(runs, tmp_path / "report.html")
    table = page.split('<table id="loaded">')[1].split("</table>")[0]
    assert table.count('<th scope="row">mnist-sample</th>') == 2
    cells = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", table.split("<tbody>")[1])).strip()
    subset = "mnist-sample mnist.npz shipped with the package a subset 12,000 2,000 abababababab… one and two"
    complete = "mnist-sample mnist.npz in $SNOWBALL_DATA complete 12,000 2,000 abababababab…"
    assert cells == f"{subset} {complete} writers: 3,597 vectors_sha256: cdcdcdcdcdcd… odd: – whole"  # noqa: RUF001
    assert f'title="{"ab" * 32}"' in table
    assert f'title="{"cd" * 32}"' in table


def test_a_record_of_data_cannot_grow_without_end(tmp_path: Path) -> None:
    data = {**DATA, "file": "f" * 9999, "train": 10**4000, **{f"more{number}": number for number in range(99)}}
    page = render([run_with(tmp_path / "a", data=data)], tmp_path / "report.html")
    table = page.split('<table id="loaded">')[1].split("</table>")[0]
    assert len(table) < 8000
    assert table.count("<div title") == 20


NODE = shutil.which("node")

STUBS = """
const fields = {};
const find = (id) => (fields[id] ??= { setAttribute() {}, replaceChildren() {}, tHead: fake(), tBodies: [fake()] });
const fake = () => ({ rows: [], replaceChildren(...made) { this.rows = made; } });
const element = (tag, text) => ({ text, cells: [], append(...made) { this.cells.push(...made); } });
const percent = String, digits = String, colour = String, axis = Object;
const nothing = () => undefined, opened = new Map(), draw = (place, figure) => Object.assign(place, figure);
"""

ASKS = """
opened.set(-1, JSON.parse(require("fs").readFileSync(0, "utf8")));
chosen.fact = "votes";
describe(); drawMap(); drawEvidence(); fillPicks();
const points = find("map").series.flatMap(({ points }) => points.map(({ x }) => x));
const picks = find("picks").tBodies[0].rows.map((row) => row.cells.map((cell) => cell.text));
const [words, led] = ["round-words", "lead"].map((id) => find(id).textContent);
console.log(JSON.stringify({ words, led, points, picks, fate: fate(record(), 1) }));
"""


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_page_says_who_was_dropped_and_why_the_model_stays() -> None:
    """The script's own functions, without a browser around them."""
    facts = {"order": [0, None, 1, -1], "margin": [None, None, 0.5, None], "score": [None, None, 2.0, 1.0]}
    record = {
        "round": 1, "participants": ["a", "b", "c", "d"], "malicious": [False, True, False, True],
        "elected": [True, False, True, False], "main_accuracy": 0.5, "backdoor_accuracy": None,
        "false_positive_rate": 0.0, "false_negative_rate": 0.25, "seconds": {}, "distances": None,
        "facts": {**facts, "votes": [3.0, None, 2.0, 1.0]}, "map": [[1, 0], None, [2, 0], [3, 0]],
        "dropped": {"b": "not-finite"}, "kept": "too few",
    }  # fmt: skip
    folder = Path(__file__).parents[3] / "src/snowball/report/web/assets"
    script = STUBS + "".join((folder / name).read_text() for name in ("elections.js", "participants.js")) + ASKS
    asked = [NODE or "", "-e", script]
    run = subprocess.run(
        asked, input=json.dumps(build_run_payload({}, [record])), capture_output=True, text=True, check=True
    )
    seen = json.loads(run.stdout)
    assert seen["words"].endswith(" Dropped: b (not-finite). The model stays as it was: too few.")
    assert seen["led"] == "By score, the first infected, d, stood 1 before the last elected, c."
    assert seen["points"] == [3, 1, 2]
    assert ["dropped: not-finite", "b", "◆ infected"] in [row[:3] for row in seen["picks"]]
    assert seen["fate"] == "infected, dropped: not-finite"
    ordinary = {name: value for name, value in record.items() if name not in ("dropped", "kept")}
    assert build_run_payload({}, [ordinary])["rounds"][0]["dropped"] == {}
