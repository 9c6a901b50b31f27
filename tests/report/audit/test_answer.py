"""Why was a client left out in a round? Two sentences, whatever happened."""

from collections.abc import Callable
from typing import Any

import pytest

from snowball.errors import SettingError
from snowball.records.states import STATES
from snowball.report import Audit
from snowball.report.audit.answer import explain_round

Make = Callable[..., dict[str, Any]]
ALLOWED = {"client": "a", "rule": "allow", "reason": "rare data", "by": "Ada", "until": "2027-01-01"}


def answer(entry: dict[str, Any], client: str = "a") -> str:
    """The sentences about a client, in a round of this version by Snowball unless the round says otherwise."""
    known = {"version": "1", "defense": "snowball"} if not entry["defense"] else {}
    other = {**entry, **known, "round": 2, "asked": None, "silent": ["a", "b"]}
    return " ".join(explain_round(Audit([other, entry | known]), client, entry["round"]).sentences)


def test_fewer_votes_are_worse(make_entry: Make) -> None:
    facts = {"votes": {"a": 6, "b": 15, "c": 17.5}, "score": {"a": 3.963, "b": 0.2154, "c": 0.2567}}
    entry = make_entry(31, left_out=["a"], elected=["b", "c"], facts=facts)
    assert answer(entry) == (
        "a was not needed in round 31: snowball elected 2 of 3 and does not accuse the others. "
        "It had votes 6, the elected had 15 or more; fewer is worse (votes that the updates gave this one)."
    )
    found = explain_round(Audit([entry | {"version": "1", "defense": "snowball"}]), "a", 31).findings
    assert [finding.words for finding in found] == [
        "votes 6, the elected had 15 or more; fewer is worse",
        "score 3.963, the elected had 0.2567 or less; higher is worse",
    ]


def test_a_suspect_is_answered_with_the_evidence_of_each_ballot(make_entry: Make) -> None:
    facts = {
        "charge": "leans to class 1 with 2 others; moves with 3 others in fc1.weight",
        "suspicion": {"a": 9.31, "b": 1.02, "c": -3.846},
        "words.crowd": "leans to class 1 with 2 others", "clarity.crowd": 5.3, "bound.crowd": 4.8,
        "charged.crowd": {"a": 1, "b": 0, "c": 0},
        "words.split": "moves with 3 others in fc1.weight", "clarity.split": 11.5, "bound.split": 11.0,
        "charged.split": {"a": 0, "b": 1, "c": 0},
        "words.position": "rewires position 35", "clarity.position": 1.0, "bound.position": 3.5,
        "charged.position": {"a": 0, "b": 0, "c": 0}, "clarity.older": 4.0,
    }  # fmt: skip
    out = {"left_out": ["a"], "suspects": ["a"], "elected": ["b", "c"], "defense": "snowball-plus", "version": "1"}
    entry = make_entry(12, clarity=1.1, facts=facts, **out)
    found = explain_round(Audit([entry]), "a", 12)
    assert found.sentences == [
        "a was suspect in round 12 and left out: leans to class 1 with 2 others.",
        "It had suspicion 9.31, the elected had 1.02 or less; higher is worse "
        "(the sum of all traces of a backdoor in the update).",
    ]
    assert found.evidence == [
        "crowd charged it: leans to class 1 with 2 others (clarity 5.3, charges from 4.8 on; higher is worse)",
        "split charged others: moves with 3 others in fc1.weight (clarity 11.5, charges from 11 on; higher is worse)",
        "position charged nobody: rewires position 35 (clarity 1, charges from 3.5 on; higher is worse)",
        "older does not say whom it charged (clarity 4)",
    ]
    assert (found.state, found.clarity, found.defense) == ("suspect", 1.1, "snowball-plus")
    without = entry | {"facts": {"charge": "leans to class 1"}}
    assert explain_round(Audit([without]), "a", 12).sentences == [
        "a was suspect in round 12 and left out: leans to class 1.",
        "The defense reports no number for it.",
    ]
    assert "fldetector does not say more in words" in answer(entry | {"facts": {}, "defense": "fldetector"})


def test_a_number_that_does_not_tell_is_said_to_not_tell(make_entry: Make) -> None:
    entry = make_entry(1, left_out=["a"], elected=["b"], facts={"norms": {"a": 2.0, "b": 2.5}})
    assert "norms 2, the elected had 2.5; longer is worse, so it does not stand out by this" in answer(entry)
    labels = make_entry(1, left_out=["a"], elected=["b"], facts={"clusters": {"a": -1, "b": 0}})
    assert "It had clusters -1, the elected had 0 (" in answer(labels)
    unknown = make_entry(1, left_out=["a"], elected=["b", "c"], facts={"zeal": {"a": 1, "b": 2, "c": 3}})
    assert answer(unknown).endswith("It had zeal 1, the elected had 2 to 3.")


PARTS: dict[str | None, tuple[dict[str, Any], str]] = {
    "suspect": (
        {"left_out": ["a"], "suspects": ["a"], "averaged": ["a"], "decisions": [ALLOWED], "facts": {"charge": "leans"}},
        "a was suspect in round 5, but averaged (allowed until 2027-01-01 by Ada: rare data): leans. "
        "The defense reports no number for it.",
    ),
    "malformed": (
        {"dropped": [{"client": "a", "reason": "not-finite", "detail": "'w' holds NaN"}]},
        "a sent a malformed reply in round 5: a tensor holds NaN or infinite numbers ('w' holds NaN). "
        "It was dropped before anything was judged: a fault of its reply, and not a suspicion.",
    ),
    "failed": (
        {"dropped": [{"client": "a", "reason": "error", "detail": "no memory"}]},
        "a failed in round 5: the client failed, or its answer could not be read (no memory). "
        "It sent nothing that could be judged, which is not a suspicion.",
    ),
    "denied": (
        {"dropped": [{"client": "a", "reason": "denied", "detail": ""}], "decisions": [ALLOWED | {"rule": "deny"}]},
        "a was denied in round 5 (denied until 2027-01-01 by Ada: rare data), so its reply was dropped. "
        "That is a person's decision, whatever it sent.",
    ),
    "probation": (
        {"elected": ["a", "b"], "decisions": [ALLOWED | {"rule": "probation", "until": None}], "averaged": ["b"]},
        "a was on probation in round 5 (put on probation by Ada: rare data): the defense elected it, and it was "
        "not averaged. The defense reports no number for it.",
    ),
    "not_needed": (
        {"left_out": ["a"], "elected": ["b"], "mode": "monitor", "averaged": ["a", "b"]},
        "a was not needed in round 5, but averaged in monitor mode: snowball elected 1 of 2 and does not accuse the "
        "others. The defense reports no number for it.",
    ),
    "dropped": (
        {"dropped": [{"client": "a", "reason": "not-asked", "detail": "nobody asked it"}]},
        "The reply of a was not counted in round 5: the client was not asked (nobody asked it). "
        "It had no part in the result, which is not a suspicion.",
    ),
    "unjudged": (
        {"answered": ["a"], "outcome": "kept", "reason": "3 of 8 answered"},
        "a answered in round 5, and nobody was judged; the old model was kept: 3 of 8 answered. "
        "So this round has no evidence for or against it.",
    ),
    "silent": (
        {"asked": ["a", "b"], "answered": ["b"], "silent": ["a"]},
        "a was asked in round 5 and did not answer. It had no part in the result, which is not a suspicion.",
    ),
    "elected": (
        {"elected": ["a"], "averaged": ["a"], "shares": {"a": 0.125}, "facts": {"votes": {"a": 3}}},
        "a was elected in round 5 and made up 12.5 % of the average. "
        "It had votes 3, the elected had 3; fewer is worse (votes that the updates gave this one).",
    ),
    None: ({"asked": ["b"], "answered": ["b"], "elected": ["b"]}, "a was not asked in round 5."),
}


@pytest.mark.parametrize("state", PARTS)
def test_whatever_happened_there_is_an_answer(state: str | None, make_entry: Make) -> None:
    changes, words = PARTS[state]
    assert answer(make_entry(5, **changes)) == words


def test_an_audit_of_an_earlier_version_says_what_it_does_not_know(make_entry: Make) -> None:
    assert set(PARTS) == {*STATES, None} - {"left_out"}
    old = make_entry(5, left_out=["a"], elected=["b"], facts={"charge": "leans to class 1"})
    assert explain_round(Audit([old]), "a", 5).sentences[0] == (
        "a was left out in round 5: leans to class 1; this audit does not say whether on evidence."
    )
    absent = Audit([make_entry(5, elected=["b"]), make_entry(6, elected=["a"])])
    assert explain_round(absent, "a", 5).sentences == [
        "a had no part in round 5, and this audit does not say who was asked."
    ]


def test_an_unknown_round_gets_a_suggestion_and_the_last_of_several_is_meant(make_entry: Make) -> None:
    audit = Audit([make_entry(1, elected=["a"]), make_entry(4, elected=["a"]), make_entry(4, silent=["a"])])
    assert explain_round(audit, "a", 4).state == "silent"
    with pytest.raises(
        SettingError, match=r"^round 9 is not in this audit, which has rounds 1 to 4; did you mean 4\?$"
    ):
        explain_round(audit, "a", 9)
    with pytest.raises(SettingError, match=r"round 1 is not in this audit, which has no round yet$"):
        Audit([]).find_round(1)
