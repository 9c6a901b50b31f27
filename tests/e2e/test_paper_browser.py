"""A report on sweeps in a real browser: another page loads it in a frame, uses it and reports what it sees."""

import json
import re
import runpy
from math import log10
from pathlib import Path
from typing import Any

import pytest

from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.report import find_runs, write_html
from snowball.report.sweeps import read_sweeps

REPORT = runpy.run_path(str(Path(__file__).parent / "test_report_browser.py"))
BROWSER, FAKES = REPORT["BROWSER"], REPORT["FAKES"]
from sweeps_made import At, make_sweep, run_name  # noqa: E402  # beside the fakes, which say where

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome is installed")

WATCHER = """<!DOCTYPE html><meta charset="utf-8"><pre id="seen"></pre>
<iframe id="frame" src="report.html#%s" style="width:%dpx;height:900px;border:0"></iframe>
<script>
const frame = document.getElementById("frame");
frame.onload = async () => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement, seen = {};
  const find = (id) => page.getElementById(id);
  const all = (selector) => [...page.querySelectorAll(selector)];
  const rest = () => new Promise((done) => setTimeout(done, 150));
  const enter = (place, text) => { place.value = text; place.dispatchEvent(new view.Event("input", {bubbles: true})); };
  const type = (id, text) => enter(find(id), text);
  const press = (key) => page.activeElement.dispatchEvent(new view.KeyboardEvent("keydown", {key, bubbles: true}));
  const clip = (writeText) =>
    Object.defineProperty(view.navigator, "clipboard", {value: {writeText}, configurable: true});
  const shown = () => all("#runs tbody tr").filter((row) => !row.hidden);
  const look = () => ({
    view: page.body.dataset.view, title: find("run-title").textContent, round: find("round-number").textContent,
    compared: find("compared")?.textContent,
    words: find("round-words").textContent, lead: find("lead").textContent, address: view.location.hash,
    outcome: find("run-outcome").textContent,
    picks: all("#picks tbody tr").length, infected: all("#picks .infected").length, scrolled: view.scrollY,
    curves: all("#backdoor-curve .series").length, key: all("#run-key li").map((each) => each.title),
    rows: shown().map((row) => row.cells[0].innerText.trim()), found: find("found")?.textContent,
    options: all("#options .option").map((each) => each.firstChild.textContent), listed: !find("options").hidden,
    groups: all("#options .group > p").map((each) => each.textContent),
    active: find("search").getAttribute("aria-activedescendant"),
    focus: page.activeElement.id || page.activeElement.tagName,
    theme: root.dataset.theme, ready: root.dataset.ready, overflow: root.scrollWidth - root.clientWidth,
    paper: view.getComputedStyle(page.body).backgroundColor, scripts: page.scripts.length, images: page.images.length,
    requests: view.performance.getEntriesByType("resource").map((each) => each.name),
  });
  for (let turn = 0; turn < 20 && root.dataset.ready !== "yes"; turn++) await rest();
  try { %s } catch (error) { seen.error = String(error); }
  document.getElementById("seen").textContent = JSON.stringify(seen);
};
</script>"""

AXES = {"data.name": ["mnist", "fashion-mnist"], "attack.name": ["cba"], "defense.name": ["fedavg", "krum", "snowball"]}
PLACE = {"data.name": "mnist", "attack.name": "cba", "defense.name": "snowball", "seed": 2}
LOST = {"data.name": "fashion-mnist", "attack.name": "cba", "defense.name": "krum", "seed": 3}


def make_round(at: At, number: int) -> RoundRecord:
    made = FAKES["MAKERS"]["fedavg" if at["defense.name"] == "fedavg" else "snowball"](number)
    if "margin" in made["facts"]:  # narrow ones, as of real elections
        made["facts"]["margin"] = [each and each / 50 for each in made["facts"]["margin"]]
    distances = {"benign": 1 / number, "between": 2 / number, "infected": None}
    return made | {"backdoor_accuracy": min(1.0, made["backdoor_accuracy"] + at["seed"] / 100), "distances": distances}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 runs, one of which failed, with two tables and a figure of each kind."""
    folder = tmp_path_factory.mktemp("sweep")
    kinds: dict[str, dict[str, Any]] = {
        "lines": {"x": "seed"}, "heat": {"x": "seed", "y": "defense.name"}, "bars": {}, "curves": {}, "scatter": {},
        "distances": {},
    }  # fmt: skip
    there = {"there": lambda at: at != LOST, "make_round": make_round}
    make_sweep(folder, AXES, name="table", title="The table", published="label-skew", **there)
    for kind, more in kinds.items():
        make_sweep(folder, AXES, name=kind, title=f"Of {kind}", table=None, figure={"kind": kind, **more}, **there)
    (folder / "failed.json").write_text(json.dumps({run_name(LOST): "the disk is full"}))
    return folder


def watch(folder: Path, sweep: Path, steps: str, address: str = "", width: int = 1200) -> dict[str, Any]:
    """What the steps saw of the report on a folder of sweeps."""
    sweeps, faults = read_sweeps([sweep])
    write_html(find_runs([sweep]), folder / "report.html", sweeps, faults)
    seen: dict[str, Any] = REPORT["browse"](folder, WATCHER % (address, width, steps))
    return seen


def test_a_number_leads_to_its_runs_and_back(tmp_path: Path, sweep: Path) -> None:
    seen = watch(
        tmp_path,
        sweep,
        """seen.start = look();
        const cell = all(".paper tbody tr").at(-1).querySelector("[data-runs]");
        view.scrollTo(0, 300); cell.focus({preventScroll: true}); cell.click(); await rest();
        seen.choice = all("#choice a").map((each) => each.textContent); seen.offered = look();
        all("#choice a")[1].click(); await rest(); await rest(); seen.run = look();
        seen.ticks = all("#margins .y.tick").map((each) => each.textContent);
        type("round", 1); await rest(); seen.slid = look();
        find("next").click(); await rest(); seen.next = look();
        clip(async () => { throw new Error("not allowed"); });
        find("copy").click(); await rest(); seen.refused = find("copied").textContent;
        clip(async (text) => { seen.clip = text; });
        find("copy").click(); await rest(); seen.copied = find("copied").textContent;
        view.history.back(); await rest(); await rest(); seen.back = look();
        view.history.forward(); await rest(); await rest(); seen.forward = look();""",
    )
    assert (seen["start"]["view"], seen["start"]["ready"], seen["start"]["requests"]) == ("overview", "yes", [])
    assert seen["choice"] == ["snowball, seed 1", "snowball, seed 2", "snowball, seed 3"]
    assert seen["offered"]["focus"] == "A"
    run = seen["run"]
    assert (run["view"], run["title"], run["round"]) == ("run", "snowball against cba on mnist, seed 2", "3 of 3")
    assert run["outcome"] == "held: the backdoor stayed out (1 of 30 infected updates averaged)"
    assert (run["picks"], run["infected"], run["scrolled"]) == (50, 10, 0)
    assert run["focus"] == "run-title"
    assert len(set(seen["ticks"])) == len(seen["ticks"]) > 2  # with digits enough to be told apart
    assert seen["slid"]["words"].startswith("30 of 50 elected, among them 1 of 10 infected.")
    assert seen["slid"]["lead"] == "Infected and elected: client-005."
    assert re.fullmatch(
        r"(The|By score, the) first infected, client-\d+, stood [\d.]+ (behind|before) the last elected, client-\d+.*",
        seen["next"]["lead"],
    )
    assert (seen["slid"]["round"], seen["next"]["round"]) == ("2 of 3", "3 of 3")
    assert "round=3" in seen["next"]["address"]
    assert seen["refused"] == seen["clip"]  # where the clipboard is kept from pages, the link is shown
    assert seen["clip"].endswith(seen["next"]["address"])
    assert seen["copied"] == "copied"
    assert (seen["back"]["view"], seen["back"]["scrolled"]) == ("overview", 300)
    assert (seen["forward"]["view"], seen["forward"]["round"]) == ("run", "3 of 3")


MARGINS: dict[str, dict[str, Any]] = {
    "The first infected, d, stood 7 behind the last elected, b (scores).": {"scores": [1, 2, 5, 9]},
    "The first infected, d, stood 2 behind the last elected, a (scores).": {"scores": [6, 7, 3, 4]},
    "By scores, the first infected, d, stood 1 before the last elected, b.": {"scores": [1, 9, 5, 8]},
    "The first infected, d, stood 2 behind the last elected, b (votes).": {
        "order": [0, 0, -1, -1], "margin": [4, 2, None, None], "votes": [9, 7, 1, 5], "score": [9, 7, None, None],
    },
    "The first infected, d, stood 0.6 behind the last elected, b (score).": {
        "order": [0, 1, -1, -1], "margin": [4, 0.5, None, None], "votes": [9, 1, 7, 5], "score": [9, 0.1, 0.6, 0.7],
    },
    "": {"words": "none"},
}  # fmt: skip


def test_margins_say_how_far_the_first_infected_stood_behind_the_last_elected(tmp_path: Path) -> None:
    common = {
        "participants": ["a", "b", "c", "d"], "malicious": [False, False, False, True], "main_accuracy": 0.5,
        "elected": [True, True, False, False], "backdoor_accuracy": None, "false_positive_rate": 0.0,
        "false_negative_rate": 0.5, "seconds": {},
    }  # fmt: skip
    runs = [RunFolder.create(tmp_path / f"{number}", {}) for number in range(len(MARGINS))]
    for run, facts in zip(runs, MARGINS.values(), strict=True):
        run.append({"round": 1, "facts": facts, **common})
        run.append({"round": 2, "facts": facts, **common, "elected": [True] * 4})
    write_html(runs, tmp_path / "report.html")
    steps = """seen.leads = []; seen.all = [];
        for (const box of all("#run-choice input")) {
          box.click(); await rest(); type("round", 0); seen.leads.push(look().lead);
          type("round", 1); seen.all.push(look().lead);
        }"""
    seen = REPORT["browse"](tmp_path, WATCHER % ("", 1200, steps))
    assert seen["leads"] == list(MARGINS)
    assert seen["all"] == ["Infected and elected: d."] * len(MARGINS)


def test_runs_are_sought_by_words_and_keys(tmp_path: Path, sweep: Path) -> None:
    seen = watch(
        tmp_path,
        sweep,
        """find("search").focus(); press("ArrowDown"); seen.opened = look();
        type("search", "Fashion seed 1"); seen.typed = look();
        press("ArrowDown"); seen.down = look();
        press("Enter"); await rest(); await rest(); seen.entered = look();
        type("search", "nobody"); seen.nobody = look(); seen.sentence = find("options").textContent;
        press("Enter"); press("Escape"); await rest(); seen.escaped = look(); seen.name = find("search").value;
        find("search").click(); all("#options .option")[0].click(); await rest(); await rest();
        seen.clicked = look();""",
        f"run={run_name(PLACE)}",
    )
    assert len(seen["opened"]["options"]) == 17
    assert seen["opened"]["groups"] == ["fashion-mnist, cba", "mnist, cba"]
    assert seen["typed"]["options"] == ["fedavg, seed 1", "krum, seed 1", "snowball, seed 1"]
    assert (seen["typed"]["groups"], seen["typed"]["listed"]) == (["fashion-mnist, cba"], True)
    assert seen["typed"]["active"] != seen["down"]["active"]
    assert (seen["entered"]["title"], seen["entered"]["listed"]) == ("krum against cba on fashion-mnist, seed 1", False)
    assert (seen["nobody"]["options"], seen["sentence"]) == ([], "No run has all these words.")
    assert (seen["escaped"]["title"], seen["escaped"]["listed"]) == (seen["entered"]["title"], False)
    assert seen["name"] in seen["entered"]["key"]
    assert seen["clicked"]["title"] == "fedavg against cba on fashion-mnist, seed 1"


def test_the_table_of_runs_is_sorted_filtered_and_compared(tmp_path: Path, sweep: Path) -> None:
    seen = watch(
        tmp_path,
        sweep,
        """seen.start = look();
        const heads = all("#runs .sort"), worst = heads.find((each) => each.textContent === "Backdoor, last");
        worst.click(); seen.rising = look(); worst.click(); seen.falling = look();
        seen.sort = worst.parentElement.getAttribute("aria-sort");
        type("words", "MNIST  snowball"); seen.words = look();
        const select = all("#filter select").find((each) => each.name === "seed");
        enter(select, "2"); seen.facet = look();
        shown()[0].querySelector("input").click(); await rest(); seen.compared = look();
        type("words", ""); enter(select, "");
        for (const box of all("#runs input")) if (!box.checked) { box.click(); await rest(); }
        seen.most = look(); seen.disabled = all("#runs input:disabled").length;
        for (const box of all("#runs input:checked")) box.click();
        await rest(); seen.nobody = find("main-curve").getAttribute("aria-label");
        type("words", "zzz"); seen.none = look(); seen.sentence = find("none-found").hidden;""",
    )
    assert seen["start"]["found"] == "17 runs"
    assert len(seen["start"]["key"]) == seen["start"]["curves"] == 3
    assert "krum-1" in seen["rising"]["rows"][0]
    assert "fedavg-3" in seen["falling"]["rows"][0]
    assert (len(seen["falling"]["rows"]), seen["sort"]) == (17, "descending")
    assert (len(seen["words"]["rows"]), seen["words"]["found"]) == (6, "6 of 17 runs")
    assert (len(seen["facet"]["rows"]), seen["facet"]["found"]) == (2, "2 of 17 runs")
    assert seen["compared"]["curves"] == 4
    assert seen["compared"]["address"].count("compare=") == 4
    assert (seen["most"]["curves"], seen["disabled"]) == (8, 9)
    assert seen["nobody"] == "Main accuracy: nothing to show, no run is chosen."
    assert (seen["none"]["rows"], seen["sentence"]) == ([], False)


DEFENSES = ["crfl", "dnc", "fedavg", "flame", "fldetector", "flip", "ideal", "krum", "rlr", "snowball"]


def test_of_many_defenses_some_are_shown_until_others_are_chosen(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"defense.name": DEFENSES, "seed": [1]})
    seen = watch(
        tmp_path,
        tmp_path,
        """const box = (name) => all("#runs input").find((each) => each.ariaLabel.includes(`-${name}-`));
        const boxes = (state) => all(`#runs input:${state}`).length;
        const compared = () => ({...look(), checked: boxes("checked"), disabled: boxes("disabled")});
        seen.start = compared();
        box("rlr").click(); await rest(); seen.ninth = compared(); seen.kept = box("rlr").checked;
        box("krum").click(); await rest(); seen.full = compared();
        box("crfl").click(); box("krum").click(); await rest(); seen.other = compared();
        view.location.hash += `&run=${seen.start.key[0]}`; await rest(); await rest(); seen.open = look();
        view.location.hash = `compare=${seen.start.key[1]}`; await rest(); await rest(); seen.one = look();""",
    )
    names = {state: [name.split("-")[2] for name in each["key"]] for state, each in seen.items() if state != "kept"}
    start, ninth = seen["start"], seen["ninth"]
    assert names["start"] == ["fedavg", "ideal", "snowball", "crfl", "dnc", "flame", "fldetector", "flip"]
    assert (start["curves"], start["checked"], start["disabled"]) == (8, 8, 0)
    assert start["compared"].startswith("8 of 10 defenses on mnist, cba, seed 1, all other settings alike")
    assert names["ninth"] == [*names["start"][:7], "rlr"]
    assert (ninth["curves"], ninth["checked"], ninth["disabled"], seen["kept"]) == (8, 8, 2, True)
    assert ninth["compared"] == "8 runs, chosen by the boxes in the table of runs (at most 8)."
    assert seen["full"]["key"] == ninth["key"]
    assert names["other"] == ["fedavg", "ideal", "snowball", "dnc", "flame", "fldetector", "rlr", "krum"]
    assert names["open"] == names["other"]
    assert seen["open"]["compared"].startswith("This run and others: 8 runs")
    assert (names["one"], seen["one"]["compared"][:12]) == (["ideal"], "1 run, chose")


def test_a_run_is_compared_with_other_defenses_that_met_the_same(tmp_path: Path) -> None:
    """Other networks are not compared; numbers of rounds may differ, and the closest is taken."""
    whole = {"data.name": "mnist", "attack.name": "cba", "seed": 1, "model.name": "cnn"}
    quarter, again = whole | {"model.name": "cnn-quarter"}, whole | {"seed": 2}
    own, peer, near, alone, *others = (
        {**place, "defense.name": name, "rounds": rounds}
        for place, name, rounds in (
            (whole, "snowball", 9), (whole, "fedavg", 5), (whole, "krum", 8), (again, "snowball", 9),
            (whole, "krum", 2), (quarter, "fedavg", 9), (quarter, "rlr", 9),
        )
    )  # fmt: skip
    for at in (own, peer, near, alone, *others):
        make_sweep(tmp_path, {path: [value] for path, value in at.items()}, rounds=at["rounds"])
    seen = watch(
        tmp_path,
        tmp_path,
        f"""seen.own = look();
        view.location.hash = "run={run_name(alone)}"; await rest(); await rest(); seen.alone = look();""",
        f"run={run_name(own)}",
    )
    assert seen["own"]["key"] == [run_name(at) for at in (own, peer, near)]
    assert seen["own"]["compared"].startswith("This run and others: 3 defenses on mnist, cba, seed 1, all other")
    assert seen["alone"]["key"] == [run_name(alone)]
    assert seen["alone"]["compared"].startswith("One run alone: no other defense")


def test_tables_scroll_in_their_own_box_on_a_phone_in_the_dark(tmp_path: Path, sweep: Path) -> None:
    seen = watch(
        tmp_path,
        sweep,
        f"""const there = "run={run_name(PLACE)}&round=2"; seen.start = look();
        const box = page.querySelector(".paper").parentElement;
        seen.inside = box.scrollWidth > box.clientWidth;
        const first = page.querySelector(".paper tbody th"), before = first.getBoundingClientRect().left;
        box.scrollLeft = 100; await rest(); seen.sticks = first.getBoundingClientRect().left === before;
        find("theme").click(); await rest(); seen.light = look(); find("theme").click(); await rest();
        view.location.hash = there; await rest(); await rest(); seen.run = look();""",
        "theme=dark",
        width=390,
    )
    assert (seen["start"]["theme"], seen["start"]["overflow"], seen["inside"], seen["sticks"]) == (
        "dark",
        0,
        True,
        True,
    )
    assert (seen["light"]["theme"], seen["light"]["overflow"]) == ("light", 0)
    assert seen["light"]["paper"] != seen["start"]["paper"]
    assert (seen["run"]["view"], seen["run"]["round"], seen["run"]["overflow"]) == ("run", "2 of 3", 0)
    assert seen["run"]["theme"] == "dark"


def test_tables_fit_the_page(tmp_path: Path) -> None:
    """With three data sets, two attacks, the published numbers and spreads, as in the paper's largest table."""
    axes = {"data.name": ["mnist", "fashion-mnist", "cifar10"], "attack.name": ["cba", "dba"]}
    make_sweep(tmp_path, axes, published="label-skew")
    steps = """const wide = all(".scroll").filter((each) => each.scrollWidth > each.clientWidth);
        seen.wide = wide.map((each) => each.getAttribute("aria-labelledby")); seen.page = look();
        const curve = find("backdoor-curve").getBoundingClientRect(); seen.bottom = curve.bottom;"""
    seen = watch(tmp_path, tmp_path, steps, width=1280)
    assert (seen["wide"], seen["page"]["overflow"]) == ([], 0)
    assert seen["bottom"] < 900


@pytest.mark.parametrize("width", [390, 800])
def test_headings_of_columns_stay_in_view_while_these_are(tmp_path: Path, width: int) -> None:
    make_sweep(
        tmp_path,
        {"data.name": ["mnist", "fashion-mnist", "femnist", "cifar10", "emnist"], "attack.name": ["cba", "dba"]},
    )
    seen = watch(
        tmp_path,
        tmp_path,
        """const box = page.querySelector(".paper").parentElement, side = (each) => each.getBoundingClientRect();
        const far = box.scrollWidth - box.clientWidth; seen.far = far; seen.cut = []; seen.astray = [];
        const left = side(page.querySelector(".paper th")).right, right = side(box).right;
        for (const at of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
          box.scrollLeft = at * far; await rest();
          for (const word of all(".paper thead span").map((each) => [side(each), side(each.parentElement), each])) {
            const [own, cell, {textContent}] = word, room = Math.min(cell.right, right) - Math.max(cell.left, left);
            if (room > own.width + 25 && (own.left < left || own.right > right)) seen.cut.push([textContent, at]);
            if (own.left < cell.left || own.right > cell.right) seen.astray.push([textContent, at]);
          }
        }""",
        width=width,
    )
    assert seen["far"] > 100
    assert (seen["cut"], seen["astray"]) == ([], [])


def test_what_is_not_there_says_why_and_what_is_far_off_says_how(tmp_path: Path, sweep: Path) -> None:
    seen = watch(
        tmp_path,
        sweep,
        """seen.faults = page.querySelector(".faults").innerText;
        const lacks = page.querySelector("[data-reason]"), tip = find("tip");
        seen.text = lacks.innerText;
        lacks.focus(); await rest(); seen.tip = tip.matches(":popover-open") && tip.innerText;
        lacks.blur(); await rest(); seen.closed = !tip.matches(":popover-open");
        lacks.dispatchEvent(new view.Event("mouseenter")); seen.hovered = tip.matches(":popover-open");
        seen.far = all(".difference.worse, .difference.better").map((each) => each.innerText);
        seen.best = all(".best").map((each) => each.closest("tr").cells[0].innerText);
        page.querySelector(".differs summary").click(); seen.differs = find("differences").innerText;
        seen.links = all(".contents a").filter((each) => !find(each.hash.slice(1))).length;""",
    )
    assert "failed: the disk is full" in seen["faults"]
    assert seen["text"] == "2 of 3, 1 failed"
    assert "the disk is full" in seen["tip"]
    assert (seen["closed"], seen["hovered"], seen["links"]) == (True, True, 0)
    assert seen["far"]
    assert all(text.startswith(("+", "−")) and text.endswith(("worse", "better")) for text in seen["far"])  # noqa: RUF001
    assert set(seen["best"]) <= {"snowball", "krum"}
    assert "rounds\tmnist\t100\t3" in seen["differs"]


def test_figures_are_drawn_and_their_marks_lead_to_runs(tmp_path: Path, sweep: Path) -> None:
    seen = watch(
        tmp_path,
        sweep,
        """const at = {}; all(".panels").forEach((each, place) => { at[each.className.split(" ")[1]] = place; });
        const inside = (kind, selector) => all(`[id^="figure-${at[kind]}-"] ${selector}`);
        const marks = (kind) => inside(kind, ".series").reduce((sum, each) => sum + Number(each.dataset.marks), 0);
        const drawn = () => ({
          lines: marks("lines"), bars: marks("bars"), heat: marks("heat"), scatter: marks("scatter"),
          curves: inside("curves", ".line.series").length, distances: inside("distances", ".line.series").length,
          labels: inside("heat", ".label").length, whiskers: inside("bars", ".whiskers").length });
        seen.drawn = drawn();
        const ticks = all(`#figure-${at.heat}-0 .scale text`).map((each) => each.textContent);
        seen.scale = [ticks[0], ticks.at(-1)];
        const ranges = (plot) => [...plot.querySelectorAll(".tick")].map((each) => each.textContent).join();
        seen.ranges = all(`[id^="figure-${at.curves}-"].plot`).map(ranges);
        seen.key = all(`#figure-${at.curves}-key li`).map((each) => each.textContent);
        const mark = (kind, place) => {
          const press = (key) => find(`figure-${at[kind]}-0`).dispatchEvent(new view.KeyboardEvent("keydown", {key}));
          for (let turn = 0; turn <= place; turn++) press("ArrowRight");
          press("Enter"); };
        mark("bars", 0); await rest(); seen.choice = all("#choice a").length; find("choice").hidePopover();
        mark("scatter", 0); await rest(); await rest(); seen.run = look();
        view.history.back(); await rest(); await rest(); find("theme").click(); await rest(); seen.again = drawn();""",
    )
    assert seen["drawn"] == seen["again"]
    assert seen["drawn"]["curves"] == 2 * 3
    assert seen["drawn"]["distances"] == 6 * 2
    assert seen["drawn"]["scatter"] > 50
    assert min(seen["drawn"][kind] for kind in ("lines", "bars", "heat", "labels", "whiskers")) > 0
    assert seen["key"] == ["snowball", "fedavg", "krum"]
    assert seen["scale"] == ["0%", "100%"]
    assert len(set(seen["ranges"])) == 1  # panels side by side can be compared
    assert seen["choice"] >= 2
    assert seen["run"]["view"] == "run"


def test_logarithmic_bars_of_all_panels_are_drawn_to_one_scale(tmp_path: Path) -> None:
    seconds = {"fedavg": (0.03, 0.21), "krum": (0.3, 0.21), "snowball": (8.0, 0.3)}

    def timed(at: At, number: int) -> RoundRecord:
        defense, evaluate = seconds[at["defense.name"]]
        return make_round(at, number) | {"seconds": {"train": 1.0, "defense": defense, "evaluate": evaluate}}

    figure = {"kind": "bars", "value": ["defense_seconds", "evaluate_seconds"]}
    axes = {"defense.name": list(seconds), "seed": [1]}
    make_sweep(tmp_path, axes, timed, table=None, figure=figure)
    steps = """const side = (each) => each.getBoundingClientRect();
        const lengths = (id) => all(`#${id} .boxes.series > path:not(.whiskers)`).map((each) => side(each).width);
        seen.defense = lengths("figure-0-0"); seen.evaluate = lengths("figure-0-1");"""
    seen = watch(tmp_path, tmp_path, steps)
    decade = (seen["defense"][1] - seen["defense"][0]) / log10(0.3 / 0.03)
    drawn = {"defense": [0.03, 0.3, 8.0], "evaluate": [0.21, 0.21, 0.3]}
    for panel, values in drawn.items():
        assert seen[panel] == pytest.approx([decade * log10(value / 0.01) for value in values], abs=1)


def test_hostile_names_of_sweeps_stay_names(tmp_path: Path) -> None:
    code = "<img src=x onerror=console.error(2)><a href='http:'>&amp;%{x}"
    axes = {"data.name": [code], "attack.name": ["a", "b", "c"], "defense.name": [code, "krum"], "seed": [1, 2]}
    table = {"rows": ["defense.name"], "columns": ["attack.name", "data.name"]}
    figures: list[dict[str, Any]] = [
        {"kind": "bars"}, {"kind": "curves"}, {"kind": "heat", "x": "data.name", "y": "defense.name"},
    ]  # fmt: skip
    for place, figure in enumerate(figures):
        make_sweep(tmp_path, axes, name=f"{place}", title=code, table=table, figure=figure)
    seen = watch(
        tmp_path,
        tmp_path,
        """page.querySelector("[data-runs]").click(); await rest(); seen.choice = find("choice").innerText;
        all("#choice a")[0].click(); await rest(); await rest(); seen.run = look();
        find("search").click(); seen.list = look(); seen.title = page.title;""",
    )
    assert code in seen["choice"]
    assert (seen["run"]["view"], seen["run"]["title"]) == ("run", f"{code} against a on {code}, seed 1")
    assert (seen["run"]["images"], seen["list"]["images"], seen["run"]["scripts"]) == (0, 0, 12 + 3)
    assert seen["list"]["groups"][0] == f"{code}, a"
