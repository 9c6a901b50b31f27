import logging
import runpy
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball.defenses import Context, FedAvg, FoolsGold, Krum, Median, MultiKrum, SnowballPlus, TrimmedMean, Verdict
from snowball.defenses.ops import average_by_examples
from snowball.errors import SettingError
from snowball.guard import Guard, Judgement, Reply
from snowball.guard.audit_log import AuditLog
from snowball.guard.decisions import find_in_force, parse_decisions
from snowball.updates import Updates

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply = SHARED["MODEL"], SHARED["make_honest_reply"]
TODAY = datetime.now(UTC).date()


def write_decisions(file: Path, *decisions: tuple[str, str, date | None]) -> Path:
    """Write a file with these sites, rules and last days."""
    file.write_text(
        "# decisions of people\n"
        + "".join(
            f'[[decision]]\nsite = "{site}"\nrule = "{rule}"\nreason = "as agreed"\nby = "M. Weber"\n'
            + (f"until = {until.isoformat()}\n" if until else "")
            for site, rule, until in decisions
        )
    )
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_decisions(tmp_path / "decisions.toml")


def have_same_model(one: Judgement, other: Judgement) -> bool:
    return all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def leave_out(*clients: str, accuse: bool = True) -> Any:
    """Return a defense that averages all but these clients, whom it accuses."""

    def judge(updates: Updates, context: Context) -> Verdict:
        elected = torch.tensor([client not in clients for client in updates.clients])
        mean = average_by_examples(updates, elected)
        return Verdict(mean, elected, {"rows": len(updates)}, {"rows": len(updates)}, ~elected if accuse else None)

    return judge


def test_a_denied_site_is_dropped_before_it_is_judged(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-03", "deny", None))
    asked = [reply.client for reply in replies]
    judgement = Guard(FoolsGold(), decisions=file)(MODEL, replies, asked)
    assert have_same_model(judgement, Guard(FoolsGold())(MODEL, [*replies[:3], *replies[4:]]))
    assert judgement.entry["dropped"] == [
        {"client": "site-03", "reason": "denied", "detail": "M. Weber decided: as agreed"}
    ]
    assert judgement.entry["decisions"] == [
        {"client": "site-03", "rule": "deny", "reason": "as agreed", "by": "M. Weber", "until": None}
    ]
    assert "site-03" in judgement.entry["answered"]


def test_a_denied_site_can_do_no_harm_with_what_it_sends(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-99", "deny", None))
    hostile = [Reply("site-99", 1e12, SHARED["Raising"]()), Reply("site-99", None, None)]
    judgement = Guard(FedAvg(), decisions=file)(MODEL, [*hostile, *replies])
    assert have_same_model(judgement, Guard(FedAvg())(MODEL, replies))
    assert [fault["reason"] for fault in judgement.entry["dropped"]] == ["denied", "denied"]


def test_denied_sites_do_not_count_as_asked(file: Path, replies: list[Reply]) -> None:
    asked = [reply.client for reply in replies]
    guard = Guard(FedAvg(), decisions=file, min_answers=1)
    assert guard(MODEL, replies[:4], asked).kept
    write_decisions(file, *((client, "deny", None) for client in asked[4:]))
    assert not guard(MODEL, replies[:4], asked).kept


@pytest.mark.parametrize("defense", [FedAvg(), Median(), TrimmedMean(1), SnowballPlus(), Krum(), MultiKrum(elect=5)])
def test_a_site_on_probation_is_judged_and_never_averaged(defense: Any, file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-03", "probation", None), ("site-04", "probation", None))
    judgement = Guard(defense, seed=1, decisions=file)(MODEL, replies)
    expected = Guard(defense, seed=1)(MODEL, [*replies[:3], *replies[5:]])
    assert not {"site-03", "site-04"} & set(judgement.averaged)
    assert {"site-03", "site-04"} <= {*judgement.entry["elected"], *judgement.entry["left_out"]}
    if {"site-03", "site-04"} & set(judgement.entry["elected"]):
        assert judgement.averaged == expected.averaged
        assert have_same_model(judgement, expected)


def test_if_krum_elects_a_site_on_probation_it_elects_another_one(file: Path, replies: list[Reply]) -> None:
    (first,) = Guard(Krum(), seed=1)(MODEL, replies).averaged
    write_decisions(file, (first, "probation", None))
    judgement = Guard(Krum(), seed=1, decisions=file)(MODEL, replies)
    assert judgement.entry["elected"] == [first]
    assert (
        judgement.averaged == Guard(Krum(), seed=1)(MODEL, [each for each in replies if each.client != first]).averaged
    )


def test_probation_changes_neither_evidence_nor_memory(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-03", "probation", None))
    guard = Guard(leave_out("site-05"), decisions=file)
    judgement = guard(MODEL, replies)
    assert judgement.entry["facts"] == {"rows": 8}
    assert guard.state == {"rows": 8}
    assert judgement.entry["suspects"] == ["site-05"]


def test_whom_the_defense_accuses_does_not_come_back_through_anothers_probation(
    file: Path, replies: list[Reply]
) -> None:
    def accuse_with_all(updates: Updates, context: Context) -> Verdict:
        return leave_out(*(["site-05"] if len(updates) == 8 else []))(updates, context)

    write_decisions(file, ("site-03", "probation", None))
    judgement = Guard(accuse_with_all, decisions=file)(MODEL, replies)
    assert judgement.averaged == ("site-00", "site-01", "site-02", "site-04", "site-06", "site-07")


def test_a_site_on_probation_that_is_left_out_changes_nothing(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-05", "probation", None))
    judgement = Guard(leave_out("site-05"), decisions=file)(MODEL, replies)
    assert have_same_model(judgement, Guard(leave_out("site-05"))(MODEL, replies))


def test_if_all_are_on_probation_the_model_stays(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, *((reply.client, "probation", None) for reply in replies))
    for mode in ("enforce", "monitor"):
        assert Guard(FedAvg(), mode, decisions=file)(MODEL, replies).kept  # type: ignore[arg-type]


def test_an_allowed_site_is_averaged_by_its_examples(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-05", "allow", None))
    judgement = Guard(leave_out("site-05", "site-06"), decisions=file)(MODEL, replies)
    assert judgement.entry["left_out"] == ["site-05", "site-06"]
    assert judgement.averaged == tuple(reply.client for reply in replies if reply.client != "site-06")
    expected = Guard(FedAvg())(MODEL, [*replies[:6], replies[7]])
    for name, tensor in expected.tensors.items():
        torch.testing.assert_close(judgement.tensors[name], tensor, rtol=0, atol=2e-3)  # none is longer than the median


def test_an_allowed_site_is_no_longer_than_the_median_of_the_elected(file: Path) -> None:
    model = {"weight": torch.zeros(2, 2)}
    replies = [Reply(f"site-{number}", 10, {"weight": torch.eye(2) * (1 + number * 2**-23)}) for number in range(4)]
    far = Reply("site-9", 10, {"weight": -100 * torch.eye(2)})
    write_decisions(file, ("site-9", "allow", None))
    judgement = Guard(leave_out("site-9"), decisions=file)(model, [*replies, far])
    torch.testing.assert_close(judgement.tensors["weight"], torch.eye(2) * 3 / 5)


def state_shares(*clients: str) -> Any:
    """Return a defense that leaves clients out and states the shares of the others."""

    def judge(updates: Updates, context: Context) -> Verdict:
        verdict = leave_out(*clients)(updates, context)
        return replace(verdict, facts={"shares": updates.normalise(updates.examples * verdict.elected)})

    return judge


def test_the_shares_in_the_audit_are_those_of_the_average(file: Path) -> None:
    model = {"weight": torch.zeros(2, 2)}
    replies = [Reply(f"site-{number}", 10, {"weight": torch.eye(2) * number}) for number in (1, 2, 3, 4)]
    write_decisions(file, ("site-1", "probation", None), ("site-4", "allow", None))
    judgement = Guard(state_shares("site-4"), decisions=file, max_share=0.9)(model, replies)
    assert judgement.entry["shares"] == pytest.approx({"site-2": 1 / 3, "site-3": 1 / 3, "site-4": 1 / 3})
    torch.testing.assert_close(judgement.tensors["weight"], torch.eye(2) * (2 + 3 + 2.5) / 3)
    assert judgement.examples == pytest.approx({"site-2": 10, "site-3": 10, "site-4": 10})


def test_an_allowed_site_has_no_larger_share_than_any_other(file: Path) -> None:
    model = {"weight": torch.zeros(2, 2)}
    replies = [Reply(f"site-{number}", 10, {"weight": torch.eye(2) * (1 + number * 2**-23)}) for number in range(4)]
    large = Reply("site-9", 900, {"weight": -torch.eye(2)})
    write_decisions(file, ("site-9", "allow", None))
    judgement = Guard(state_shares("site-9"), decisions=file, max_share=0.3)(model, [*replies, large])
    assert judgement.entry["shares"]["site-9"] == pytest.approx(0.3)
    torch.testing.assert_close(judgement.tensors["weight"], torch.eye(2) * 0.4)


def test_an_allowed_site_is_still_validated(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-99", "allow", None))
    judgement = Guard(FedAvg(), decisions=file)(MODEL, [*replies, Reply("site-99", 20, {})])
    assert judgement.entry["dropped"][0]["reason"] == "names"
    assert have_same_model(judgement, Guard(FedAvg())(MODEL, replies))


def test_monitoring_obeys_people_too(file: Path, replies: list[Reply]) -> None:
    write_decisions(file, ("site-01", "deny", None), ("site-02", "probation", None), ("site-05", "allow", None))
    judgement = Guard(leave_out("site-05"), "monitor", decisions=file)(MODEL, replies)
    assert have_same_model(judgement, Guard(FedAvg())(MODEL, [replies[0], *replies[3:]]))
    assert judgement.entry["left_out"] == ["site-05"]
    assert "site-02" in judgement.entry["elected"]
    assert sorted(judgement.entry["shares"]) == judgement.entry["averaged"]
    assert sum(judgement.entry["shares"].values()) == pytest.approx(1)


def test_an_honest_sites_way_back(file: Path, tmp_path: Path, replies: list[Reply]) -> None:
    guard = Guard(FedAvg(), decisions=file, audit=tmp_path / "audit.jsonl")
    for rule in ("deny", "probation", None):
        write_decisions(file, *([("site-03", rule, None)] if rule else []))
        guard(MODEL, replies)
    denied, watched, back = AuditLog(tmp_path / "audit.jsonl").read_entries()
    assert [fault["reason"] for fault in denied["dropped"]] == ["denied"]
    assert [decision["rule"] for decision in denied["decisions"]] == ["deny"]
    assert "site-03" in watched["elected"]
    assert "site-03" not in watched["averaged"]
    assert [decision["rule"] for decision in watched["decisions"]] == ["probation"]
    assert "site-03" in back["averaged"]
    assert (back["dropped"], back["decisions"]) == ([], [])


def test_a_way_back_may_be_written_down_in_advance() -> None:
    plan = {"decision": [
        {"site": "Ulm", "rule": "probation", "reason": "watch", "by": "M", "until": date(2030, 2, 28)},
        {"site": "Ulm", "rule": "deny", "reason": "broken", "by": "M", "until": date(2030, 1, 31)},
    ]}  # fmt: skip
    days = [date(2030, 1, 31), date(2030, 2, 1), date(2030, 2, 28), date(2030, 3, 1)]
    found = [find_in_force(parse_decisions(plan), {}, day) for day in days]
    assert [each["Ulm"]["rule"] if each else None for each in found] == ["deny", "probation", "probation", None]


def test_expired_decisions_are_not_in_force_and_the_last_day_counts(file: Path, replies: list[Reply]) -> None:
    write_decisions(
        file, ("site-01", "deny", TODAY - timedelta(days=2)), ("site-02", "deny", TODAY + timedelta(days=1))
    )
    entry = Guard(FedAvg(), decisions=file)(MODEL, replies).entry
    assert [(decision["client"], decision["until"]) for decision in entry["decisions"]] == [
        ("site-02", (TODAY + timedelta(days=1)).isoformat())
    ]


def test_a_broken_file_leaves_the_decisions_in_force(
    file: Path, replies: list[Reply], caplog: pytest.LogCaptureFixture
) -> None:
    write_decisions(file, ("site-03", "deny", None))
    guard = Guard(FedAvg(), decisions=file)
    file.write_text("[[decision]]\nsite = ")
    with caplog.at_level(logging.WARNING, "snowball"):
        assert "site-03" not in guard(MODEL, replies).averaged
    assert "decisions.toml is not a TOML file" in caplog.text
    file.write_text("# all is well")
    assert "site-03" in guard(MODEL, replies).averaged


def test_decisions_name_sites_as_the_operator_does_or_by_their_ids(file: Path, tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text('[sites]\n"site-00" = "Ulm"\n"site-01" = "Bonn"\n"site-02" = "site-00"')
    replies = [make_honest_reply(number) for number in range(4)]
    write_decisions(file, ("Ulm", "deny", None), ("site-01", "deny", None))
    guard = Guard(FedAvg(), names=tmp_path / "sites.toml", decisions=file)
    judgement = guard(MODEL, replies)
    assert judgement.averaged == ("site-02", "site-03")
    assert [decision["client"] for decision in judgement.entry["decisions"]] == ["Bonn", "Ulm"]
    write_decisions(file, ("site-00", "deny", None))  # a name counts before an id
    assert guard(MODEL, replies).averaged == ("site-01", "site-00", "site-03")


def test_a_site_that_nobody_has_is_a_warning(file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "sites.toml").write_text('[sites]\n"site-00" = "Ulm"')
    write_decisions(file, ("Ulms", "deny", None), ("Ulm", "allow", None), ("site-01", "allow", None))
    replies = [make_honest_reply(number) for number in range(4)]
    with caplog.at_level(logging.WARNING, "snowball"):
        Guard(FedAvg(), names=tmp_path / "sites.toml", decisions=file)(MODEL, replies)
    sentence = "a decision is about 'Ulms', whom the file of names lacks and who takes no part in this round"
    assert [(record.name, record.message) for record in caplog.records] == [("snowball", sentence)]


GOOD: dict[str, Any] = {"site": "Ulm", "rule": "deny", "reason": "it is broken", "by": "M. Weber"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a table": ({"decision": GOOD}, "tables [[decision]]"),
    "another table": ({"decisions": [GOOD]}, "tables [[decision]]"),
    "a number": ({"decision": [1]}, "decision 1 must be a table"),
    "no reason": ({"decision": [{"site": "Ulm", "rule": "deny", "by": "M"}]}, "decision 1 lacks reason"),
    "a misspelt field": ({"decision": [GOOD, {**GOOD, "untill": "x"}]}, "decision 2 has 'untill', expected site, rule"),
    "an unknown rule": ({"decision": [{**GOOD, "rule": "ban"}]}, "one of allow, deny, probation, got 'ban'"),
    "a list for a rule": ({"decision": [{**GOOD, "rule": ["deny"]}]}, "one of allow, deny, probation"),
    "a number for a site": ({"decision": [{**GOOD, "site": 7}]}, "the site of decision 1 must be a printable text"),
    "an empty reason": ({"decision": [{**GOOD, "reason": ""}]}, "the reason of decision 1 must be"),
    "a long reason": ({"decision": [{**GOOD, "reason": "x" * 301}]}, "1 to 300 characters"),
    "an escape": ({"decision": [{**GOOD, "by": "\x1b[2J"}]}, "by in decision 1 must be a printable text"),
    "a text for a day": ({"decision": [{**GOOD, "until": "2030-01-01"}]}, "must be a day such as 2026-09-30"),
    "a time for a day": ({"decision": [{**GOOD, "until": datetime(2030, 1, 1, tzinfo=UTC)}]}, "must be a day"),
}


@pytest.mark.parametrize("case", BAD)
def test_decisions_that_are_not_understood_are_refused(case: str) -> None:
    content, words = BAD[case]
    with pytest.raises(SettingError) as caught:
        parse_decisions(content)
    assert words in str(caught.value)


def test_they_are_refused_when_the_guard_is_made(file: Path) -> None:
    file.write_text('[[decision]]\nsite = "Ulm"')
    with pytest.raises(SettingError, match=r"decisions\.toml cannot be used: decision 1 lacks rule, reason, by"):
        Guard(decisions=file)


RULES = st.sampled_from(["allow", "deny", "probation"])


@settings(max_examples=40, deadline=None, database=None)
@given(rules=st.dictionaries(st.integers(0, 7), RULES), out=st.sets(st.integers(0, 7)), monitor=st.booleans())
def test_whatever_people_decide_the_average_follows_the_rules(
    rules: dict[int, str], out: set[int], monitor: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("rules") / "decisions.toml"
    write_decisions(file, *((f"site-{site:02}", rule, None) for site, rule in rules.items()))
    replies = [make_honest_reply(number) for number in range(8)]
    defense = leave_out(*(f"site-{site:02}" for site in out), accuse=False)
    judgement = Guard(defense, "monitor" if monitor else "enforce", decisions=file)(MODEL, replies)
    averaged = {f"site-{site:02}" for site in range(8) if rules.get(site) not in ("deny", "probation")}
    if not monitor:
        averaged -= {f"site-{site:02}" for site in out if rules.get(site) != "allow"}
    if averaged:
        assert set(judgement.averaged) == averaged
        assert all(tensor.isfinite().all() for tensor in judgement.tensors.values())
    else:
        assert judgement.kept
