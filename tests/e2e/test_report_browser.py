"""The report in a real browser: another page loads it in a frame, uses its controls and reports what it sees."""

import html
import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowball.data.preview import load_preview
from snowball.records.run import RunFolder
from snowball.report import write_html

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--allow-file-access-from-files",
    "--enable-logging=stderr",
    "--virtual-time-budget=8000",
    "--window-size=1600,1200",
    "--dump-dom",
)
FAKES = runpy.run_path(str(Path(__file__).parents[1] / "report" / "conftest.py"))
make_run: Callable[..., RunFolder] = FAKES["make_run"]

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome is installed")

WATCHER = """<!DOCTYPE html><meta charset="utf-8"><pre id="seen"></pre>
<iframe id="frame" src="report.html#%s" style="width:%dpx;height:3000px;border:0"></iframe>
<script>
const frame = document.getElementById("frame");
frame.onload = async () => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement, seen = {};
  const find = (id) => page.getElementById(id);
  const count = (selector) => page.querySelectorAll(selector).length;
  const series = (id) => [...page.querySelectorAll(`#${id} .series`)];
  const marks = (id) => series(id).reduce((sum, each) => sum + Number(each.dataset.marks), 0);
  const press = (id, key) => {
    find(id).focus();
    find(id).dispatchEvent(new view.KeyboardEvent("keydown", {key, bubbles: true}));
  };
  const rest = () => new Promise((done) => setTimeout(done, 300));
  const enter = (id, value, kind) => {
    find(id).value = value;
    find(id).dispatchEvent(new view.Event(kind, {bubbles: true}));
    return rest();
  };
  const look = () => ({
    run: page.querySelector("#run-choice input:checked + span").textContent,
    round: find("round-number").textContent,
    words: find("round-words").textContent,
    first: page.querySelector("#picks tbody tr")?.innerText,
    facts: [...find("fact").options].map((each) => each.value),
    participants: count("#picks tbody tr"),
    points: marks("map"),
    bars: marks("evidence"),
    curves: count("#backdoor-curve .series"),
    grid: marks("grid"),
    frames: count("#grid .overlay path"),
    links: count("svg a"),
    tip: find("tip").matches(":popover-open") && find("tip").textContent,
    scripts: page.scripts.length,
    images: page.images.length,
    address: view.location.hash,
    ready: root.dataset.ready,
    theme: root.dataset.theme,
    paper: view.getComputedStyle(page.body).backgroundColor,
    overflow: root.scrollWidth - root.clientWidth,
    requests: view.performance.getEntriesByType("resource").map((each) => each.name),
  });
  await rest();
  try { %s } catch (error) { seen.error = String(error); }
  document.getElementById("seen").textContent = JSON.stringify(seen);
};
</script>"""


def watch(folder: Path, runs: list[RunFolder], steps: str, address: str = "", width: int = 1200) -> dict[str, Any]:
    """What the steps saw of the report on these runs."""
    write_html(runs, folder / "report.html")
    return browse(folder, WATCHER % (address, width, steps))


def browse(folder: Path, watcher: str) -> dict[str, Any]:
    """What a watching page says that it saw; what the console said would be a fault."""
    (folder / "watcher.html").write_text(watcher, encoding="utf-8")
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}", (folder / "watcher.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    found = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the browser showed nothing: {done.stderr[-2000:]}"
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert "error" not in seen, seen
    return seen


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / name, name) for name in ("fedavg", "snowball")]


def test_controls_change_what_is_shown(tmp_path: Path, two_runs: list[RunFolder]) -> None:
    seen = watch(
        tmp_path,
        two_runs,
        """seen.start = look();
        await enter("round", 1, "input"); seen.slid = look();
        find("next").click(); await rest(); seen.next = look();
        await enter("fact", "clarity.fc1.weight", "change"); seen.fact = look();
        page.querySelectorAll("#run-choice input")[0].click(); await rest(); seen.fedavg = look();
        find("theme").click(); await rest(); seen.toggled = look();""",
    )
    start = seen["start"]
    assert (start["run"], start["round"], start["ready"]) == ("snowball", "20 of 20", "yes")
    assert (start["points"], start["bars"], start["participants"]) == (50, 50, 50)
    assert (start["curves"], start["grid"]) == (2, 1000)
    assert (start["requests"], start["frames"]) == ([], 1)
    assert seen["slid"]["words"].startswith("30 of 50 elected, among them 1 of 10 infected.")
    assert seen["slid"]["first"].split("\t")[:3] == ["seated first", "client-005", "◆ infected"]
    assert seen["next"]["round"] == "3 of 20"
    assert "fact=clarity.fc1.weight" in seen["fact"]["address"]
    assert (seen["fedavg"]["run"], seen["fedavg"]["round"], seen["fedavg"]["bars"]) == ("fedavg", "3 of 20", 0)
    assert seen["fedavg"]["words"].startswith("50 of 50 elected, among them 10 of 10 infected.")
    assert (start["theme"], seen["toggled"]["theme"]) == ("light", "dark")
    assert start["paper"] != seen["toggled"]["paper"]


def test_marks_are_pointed_at_and_reached_with_keys(tmp_path: Path, two_runs: list[RunFolder]) -> None:
    steps = """const grid = find("grid"), {left, top, width, height} = grid.getBoundingClientRect();
        const at = {clientX: left + 0.3 * width, clientY: top + 0.5 * height};
        const point = (kind) => grid.dispatchEvent(new view.PointerEvent(kind, at));
        point("pointermove"); seen.over = look().tip;
        point("click"); await rest(); seen.clicked = look().round;
        point("pointerleave"); seen.away = look().tip;
        for (const key of ["Home", "ArrowDown", "ArrowRight"]) press("backdoor-curve", key);
        seen.curve = look().tip; press("backdoor-curve", "Escape"); seen.escaped = look().tip;
        press("grid", "Home"); press("grid", "Enter"); await rest(); seen.entered = look().round;"""
    seen = watch(tmp_path, two_runs, steps)
    assert re.fullmatch(r"Round 6, client-\d+: benign, elected", seen["over"])
    assert seen["clicked"] == "6 of 20"
    assert re.fullmatch(r"snowball, round 2: [\d.]+%", seen["curve"])
    assert (seen["away"], seen["escaped"]) == (False, False)
    assert seen["entered"] == "2 of 20"  # the first round that elected an infected update


def test_an_address_names_a_view_on_a_phone(tmp_path: Path, two_runs: list[RunFolder]) -> None:
    steps = """seen.first = look();
        view.location.hash = "run=fedavg&round=7&theme=light"; await rest(); seen.second = look();"""
    seen = watch(tmp_path, two_runs, steps, "run=snowball&round=2&theme=dark", width=390)
    first, second = seen["first"], seen["second"]
    assert (first["run"], first["round"], first["theme"], first["overflow"]) == ("snowball", "2 of 20", "dark", 0)
    assert (second["run"], second["round"], second["theme"], second["overflow"]) == ("fedavg", "7 of 20", "light", 0)


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    code = "</script><script>console.error(1)</script><img src=x onerror=console.error(2)>"
    hostile = f"{code}<a href='http://localhost/'>x</a>%{{x}}"
    changes = {
        "participants": [f"{hostile}{index}" for index in range(50)],
        "facts": {hostile: [1.0] * 50, "__proto__": [2.0] * 50},
    }
    run = make_run(tmp_path / hostile.replace("/", "_"), "fedavg", rounds=1, **changes)
    steps = """press("map", "End"); await rest(); seen.page = look();
        press("main-curve", "End"); await rest(); seen.curve = look().tip;"""
    both = watch(tmp_path, [run], steps)
    seen = both["page"]
    assert (seen["scripts"], seen["images"], seen["links"]) == (4, 0, 0)
    assert seen["tip"].startswith(hostile)
    assert both["curve"].startswith(run.path.name)
    assert (seen["round"], seen["points"], seen["bars"]) == ("1 of 1", 50, 50)
    assert hostile in seen["facts"]
    assert hostile in seen["first"]


def test_triggers_are_drawn_in_whole_pixels_on_a_phone(tmp_path: Path) -> None:
    names, data = ("white-square", "noise", "word"), {"file": "f" * 150, "sha256": "ab" * 32, "words": 3}
    runs = [
        RunFolder.create(tmp_path / name, {"trigger": load_preview(name).to_json(), "data": data}) for name in names
    ]
    steps = """seen.page = look();
        seen.shown = [...page.images].map((each) => [each.complete, each.naturalWidth, each.width, each.height]);
        seen.tops = [...page.images].slice(0, 2).map((each) => each.getBoundingClientRect().top);
        seen.crisp = view.getComputedStyle(page.images[0]).imageRendering;
        seen.marks = [...page.querySelectorAll("mark")].map((each) => each.innerText);"""
    seen = watch(tmp_path, runs, steps, width=390)
    assert seen["shown"] == [[True, 28, 140, 140]] * 2 + [[True, 8, 96, 96]] * 3 + [[True, 28, 140, 140]] * 2
    assert seen["tops"][0] == seen["tops"][1]
    assert (seen["crisp"], seen["marks"], seen["page"]["overflow"]) == ("pixelated", ["BD"], 0)
    assert all(request.startswith("data:image/png;") for request in seen["page"]["requests"])


def test_runs_with_little_to_show(tmp_path: Path) -> None:
    clean = make_run(
        tmp_path / "clean",
        "snowball",
        rounds=2,
        malicious=[False] * 50,
        backdoor_accuracy=None,
        false_positive_rate=None,
    )
    bare = make_run(tmp_path / "bare", "fedavg", rounds=1, map=None, facts={"odd": "text"})
    empty = RunFolder.create(tmp_path / "empty", {})
    seen = watch(
        tmp_path,
        [empty, bare, clean],
        """for (const name of ["clean", "bare", "empty", "clean"]) {
          view.location.hash = `run=${name}`; await rest(); seen[name] = look(); find("theme").click(); await rest();
        }""",
    )
    assert seen["clean"]["words"].startswith("30 of 50 elected; none was infected.")
    assert (seen["clean"]["points"], seen["clean"]["bars"], seen["clean"]["grid"]) == (50, 50, 100)
    assert (seen["bare"]["round"], seen["bare"]["points"], seen["bare"]["bars"]) == ("1 of 1", 0, 0)
    assert (seen["empty"]["words"], seen["empty"]["participants"]) == ("This run has no round to show yet.", 0)


def test_what_the_record_lacks_is_said_of_the_record_or_of_the_round(tmp_path: Path) -> None:
    bare = make_run(tmp_path / "bare", "snowball", rounds=1, map=None, facts={})
    part = make_run(tmp_path / "part", "snowball", rounds=1)
    part.append(part.read_rounds()[0] | {"round": 2, "map": None, "facts": {"score": [1.0] * 50}})
    steps = """const said = () => ["map", "evidence", "margins"].map((id) => find(id).dataset.empty);
        for (const name of ["bare", "part"]) { view.location.hash = `run=${name}`; await rest(); seen[name] = said(); }
        await enter("round", 0, "input"); seen.first = said();"""
    seen = watch(tmp_path, [bare, part], steps)
    assert seen["bare"] == [
        "The record has no map of the updates.",
        "The record has no number for each participant.",
        "No round has an infected update and a number to compare.",
    ]
    assert seen["part"] == [
        "The record has no map of the updates of this round.",
        "The record has no votes of this round.",
        None,
    ]
    assert seen["first"] == [None] * 3


def test_the_curves_are_on_the_first_screen(tmp_path: Path, two_runs: list[RunFolder]) -> None:
    steps = """const side = (id) => find(id).getBoundingClientRect();
        seen.bottom = Math.max(side("main-curve").bottom, side("backdoor-curve").bottom);
        seen.top = side("main-curve").top - page.querySelector("h1").getBoundingClientRect().bottom;
        seen.page = look();"""
    seen = watch(tmp_path, two_runs, steps, width=1280)
    assert seen["top"] > 0
    assert seen["bottom"] < 900
    assert seen["page"]["overflow"] == 0


def test_a_defense_has_one_colour_whatever_is_beside_it(tmp_path: Path, two_runs: list[RunFolder]) -> None:
    again = make_run(tmp_path / "again", "snowball", rounds=3)
    steps = """seen.lines = [...page.querySelectorAll("#backdoor-curve .series")].map((each) =>
          [view.getComputedStyle(each).stroke, each.firstChild.getAttribute("stroke-dasharray"), each.children.length]);
        const legend = [...page.querySelectorAll("#run-key svg")];
        seen.key = legend.map((each) => view.getComputedStyle(each).stroke);"""
    one, other = (watch(tmp_path, runs, steps) for runs in (two_runs, [again, *two_runs]))
    charcoal, green = "rgb(43, 47, 54)", "rgb(0, 158, 115)"
    assert one["lines"] == [[charcoal, "6 4", 1], [green, "", 1]]
    assert other["lines"] == [[green, "", 1], one["lines"][0], [green, "", 2]]  # marks tell the second from the first
    assert one["key"] == [charcoal, green]


CLIENTS = """const clients = () => ({
          words: find("clients-words").textContent, found: find("clients-found").textContent,
          rows: [...page.querySelectorAll("#client-table tbody tr")].map((row) => row.innerText.split("\\t")),
          infected: count("#client-table tr.infected"), sorted: count("#client-table [aria-sort=ascending]"),
          more: find("more-clients").hidden || find("more-clients").textContent});"""


def test_clients_are_summarised_over_all_rounds(tmp_path: Path, two_runs: list[RunFolder]) -> None:
    steps = f"""{CLIENTS}
        seen.start = clients(); find("more-clients").click(); seen.more = clients();
        const heads = () => [...page.querySelectorAll("#client-table thead button")];
        heads()[0].click(); seen.named = clients(); heads()[2].click(); seen.most = clients();
        heads()[2].click(); seen.least = clients();
        find("theme").click(); await rest(); seen.dark = clients();
        await enter("client-words", "INFECTED 005", "input"); seen.found = clients();
        page.querySelector("#client-choice input").click(); await rest(); seen.fedavg = clients(); seen.run = look();"""
    seen = watch(tmp_path, two_runs, steps)
    start, named = seen["start"], seen["named"]
    assert start["words"].startswith("124 of 200 clients are infected. Of their 200 infected updates, 1 was elected")
    assert (len(start["rows"]), start["infected"], start["found"]) == (100, 100, "200 clients")
    assert start["more"] == "Show 100 more of 200"
    assert (len(seen["more"]["rows"]), seen["more"]["more"]) == (200, True)
    assert [row[0] for row in named["rows"][:2]] == ["client-000", "client-001"]
    assert (start["sorted"], named["sorted"]) == (0, 1)
    rounds = [int(row[2]) for row in seen["most"]["rows"]]
    assert rounds == sorted(rounds, reverse=True)
    assert [int(row[2]) for row in seen["least"]["rows"]] == sorted(rounds)
    assert seen["dark"] == seen["least"]
    (row,) = seen["found"]["rows"]
    assert row[0] == "client-005"
    assert row[1].startswith("◆ infected")
    assert seen["run"]["run"] == "fedavg"
    assert seen["fedavg"]["words"].endswith("Of 800 benign updates, 800 were elected (100.0%).")


def test_a_phone_shows_the_backdoor_first(tmp_path: Path, two_runs: list[RunFolder]) -> None:
    steps = """const side = (each) => each.getBoundingClientRect();
        const cell = page.querySelector("#runs .verdict"); seen.header = cell.textContent;
        seen.right = side(cell).right; seen.page = look(); seen.label = find("theme").textContent;
        seen.curves = side(find("backdoor-curve")).top < side(find("main-curve")).top;
        find("theme").click(); await rest(); seen.other = find("theme").textContent;"""
    seen = watch(tmp_path, two_runs, steps, width=390)
    assert (seen["header"], seen["curves"], seen["page"]["overflow"]) == ("Backdoor, last", True, 0)
    assert seen["right"] < 390
    assert (seen["label"], seen["other"]) == ("Switch to dark colours", "Switch to light colours")


def test_a_share_that_is_elected_by_design_is_explained_where_it_is_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "half", "snowball", rounds=2)
    settings = {"defense": {"name": "snowball", "target_share": 0.5}}
    steps = """seen.below = page.querySelector(".below").textContent; seen.note = find("rates-note").textContent;
        const hint = page.querySelector(".hint"); hint.click(); seen.tip = find("tip").textContent;"""
    seen = watch(tmp_path, [RunFolder(run.path, {"settings": settings})], steps)
    assert "(snowball 50%)" in seen["below"]
    assert seen["note"].startswith("By design, snowball elects 50% of the updates")
    assert "the first is the one that came closest to being elected" in seen["tip"]
