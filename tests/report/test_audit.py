import json
import re
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snowball.errors import RunError, SettingError
from snowball.records.audit import read_audit
from snowball.report import Audit, write_audit
from snowball.report.audit import MAX_CHARGE_CHARS, MAX_FACTS, escape_text, find_elected_ranges, list_fact_names
from snowball.report.audit_prose import write_audit_headline, write_audit_prose, write_client_line, write_moment_line
from snowball.report.web.audit_page import build_audit_payload

Make = Callable[..., dict[str, Any]]
Outline = runpy.run_path(str(Path(__file__).parent / "conftest.py"))["Outline"]
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


def test_every_client_is_counted_and_who_is_left_out_most_comes_first(five: Audit) -> None:
    assert [client.cells() for client in five.clients] == [
        ("site-7", "2", "2", "1", "5", "5", "0", "1 norm"),
        ("site-1", "0", "0", "3", "5", "4", "0", "1 error"),
        ("site-2", "0", "0", "4", "5", "5", "0", "0"),
        ("site-8", "0", "0", "0", "1", "0", "1", "0"),
    ]


def test_the_rounds_in_words(five: Audit) -> None:
    assert write_audit_headline(five) == "4 rounds aggregated, 1 kept the old model."
    assert write_audit_prose(five) == (
        "The old model was kept because: ValueError: no idea (1 round). 4 clients. Left out most: site-7 (2 of 3). "
        "Replies of 2 clients were dropped."
    )
    assert write_audit_headline(Audit([])) == "The audit has no round yet."
    assert write_audit_prose(Audit([])) == ""


def test_a_history_answers_why(five: Audit) -> None:
    assert list(map(write_moment_line, five.history("site-7"))) == [
        "round 1: left out (votes 3.25 against 9 to 12.5, score 4 against 0.5)",
        "round 2: left out (votes 3.25 against 9 to 12.5, score 4 against 0.5)",
        "round 3: elected",
        "round 4: answered, not judged; the old model was kept: ValueError: no idea",
        "round 5: dropped, norm: its update is 1e30 long",
    ]
    assert [write_moment_line(moment) for moment in five.history("site-1")][0::4] == [
        "round 1: elected (votes 9, score 9)",
        "round 5: failed, error: no memory",
    ]
    assert list(map(write_moment_line, five.history("site-8"))) == ["round 1: silent"]
    client = next(each for each in five.clients if each.client == "site-8")
    assert write_client_line(client, five, 1) == (
        "site-8: elected 0 times, left out 0, dropped 0, silent 1, had no part in 4 of 5 rounds."
    )


def test_an_unknown_client_gets_a_suggestion(five: Audit) -> None:
    with pytest.raises(
        SettingError, match=r"^'site7' is not a client of this audit, which has 4; did you mean 'site-7'\?$"
    ):
        five.history("site7")
    with pytest.raises(SettingError, match=r"which has 4$"):
        five.history("\x1b[2J")


def test_only_an_election_ends_a_streak(make_entry: Make) -> None:
    rounds = ["left_out", "", "left_out", "elected", "left_out", "silent"]
    entries = [make_entry(number, **({field: ["a"]} if field else {})) for number, field in enumerate(rounds, 1)]
    (client,) = Audit(entries).clients
    assert (client.left_out, client.streak, client.elected) == (3, 2, 1)


def test_the_decision_counts_most_and_a_second_reply_is_said(make_entry: Make) -> None:
    twice = [{"client": "a", "reason": "duplicate", "detail": "it had already answered"}]
    audit = Audit([make_entry(1, answered=["a"], elected=["a"], dropped=twice)])
    (client,) = audit.clients
    assert (client.elected, client.dropped) == (1, {"duplicate": 1})
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
    assert [moment.words for moment in some.history("b")] == ["would have been left out, but was averaged"] * 2 + [
        "left out"
    ]
    assert "kept out for real" in write_client_line(every.clients[0], every, 2)


def test_a_charge_is_said_of_those_left_out_alone(make_entry: Make) -> None:
    facts = {"charge": "leans to class 1 with 14 others", "suspicion": {"a": -1.0, "b": 7.5}}
    out = {"answered": ["a", "b", "c"], "elected": ["a"], "left_out": ["b"], "facts": facts}
    twice = [{"client": "b", "reason": "duplicate", "detail": "it had already answered"}]
    audit = Audit([make_entry(1, **out), make_entry(2, mode="monitor", dropped=twice, **out)])
    assert list(map(write_moment_line, audit.history("b"))) == [
        "round 1: left out: leans to class 1 with 14 others (suspicion 7.5 against -1)",
        "round 2: would have been left out, but was averaged: leans to class 1 with 14 others; "
        "a reply was dropped, duplicate: it had already answered (suspicion 7.5 against -1)",
    ]
    assert [moment.words for moment in audit.history("a")] == ["elected"] * 2
    assert [moment.words for moment in audit.history("c")] == ["answered, not judged"] * 2
    assert [each["charge"] for each in build_audit_payload(audit)["rounds"]] == [facts["charge"]] * 2


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
    assert audit.clients[0].elected == 5
    assert "Rounds start over 2 times" in write_audit_prose(audit)


def test_where_nobody_knows_who_was_asked_the_table_says_so(make_entry: Make) -> None:
    (client,) = Audit([make_entry(1, answered=["a"], elected=["a"])]).clients
    assert client.asked is None
    assert client.cells()[4] == "–"  # noqa: RUF001


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
        "client": "site-7", "asked": 5, "answered": 5, "silent": 0, "dropped": {"norm": 1}, "elected": 1, "left_out": 2,
        "streak": 2,
    }  # fmt: skip


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
    assert "<h1>4 rounds aggregated, 1 kept the old model.</h1>" in page
    table = page.split('<table id="clients">')[1].split("</table>")[0]
    assert re.findall(r'<th scope="row">(.*?)</th><td>(\d+)</td>', table) == [
        ("site-7", "2"),
        ("site-1", "0"),
        ("site-2", "0"),
        ("site-8", "0"),
    ]


def test_the_data_has_every_mark_of_the_grid(five: Audit) -> None:
    data = build_audit_payload(five)
    assert data["clients"] == ["site-7", "site-1", "site-2", "site-8"]
    assert data["rounds"][0]["states"] == {"elected": [1, 2], "left_out": [0], "silent": [3]}
    assert data["rounds"][0]["facts"] == {"votes": [9, 12.5, 3.25], "score": [9, 0.5, 4]}
    assert data["rounds"][0]["ranges"] == {"votes": [9, 12.5], "score": [0.5, 0.5]}
    assert data["rounds"][3]["states"] == {"unjudged": [1, 2, 0]}
    assert data["rounds"][3]["kept"] == "ValueError: no idea"
    assert data["rounds"][4]["states"] == {"elected": [2], "dropped": [0], "failed": [1]}
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
    assert json.loads(outline.scripts[0])["clients"][0] == escape_text(HOSTILE)


def test_the_script_never_parses_data_as_markup() -> None:
    script = (Path(__file__).parents[2] / "src/snowball/report/web/assets/audit.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["a", "b", HOSTILE])
)
KEYS = st.sampled_from(["a", "b", "votes"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
NAMES = st.lists(st.sampled_from(["a", "b", HOSTILE, "", "\ud800"]), max_size=4)


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_json_anywhere_is_read_or_refused_in_a_sentence(
    make_entry: Make, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("audit")
    lists = {field: data.draw(NAMES) for field in ("answered", "silent", "elected", "left_out", "averaged")}
    line: Any = make_entry(
        data.draw(st.integers(1, 9)),
        facts=data.draw(st.dictionaries(st.just("charge") | st.text(max_size=3), VALUES, max_size=3)),
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
        assert all(cell.isprintable() for cell in client.cells())
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
