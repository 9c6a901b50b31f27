"""The audit page in a real browser: another page loads it in a frame, uses it and reports what it sees."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from snowball.report import Audit, write_audit

REPORT = runpy.run_path(str(Path(__file__).parent / "test_report_browser.py"))
BROWSER, FLAGS, make_entry = REPORT["BROWSER"], REPORT["FLAGS"], REPORT["FAKES"]["make_entry"]

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome is installed")

WATCHER = """<!DOCTYPE html><meta charset="utf-8"><pre id="seen"></pre>
<iframe id="frame" src="page.html#%s" style="width:%dpx;height:2000px;border:0"></iframe>
<script>
const frame = document.getElementById("frame");
frame.onload = async () => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement, seen = {};
  const find = (id) => page.getElementById(id);
  const rest = () => new Promise((done) => setTimeout(done, 100));
  const look = () => ({
    client: find("client").selectedOptions[0]?.textContent,
    words: find("client-words").textContent,
    lines: [...find("moments").tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim())),
    found: page.querySelector("#moments .found th")?.textContent,
    pressed: page.querySelector("#names [aria-pressed=true]")?.textContent,
    marks: Object.fromEntries(["elected", "suspect", "not_needed", "malformed", "silent", "clarity-charged",
      "decided-line"].map((state) => [state,
      [...page.querySelectorAll(`#grid .${state}`)].map((each) => each.getAttribute("d").split("M").length - 1)])),
    scripts: page.scripts.length, images: page.images.length, address: view.location.hash,
    ready: root.dataset.ready, theme: root.dataset.theme, overflow: root.scrollWidth - root.clientWidth,
    paper: view.getComputedStyle(page.body).backgroundColor,
    requests: view.performance.getEntriesByType("resource").map((each) => each.name),
  });
  await rest();
  try { %s } catch (error) { seen.error = String(error); }
  document.getElementById("seen").textContent = JSON.stringify(seen);
};
</script>"""


def watch(folder: Path, audit: Audit, steps: str, address: str = "", width: int = 1200) -> dict[str, Any]:
    """What the steps saw of the page on an audit."""
    write_audit(audit, folder / "page.html")
    seen: dict[str, Any] = REPORT["browse"](folder, WATCHER % (address, width, steps))
    return seen


def test_a_client_is_chosen_in_four_ways_and_its_history_shown(tmp_path: Path) -> None:
    facts = {
        "votes": {"site-1": 9.0, "site-2": 12.5, "site-7": 3.25},
        "charge": "leans to class 1 with <b>9</b> others",
        "words.crowd": "leans to class 1",
        "clarity.crowd": 5.5,
        "bound.crowd": 4.8,
        "charged.crowd": {"site-7": 1},
    }
    out = {"elected": ["site-1", "site-2"], "left_out": ["site-7"], "suspects": ["site-7"], "facts": facts}
    dropped = [{"client": "site-2", "reason": "norm", "detail": "too long"}]
    decisions = [{"client": "site-1", "rule": "allow", "reason": "we know it", "by": "Ada", "until": None}]
    audit = Audit(
        [
            make_entry(1, version="1", silent=["site-8"], clarity=1.5, ids={"site-7": "12345678901234567890"}, **out),
            make_entry(2, version="1", dropped=dropped, elected=["site-1"], left_out=["site-8"], decisions=decisions),
        ]
    )
    seen = watch(
        tmp_path,
        audit,
        """seen.start = look();
        find("client").value = "1"; find("client").dispatchEvent(new view.Event("change", {bubbles: true}));
        seen.select = look();
        find("names").querySelectorAll("button")[3].click(); seen.name = look();
        const box = find("grid").getBoundingClientRect();
        find("grid").dispatchEvent(new view.MouseEvent("click", {clientX: box.left + 17, clientY: box.top + 42 + 19}));
        seen.grid = look();
        view.location.hash = "client=site-7&round=1&theme=dark"; await rest(); seen.address = look();""",
    )
    start = seen["start"]
    assert (start["client"], start["ready"], start["requests"]) == ("site-7 (12345678901234567890)", "yes", [])
    assert start["lines"] == [
        [
            "1",
            "suspect: leans to class 1 with <b>9</b> others\nEvidence of 1 ballot\n"
            "crowd charged it: leans to class 1 (clarity 5.5, charges from 4.8 on)",
            "3.25\n9 to 12.5",
            "1.5",
            "2026-01-01T00:00:00+00:00",
        ]
    ]
    counts = {"elected": [3], "suspect": [1], "not_needed": [1], "malformed": [1], "silent": [1]}
    assert start["marks"] == {**counts, "clarity-charged": [1], "decided-line": [1]}
    assert start["words"] == "site-7 (12345678901234567890): suspect in 1; no part in 1 of 2 rounds."
    assert (seen["select"]["client"], seen["select"]["pressed"]) == ("site-2", "site-2")
    assert seen["select"]["lines"][1][1] == "malformed, norm: too long"
    assert (seen["name"]["client"], seen["name"]["lines"][0][1]) == ("site-8", "silent")
    assert seen["name"]["lines"][1][1] == "not needed"
    assert (seen["grid"]["client"], seen["grid"]["found"], seen["grid"]["address"]) == (
        "site-2",
        "2",
        "#client=site-2&round=2",
    )
    assert (seen["address"]["pressed"], seen["address"]["found"], seen["address"]["theme"]) == ("site-7", "1", "dark")
    assert start["paper"] != seen["address"]["paper"]


def test_hostile_names_and_an_empty_audit_on_a_phone(tmp_path: Path) -> None:
    code = "</script><script>console.error(1)</script><img src=x onerror=console.error(2)>"
    dropped = [{"client": code, "reason": code, "detail": code}]
    facts = {code: {code: 1.5}, "__proto__": {code: 2.5}, "constructor": {code: 3.5}}
    entry = make_entry(1, elected=[code], dropped=dropped, facts=facts, outcome="kept", reason=code)
    seen = watch(tmp_path, Audit([entry]), "seen.page = look();", width=390)["page"]
    assert (seen["scripts"], seen["images"], seen["overflow"]) == (2, 0, 0)
    assert code[:20] in seen["lines"][0][1]
    empty = watch(tmp_path, Audit([]), "seen.page = look();", width=390)["page"]
    assert (empty["ready"], empty["words"], empty["lines"]) == ("yes", "The audit names no client.", [])
