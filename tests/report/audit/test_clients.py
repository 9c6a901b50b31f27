"""The audit does not accuse the honest, and names those whom a defense accuses."""

from collections.abc import Callable
from typing import Any

from snowball.records.states import STATES, classify_clients
from snowball.report import Audit
from snowball.report.audit.clients import CLEARED_AFTER
from snowball.report.audit.prose import write_audit_headline, write_audit_prose, write_standing

Make = Callable[..., dict[str, Any]]
SITES = [f"site-{number:02}" for number in range(20)]
NAN = {"client": "site-19", "reason": "not-finite", "detail": "'fc1.weight' holds NaN"}


def make_judged(make_entry: Make, number: int, left_out: list[str], **changes: Any) -> dict[str, Any]:
    """A round of twenty sites, of which these are left out."""
    elected = [site for site in changes.pop("answered", SITES) if site not in left_out]
    judged = {"answered": SITES, "asked": SITES, "elected": elected, "left_out": left_out, "averaged": elected}
    return make_entry(number, **({"version": "1", "defense": "snowball"} | judged | changes))


def test_an_honest_site_that_is_never_needed_does_not_stand_beside_the_attacker(make_entry: Make) -> None:
    """In 40 of 40 rounds both are left out, but only the attacker on evidence."""
    audit = Audit(
        [
            make_judged(make_entry, number, ["site-03", "site-07"], suspects=["site-07"], clarity=1.4)
            for number in range(1, 41)
        ]
    )
    first, *others = audit.clients
    assert (first.client, first.standing, first.rounds) == ("site-07", "suspect", {"suspect": 40})
    honest = next(client for client in others if client.client == "site-03")
    assert honest.rounds == {"not_needed": 40}
    assert honest.standing == "often"
    assert "suspect" not in write_standing(honest)
    assert write_audit_headline(audit) == "site-07 has been suspect since round 1, in 40 of 40 rounds."
    assert "Left out far more often than others: site-03 (40 rounds, about 2 by chance)" in write_audit_prose(audit)


def test_a_site_that_sent_nan_comes_before_all_that_did_nothing(make_entry: Make) -> None:
    """The other sites take turns in being left out."""
    entries = []
    for number in range(1, 41):
        bad = [NAN] if number in (3, 17, 29) else []
        left_out = [SITES[(number + place) % 19] for place in range(9)]
        present = SITES[:19] if bad else SITES
        entries.append(make_judged(make_entry, number, left_out, answered=present, dropped=bad))
    audit = Audit(entries)
    assert (audit.clients[0].client, audit.clients[0].standing) == ("site-19", "malformed")
    assert audit.clients[0].rounds["malformed"] == 3
    assert {client.standing for client in audit.clients[1:]} == {"fine"}
    assert (
        write_audit_headline(audit) == "Nobody is suspect: snowball prefers some updates to others and accuses nobody."
    )
    assert "Sent malformed replies: site-19 (3 not-finite)." in write_audit_prose(audit)


def test_suspects_come_first_then_evidence_then_decisions_and_silence(make_entry: Make) -> None:
    decisions = [
        {"client": "denied", "rule": "deny", "reason": "stolen key", "by": "Ada", "until": None},
        {"client": "new", "rule": "probation", "reason": "new here", "by": "Ada", "until": "2027-01-01"},
    ]
    dropped = [
        {"client": "denied", "reason": "denied", "detail": "Ada decided: stolen key"},
        {"client": "broken", "reason": "norm", "detail": "too long"},
        {"client": "down", "reason": "error", "detail": "no memory"},
    ]
    entry = make_entry(
        1, version="1", decisions=decisions, dropped=dropped, silent=["gone"], elected=["fine", "new"],
        left_out=["bad", "spare"], suspects=["bad"], averaged=["fine"],
    )  # fmt: skip
    assert classify_clients(entry) == {
        "gone": "silent", "denied": "denied", "broken": "malformed", "down": "failed", "bad": "suspect",
        "spare": "not_needed", "fine": "elected", "new": "probation",
    }  # fmt: skip
    assert [(client.client, client.standing) for client in Audit([entry]).clients] == [
        ("bad", "suspect"), ("broken", "malformed"), ("denied", "denied"), ("new", "probation"), ("down", "failed"),
        ("gone", "silent"), ("fine", "fine"), ("spare", "fine"),
    ]  # fmt: skip


def test_every_reason_and_election_has_a_state_with_words_of_its_own(make_entry: Make) -> None:
    assert len(set(STATES.values())) == len(STATES)
    dropped = [{"client": "a", "reason": "something new", "detail": ""}]
    assert classify_clients(make_entry(1, dropped=dropped)) == {"a": "dropped"}
    assert classify_clients(make_entry(1, left_out=["a"], elected=["a"], suspects=["a"])) == {"a": "elected"}
    assert classify_clients(make_entry(1, suspects=["a"])) == {}
    assert classify_clients(make_entry(1, left_out=["a"], suspects=["a"])) == {"a": "suspect"}


def judge(make_entry: Make, states: str) -> Audit:
    """An audit of one client that is suspect (s), elected (e) or silent (-) in a round, beside others that are fine."""
    fields = {"s": {"left_out": ["a"], "suspects": ["a"]}, "e": {"elected": ["a"]}, "-": {"silent": ["a"]}}
    return Audit([make_entry(number, version="1", **fields[state]) for number, state in enumerate(states, 1)])


def test_only_rounds_in_which_it_is_judged_and_not_suspect_end_a_suspicion(make_entry: Make) -> None:
    (client,) = judge(make_entry, "ee" + "ses" + "-" * 20 + "ee").clients
    assert client.suspicion is not None
    assert (client.suspicion.first, client.suspicion.last, client.suspicion.stands) == (3, 5, True)
    assert (client.suspicion.suspect, client.suspicion.judged) == (2, 5)
    audit = judge(make_entry, "ss" + "e" * CLEARED_AFTER)
    assert audit.clients[0].standing == "cleared"
    assert write_audit_headline(audit) == "Nobody is suspect."
    assert "No longer suspect: a (last in round 2)." in write_audit_prose(audit)
    (again,) = judge(make_entry, "ss" + "e" * CLEARED_AFTER + "es").clients
    assert again.suspicion is not None
    assert (again.standing, again.suspicion.first, again.rounds["suspect"]) == ("suspect", 9, 3)


def test_a_few_suspects_are_named_and_the_others_counted(make_entry: Make) -> None:
    many = [f"bad-{number}" for number in range(6)]
    audit = Audit([make_entry(7, version="1", left_out=many, suspects=many, elected=["a"])])
    assert write_audit_headline(audit) == (
        "bad-0 has been suspect since round 7, in 1 of 1 round; bad-1 since round 7, in 1 of 1 round; "
        "bad-2 since round 7, in 1 of 1 round; 3 other clients are suspect, too."
    )


def test_rounds_of_an_earlier_version_accuse_nobody(make_entry: Make) -> None:
    old = [make_judged(make_entry, number, ["site-07"], version="", defense="") for number in range(1, 31)]
    audit = Audit(old)
    assert write_audit_headline(audit).startswith("This audit is of an earlier version")
    assert (audit.clients[0].client, audit.clients[0].standing) == ("site-07", "often")
    assert {client.rounds.get("suspect") for client in audit.clients} == {None}
    both = Audit([*old, make_judged(make_entry, 31, ["site-07"], suspects=["site-07"])])
    assert write_audit_headline(both) == "site-07 has been suspect since round 31, in 1 of 1 round."
    assert "30 rounds of an earlier version do not say whether anybody was left out on evidence." in write_audit_prose(
        both
    )


def test_how_clear_the_last_rounds_were_and_why_models_were_kept(make_entry: Make) -> None:
    clear = [make_entry(number, version="1", elected=["a"], clarity=clarity) for number, clarity in
             enumerate([9.0, 1.0, 0.9, 0.8, 0.79, 0.0, 1.2, 0.5, 0.5, 0.5, 0.5], 1)]  # fmt: skip
    low = "3 of 8 answered, and 4 are needed"
    kept = [make_entry(12, version="1", outcome="kept", reason=low, clarity=None)]
    remark = make_entry(13, version="1", reason="averaged all the same", elected=["a"])
    audit = Audit([*clear, *kept, remark])
    assert audit.clarity == {"charged": 1, "unclear": 1, "calm": 6}
    prose = write_audit_prose(audit)
    assert "Somebody was charged in 1 of the last 10 rounds; 1 was unclear." in prose
    assert f"12 rounds aggregated, 1 kept the old model: {low} (1 round)." in prose
    assert "Remarks: averaged all the same (1 round)." in prose
    assert Audit([kept[0]]).clarity == {}


def test_changes_of_the_defense_are_noted(make_entry: Make) -> None:
    first = {"version": "1", "defense": "snowball", "settings": {"target_share": 0.5, "layers": "ends"}}
    plus = {"version": "1", "defense": "snowball-plus", "settings": {}}
    entries = [
        make_entry(1, mode="monitor", **first),
        make_entry(2, **first),
        make_entry(3, **(first | {"settings": {"target_share": 0.3, "layers": "ends"}})),
        make_entry(31, **plus),
        make_entry(32, **plus),
        make_entry(40, **(plus | {"version": "2"})),
    ]
    audit = Audit(entries)
    assert [setup.round for setup in audit.setups] == [1, 2, 3, 31, 40]
    assert write_audit_prose(audit).endswith(
        "Judged by snowball, version 1, mode monitor; 1 earlier change; from round 3 on: target_share = 0.3; "
        "from round 31 on: snowball-plus; from round 40 on: version 2."
    )
    assert "from round 2 on: mode enforce" in write_audit_prose(Audit(entries[:2]))
