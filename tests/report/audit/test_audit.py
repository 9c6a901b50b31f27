import json
import re
import runpy
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snowball.errors import RunError, SettingError
from snowball.records.audit import read_audit
from snowball.records.states import STATES
from snowball.records.text import escape_text
from snowball.report import Audit, write_audit
from snowball.report.audit.answer import explain_round
from snowball.report.audit.contributions import find_rollback, list_contributions, write_contribution, write_rollback
from snowball.report.audit.facts import MAX_CHARGE_CHARS, MAX_FACTS, find_elected_ranges, list_fact_names
from snowball.report.audit.prose import write_audit_headline, write_audit_prose, write_client_line, write_moment_line
from snowball.report.audit.table import build_client_table, build_narrow_table
from snowball.report.web.audit_page import build_audit_payload

Make = Callable[..., dict[str, Any]]
Outline = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))["Outline"]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'\u2028\x1b[2J\u202e"


@pytest.fixture
def five(make_entry: Make) -> Audit:
    """Five rounds: two of site-7 left out, then elected, a kept one, and one that drops it."""
    votes = {"site-1": 9.0, "site-2": 12.5, "site-7": 3.25}
    steps = {"site-1": 0, "site-2": 1, "site-7": -1}
    score = {"site-1": 9.0, "site-2": 0.5, "site-7": 4.0}
    facts = {"votes": votes, "votes.layer": votes, "order": steps, "score": score, "clusters": 3, "seconds.gram": 0.1}
    out = {"elected": ["site-1", "site-2"], "left_out": ["site-7"], "facts": facts}
    dropped = [{"client": "site-7", "reason": "norm", "detail": "its update is 1e30 long"}]
    failed = [{"client": "site-1", "reason": "error", "detail": "no memory"}]
    sites = ["site-1", "site-2", "site-7"]
    return Audit(
        [
            make_entry(1, asked=[*sites, "site-8"], answered=sites, silent=["site-8"], **out),
            make_entry(2, asked=sites, answered=sites, **out),
            make_entry(3, asked=sites, answered=sites, elected=sites),
            make_entry(4, asked=sites, answered=sites, outcome="kept", reason="ValueError: no idea"),
            make_entry(5, asked=sites, answered=["site-2", "site-7"], elected=["site-2"], dropped=dropped + failed),
        ]
    )


def test_every_client_is_counted_and_the_strongest_evidence_comes_first(five: Audit) -> None:
    assert build_client_table(five) == [
        ("Client", "Standing", "Suspect", "Malformed", "Failed", "Left out", "Silent", "Elected", "Averaged",
         "Answered", "Asked"),
        ("site-7", "malformed replies", "0", "1 norm", "0", "2", "0", "1", "0", "5", "5"),
        ("site-1", "failed in its last round", "0", "0", "1", "0", "0", "3", "0", "4", "5"),
        ("site-8", "silent in its last round", "0", "0", "0", "0", "1", "0", "0", "0", "1"),
        ("site-2", "nothing against it", "0", "0", "0", "0", "0", "4", "0", "5", "5"),
    ]  # fmt: skip
    assert build_narrow_table(five)[1:3] == [
        ("site-7", "malformed replies", "malformed 1, left out 2, answered, not judged 1, elected 1"),
        ("site-1", "failed in its last round", "failed 1, answered, not judged 1, elected 3"),
    ]


def test_the_rounds_in_words(five: Audit) -> None:
    assert write_audit_headline(five) == (
        "This audit is of an earlier version: it says who was left out, but not whether on evidence."
    )
    assert write_audit_prose(five) == (
        "4 rounds aggregated, 1 kept the old model: ValueError: no idea (1 round). "
        "Sent malformed replies: site-7 (1 norm). Judged by a defense that this audit does not name, mode enforce."
    )
    assert write_audit_headline(Audit([])) == "The audit has no round yet."
    assert write_audit_prose(Audit([])) == ""


def test_a_history_answers_why(five: Audit) -> None:
    assert list(map(write_moment_line, five.history("site-7"))) == [
        "round 1: left out (votes 3.25 against 9 to 12.5, score 4 against 0.5)",
        "round 2: left out (votes 3.25 against 9 to 12.5, score 4 against 0.5)",
        "round 3: elected",
        "round 4: answered, not judged; the old model was kept: ValueError: no idea",
        "round 5: malformed, norm: its update is 1e30 long",
    ]
    assert [write_moment_line(moment) for moment in five.history("site-1")][0::4] == [
        "round 1: elected (votes 9, score 9)",
        "round 5: failed, error: no memory",
    ]
    assert list(map(write_moment_line, five.history("site-8"))) == ["round 1: silent"]
    client = next(each for each in five.clients if each.client == "site-8")
    assert write_client_line(client, five, 1) == (
        "site-8: silent in its last round; silent 1 time, had no part in 4 of 5 rounds."
    )


def test_an_unknown_client_gets_a_suggestion(five: Audit) -> None:
    with pytest.raises(
        SettingError, match=r"^'site7' is not a client of this audit, which has 4; did you mean 'site-7'\?$"
    ):
        five.history("site7")
    with pytest.raises(SettingError, match=r"which has 4$"):
        five.history("\x1b[2J")


def test_the_decision_counts_most_and_a_second_reply_is_said(make_entry: Make) -> None:
    twice = [{"client": "a", "reason": "duplicate", "detail": "it had already answered"}]
    audit = Audit([make_entry(1, answered=["a"], elected=["a"], dropped=twice)])
    (client,) = audit.clients
    assert (client.rounds, client.dropped) == ({"elected": 1}, {"duplicate": 1})
    assert [moment.words for moment in audit.history("a")] == [
        "elected; a reply was dropped, duplicate: it had already answered"
    ]


def test_monitoring_keeps_nobody_out_and_says_so(make_entry: Make) -> None:
    out = {"answered": ["a", "b"], "elected": ["a"], "left_out": ["b"], "averaged": ["a", "b"]}
    watched = [make_entry(number, mode="monitor", **out) for number in (1, 2)]
    every, some = Audit(watched), Audit([*watched, make_entry(3, **out)])
    assert "only watched in every round: there, nobody that could be judged was kept out for real" in write_audit_prose(
        every
    )
    assert "only watched in 2 rounds" in write_audit_prose(some)
    assert [moment.words for moment in some.history("b")] == ["left out; averaged nevertheless"] * 3
    assert "kept out for real" in write_client_line(every.clients[0], every, 2)


def test_a_charge_is_said_of_those_left_out_alone(make_entry: Make) -> None:
    """Of suspects alone, if the audit says who is."""
    facts = {"charge": "leans to class 1 with 14 others", "suspicion": {"a": -1.0, "b": 7.5}}
    out = {"answered": ["a", "b", "c"], "elected": ["a"], "left_out": ["b"], "facts": facts}
    twice = [{"client": "b", "reason": "duplicate", "detail": "it had already answered"}]
    audit = Audit(
        [
            make_entry(1, **out),
            make_entry(2, mode="monitor", averaged=["a", "b"], dropped=twice, **out),
            make_entry(3, version="1", suspects=["b"], **out),
            make_entry(4, version="1", **out),
        ]
    )
    assert list(map(write_moment_line, audit.history("b"))) == [
        "round 1: left out: leans to class 1 with 14 others (suspicion 7.5 against -1)",
        "round 2: left out: leans to class 1 with 14 others; averaged nevertheless; "
        "a reply was dropped, duplicate: it had already answered (suspicion 7.5 against -1)",
        "round 3: suspect: leans to class 1 with 14 others (suspicion 7.5 against -1)",
        "round 4: not needed (suspicion 7.5 against -1)",
    ]
    assert [moment.words for moment in audit.history("a")] == ["elected"] * 4
    assert [moment.words for moment in audit.history("c")] == ["answered, not judged"] * 4
    assert [each["charge"] for each in build_audit_payload(audit)["rounds"]] == [facts["charge"]] * 4


@pytest.mark.parametrize("charge", [None, 5, 0.5, True, [], ["leans"], {"b": "leans"}, {"b": 1.5}, ""])
def test_a_charge_that_is_not_text_is_ignored(charge: Any, make_entry: Make, tmp_path: Path) -> None:
    audit = Audit([make_entry(1, elected=["a"], left_out=["b"], facts={"charge": charge})])
    assert [moment.words for moment in audit.history("b")] == ["left out"]
    assert [each["charge"] for each in build_audit_payload(audit)["rounds"]] == [""]
    check_outputs(audit, tmp_path / "page.html")


@pytest.mark.parametrize(
    "charge", [HOSTILE, "x" * 10**6, "\x1b[2J" * 10**5, "\ud800\r\n\x00\x9b", "{{ 7 * 7 }}", "[red]"]
)
def test_a_hostile_charge_stays_short_visible_and_text(charge: str, make_entry: Make, tmp_path: Path) -> None:
    audit = Audit([make_entry(1, elected=["a"], left_out=["b"], facts={"charge": charge})])
    (moment,) = audit.history("b")
    assert moment.words == f"left out: {escape_text(charge, MAX_CHARGE_CHARS)}"
    assert len(moment.words) <= len("left out: ") + MAX_CHARGE_CHARS + 1
    check_outputs(audit, tmp_path / "page.html")
    outline = Outline((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not [tag for tag, attributes in outline.tags if tag == "img" or "onerror" in attributes]
    assert json.loads(outline.scripts[0])["rounds"][0]["charge"] == escape_text(charge, MAX_CHARGE_CHARS)


def test_rounds_that_start_over_are_all_there_and_said(make_entry: Make) -> None:
    audit = Audit([make_entry(number, elected=["a"]) for number in (1, 2, 2, 3, 1)])
    assert audit.clients[0].rounds == {"elected": 5}
    assert "Rounds start over 2 times" in write_audit_prose(audit)


def test_where_nobody_knows_who_was_asked_the_table_says_so(make_entry: Make) -> None:
    audit = Audit([make_entry(1, answered=["a"], elected=["a"])])
    assert audit.clients[0].asked is None
    assert build_client_table(audit)[1][-1] == "–"  # noqa: RUF001


def test_facts_of_layers_stand_in_where_there_are_no_others(make_entry: Make) -> None:
    layers = {f"votes.{number}": {"a": number} for number in range(20)}
    assert list_fact_names(make_entry(1, facts={**layers, "zeal": {"a": 1}, "score": {"a": 2}, "n": 3})) == [
        "score",
        "zeal",
    ]
    assert len(list_fact_names(make_entry(1, facts=layers))) == MAX_FACTS


@pytest.mark.parametrize("value", [None, "text", [1], {}, 10**400, -(10**400), 1e301])
def test_what_is_no_number_is_no_fact(value: Any, make_entry: Make) -> None:
    audit = Audit([make_entry(1, elected=["a"], left_out=["b"], facts={"votes": {"a": value, "b": value}})])
    assert [moment.facts for moment in audit.history("b")] == [{}]
    assert find_elected_ranges(audit.entries[0]) == {}


def test_strangers_texts_stay_on_their_line_and_obey_nobody() -> None:
    assert escape_text("a\n\x1b[2J\u202eb\ud800") == "a\\n\\x1b[2J\\u202eb\\ud800"
    assert escape_text("é 山") == "é 山"
    assert len(escape_text("x" * 10**6)) == 61


def test_the_summary_is_json(five: Audit) -> None:
    plain = json.loads(json.dumps(five.plain()))
    assert (plain["rounds"], plain["aggregated"], plain["kept"]) == (5, 4, {"ValueError: no idea": 1})
    assert plain["clients"][0] == {
        "client": "site-7", "ids": [], "standing": "malformed", "asked": 5, "answered": 5, "averaged": 0,
        "rounds": {"left_out": 2, "elected": 1, "unjudged": 1, "malformed": 1}, "dropped": {"norm": 1},
        "suspicion": None, "fair_share": pytest.approx(2 / 3), "decision": None,
    }  # fmt: skip
    assert plain["setups"] == [{"round": 1, "defense": "", "settings": {}, "version": "", "mode": "enforce"}]
    assert (plain["suspects"], plain["clarity"]) == ([], {})


def render(audit: Audit, path: Path) -> str:
    write_audit(audit, path)
    return path.read_text(encoding="utf-8")


def test_the_page_needs_nothing_but_itself(five: Audit, tmp_path: Path) -> None:
    page = render(five, tmp_path / "page.html")
    outline = Outline(page)
    assert [value for _, each in outline.tags for name, value in each.items() if name in ("src", "href")] == ["data:,"]
    assert "url(" not in page.split("<style>")[1].split("</style>")[0]
    assert page.count("'sha256-") == 1
    assert "default-src 'none'" in page
    assert "plotly" not in page.lower()
    assert render(five, tmp_path / "again.html") == page


def test_the_page_says_what_the_table_says(five: Audit, tmp_path: Path) -> None:
    page = render(five, tmp_path / "page.html")
    assert f"<h1>{write_audit_headline(five)}</h1>" in page
    table = page.split('<table id="clients">')[1].split("</table>")[0]
    rows = re.findall(r'<tr data-standing="(.*?)"><th scope="row">(.*?)</th><td>(.*?)</td><td>(\d+)</td>', table)
    assert rows == [
        ("malformed", "site-7", "malformed replies", "0"),
        ("failed", "site-1", "failed in its last round", "0"),
        ("silent", "site-8", "silent in its last round", "0"),
        ("fine", "site-2", "nothing against it", "0"),
    ]


def test_the_data_has_every_mark_of_the_grid(five: Audit) -> None:
    data = build_audit_payload(five)
    assert data["clients"] == ["site-7", "site-1", "site-8", "site-2"]
    assert data["rounds"][0]["states"] == {"elected": [1, 3], "left_out": [0], "silent": [2]}
    assert data["rounds"][0]["judged"] == [0, 1, 3]
    assert data["rounds"][0]["facts"] == {"votes": [3.25, 9, 12.5], "score": [4, 9, 0.5]}
    assert data["rounds"][0]["ranges"] == {"votes": [9, 12.5], "score": [0.5, 0.5]}
    assert data["rounds"][3]["states"] == {"unjudged": [1, 3, 0]}
    assert data["rounds"][3]["reason"] == "; the old model was kept: ValueError: no idea"
    assert data["rounds"][4]["states"] == {"elected": [3], "malformed": [0], "failed": [1]}
    assert data["rounds"][4]["dropped"][0] == [0, "norm", "its update is 1e30 long"]


def test_names_cannot_become_code(make_entry: Make, tmp_path: Path) -> None:
    dropped = [{"client": HOSTILE, "reason": HOSTILE, "detail": HOSTILE + "\ud800"}]
    facts = {HOSTILE: {HOSTILE: 1.0}, "__proto__": {HOSTILE: 2.0}}
    named = {"asked": [HOSTILE, "\ud800"], "elected": [HOSTILE], "time": HOSTILE, "facts": facts, "dropped": dropped}
    page = render(Audit([make_entry(1, outcome="kept", reason=HOSTILE, **named)]), tmp_path / "page.html")
    outline = Outline(page)
    assert len(outline.scripts) == 2
    assert not [tag for tag, attributes in outline.tags if tag == "img" or "onerror" in attributes]
    assert "\u2028" not in page
    assert "\x1b" not in page
    assert json.loads(outline.scripts[0])["clients"] == ["\\ud800", escape_text(HOSTILE, 100)]


def test_the_script_never_parses_data_as_markup() -> None:
    script = (Path(__file__).parents[3] / "src/snowball/report/web/assets/audit.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["a", "b", HOSTILE])
)
KEYS = st.sampled_from(["a", "b", "votes"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
FACT_NAMES = st.sampled_from(["charge", "words.x", "clarity.x", "bound.x", "charged.x", "votes", "clusters"])
NAMES = st.lists(st.sampled_from(["a", "b", HOSTILE, "", "\ud800"]), max_size=4)


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_json_anywhere_is_read_or_refused_in_a_sentence(
    make_entry: Make, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("audit")
    fields = ("answered", "silent", "elected", "left_out", "averaged", "suspects")
    lists: dict[str, Any] = {field: data.draw(NAMES) for field in fields}
    lists["ids"] = data.draw(
        st.dictionaries(st.sampled_from(["a", "b", HOSTILE]), st.sampled_from(["a", "c", HOSTILE]))
    )
    lists["version"], lists["defense"] = data.draw(st.sampled_from(["", HOSTILE])), HOSTILE
    lists["settings"], lists["shares"] = data.draw(st.dictionaries(KEYS, VALUES, max_size=2)), {"a": 0.5, HOSTILE: 1}
    rules = st.sampled_from(["allow", "deny", "probation"])
    lists["decisions"] = [
        {"client": name, "rule": data.draw(rules), "reason": HOSTILE, "by": HOSTILE, "until": HOSTILE}
        for name in data.draw(NAMES)
    ]
    line: Any = make_entry(
        data.draw(st.integers(1, 9)),
        facts=data.draw(st.dictionaries(FACT_NAMES | st.text(max_size=3), VALUES, max_size=3)),
        **lists,
    )
    if data.draw(st.booleans()):
        line[data.draw(st.sampled_from(list(line)))] = data.draw(VALUES)
    (folder / "audit").write_text(json.dumps(line) + "\n", encoding="utf-8")
    try:
        audit = Audit(read_audit(folder / "audit"))
    except RunError as error:
        sentence = str(error)
    else:
        sentence = ""
        check_outputs(audit, folder / "page.html")
    assert "\n" not in sentence


def check_outputs(audit: Audit, page: Path) -> None:
    """See that all that is printed is printable, and that the page has its two scripts and no other."""
    assert write_audit_headline(audit)
    assert (write_audit_headline(audit) + write_audit_prose(audit)).isprintable()
    for client in audit.clients:
        assert all(write_moment_line(moment).isprintable() for moment in audit.history(client.client))
        for entry in audit.entries:
            answer = explain_round(audit, client.client, entry["round"])
            assert " ".join([*answer.sentences, *answer.evidence]).isprintable()
            assert json.dumps(asdict(answer))
        rollback = find_rollback(audit, 1, client.client)
        assert write_rollback(rollback, client.label, 1).isprintable()
    for lines in (build_client_table(audit), build_narrow_table(audit)):
        assert all(cell.isprintable() for cells in lines for cell in cells)
    for each in list_contributions(audit, 1):
        assert write_contribution(each).isprintable()
    assert json.dumps(audit.plain())
    assert len(Outline(render(audit, page)).scripts) == 2


def test_a_thousand_rounds_of_fifty_clients_make_a_small_page_fast(make_entry: Make, tmp_path: Path) -> None:
    clients = [f"site-{number}" for number in range(50)]
    entries = []
    for number in range(1000):
        facts = {
            name: {client: number / 7 + place for place, client in enumerate(clients)}
            for name in ("votes", "score", "margin")
        }
        split = number % 40 + 5
        entries.append(
            make_entry(
                number + 1,
                asked=clients,
                answered=clients,
                elected=clients[:split],
                left_out=clients[split:],
                facts=facts,
            )
        )
    start = time.process_time()
    write_audit(Audit(entries), tmp_path / "page.html")
    assert time.process_time() - start < 10
    assert (tmp_path / "page.html").stat().st_size < 5_000_000


def test_the_page_shows_decisions_settings_clarity_ids_and_evidence(make_entry: Make, tmp_path: Path) -> None:
    decision = {"client": "b", "rule": "deny", "reason": "stolen key", "by": "Ada", "until": None}
    facts = {
        "suspicion": {"a": 1.0},
        "clusters": {"a": 1},
        "words.x": "w",
        "clarity.x": 2.0,
        "charged.x": {"a": 1, "b": 0},
    }
    known = {"version": "0.9", "defense": "snowball-plus", "settings": {"remember": 512}, "ids": {"a": "1" * 20}}
    out = {"left_out": ["a"], "suspects": ["a"], "elected": ["c"], "averaged": ["c"], "shares": {"c": 1.0}}
    entries = [
        make_entry(number, silent=["b"], decisions=[decision], clarity=1.5, facts=facts, **known, **out)
        for number in (1, 2)
    ]
    audit = Audit([*entries, make_entry(3, **known)])
    page = render(audit, tmp_path / "page.html")
    assert f'<tr data-standing="suspect"><th scope="row">a ({"1" * 20})</th>' in page
    assert "<td>deny</td><td>stolen key</td><td>Ada</td><td>no end</td><td>1 to 2</td>" in page
    assert "<td>snowball-plus</td><td>0.9</td><td>enforce</td><td>remember = 512</td>" in page
    assert "<dt>suspicion</dt><dd>the sum of all traces of a backdoor in the update; higher is worse</dd>" in page
    assert "-1 is none</dd>" in page
    first, _, last = build_audit_payload(audit)["rounds"]
    index = {name: build_audit_payload(audit)["clients"].index(name) for name in "abc"}
    assert first["ballots"] == [["x", "w", 2, None, [index["a"]]]]
    assert (first["clarity"], first["clear"], last["clear"]) == (1.5, "charged", None)
    assert first["shares"] == {index["c"]: 1}
    assert first["decisions"] == [[index["b"], "denied by Ada: stolen key"]]


def test_only_a_suspect_is_painted_in_the_colour_of_infected_updates() -> None:
    css = (Path(__file__).parents[3] / "src/snowball/report/web/assets/audit.css").read_text(encoding="utf-8")
    marks = dict(re.findall(r"^(?:svg )?\.([\w-]+) \{ (.*) \}$", css.replace(", svg .unjudged", ""), re.MULTILINE))
    assert {name for name, style in marks.items() if "infected" in style} == {"suspect", "clarity-charged"}
    assert set(STATES) - {"unjudged"} <= set(marks)
    assert len({marks[state] for state in STATES if state in marks}) == len(STATES) - 1
