"""The table of facts knows what every defense of the package reports, and which direction is bad."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from snowball.defenses import DEFENSES
from snowball.records.states import STATES
from snowball.report.audit.facts import DIRECTIONS, FACTS, find_meaning, list_fact_names, read_ballots
from snowball.testing.defenses import run_two_rounds
from snowball.testing.rounds import make_toy_round

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("name", list(DEFENSES.own_entries))
def test_every_fact_of_every_defense_has_a_meaning(name: str) -> None:
    """If one per client lacks a direction, it speaks neither for nor against a client."""
    for verdict in run_two_rounds(DEFENSES[name](), make_toy_round(), rounds=100):
        for fact, value in verdict.facts.items():
            meaning = find_meaning(fact)
            assert meaning is not None, fact
            assert meaning.words
            if isinstance(value, torch.Tensor) and not meaning.worse:
                assert fact.partition(".")[0] in ("order", "clarity", "weight", "code", "charged", "shares", "positive")


HIGHER_IS_WORSE = {"krum": "scores", "multi-krum": "scores", "dnc": "scores", "voting-center": "distance"}
LOWER_IS_WORSE = {"voting-random": "votes", "snowball-minus": "votes", "foolsgold": "weights", "fltrust": "trust"}


@pytest.mark.parametrize(("defense", "fact"), [*HIGHER_IS_WORSE.items(), *LOWER_IS_WORSE.items()])
def test_directions_are_those_in_which_defenses_elect(defense: str, fact: str) -> None:
    """Whoever is left out has a number that is at least as bad as that of anybody elected."""
    for verdict in run_two_rounds(DEFENSES[defense](), make_toy_round()):
        values, meaning = verdict.facts[fact], find_meaning(fact)
        assert isinstance(values, torch.Tensor)
        assert meaning is not None
        bad = DIRECTIONS[meaning.worse] * values.double()
        assert not verdict.elected.all()
        assert bad[~verdict.elected].min() >= bad[verdict.elected].max()


def test_facts_without_a_direction_are_not_shown_as_evidence(make_entry: Make) -> None:
    facts = {name: {"a": 1.0} for name in FACTS} | {"zeal": {"a": 1.0}}
    names = list_fact_names(make_entry(1, facts=facts))
    assert names[:3] == ["suspicion", "strangeness", "votes"]
    assert list_fact_names(make_entry(1, facts={"order": {"a": 1}, "zeal": {"a": 1}, "norms": {"a": 1}})) == [
        "norms",
        "zeal",
    ]


def test_facts_of_members_of_an_intersection_are_known_by_their_first_part(make_entry: Make) -> None:
    facts = {f"{name}.{number}": {"a": 1} for name in ("votes", "elected", "order") for number in (1, 2)}
    assert list_fact_names(make_entry(1, facts=facts | {"votes.fc.weight.1": {"a": 1}})) == [
        "votes.1", "votes.2", "elected.1", "elected.2", "votes.fc.weight.1",
    ]  # fmt: skip


def test_ballots_are_read_with_those_that_charge_first(make_entry: Make) -> None:
    facts = {
        "clarity": 1.1, "clarity.split": 8.1, "bound.split": 11.0, "words.split": "moves with 3 others in fc1.weight",
        "charged.split": {"a": 0, "b": 0}, "clarity.crowd": 5.3, "bound.crowd": 4.8, "words.crowd": "leans to class 1",
        "charged.crowd": {"a": 1, "b": 0}, "clarity.fc1.weight": {"a": 0.5}, "bound": 3.0, "clarity.odd": "text",
    }  # fmt: skip
    ballots = read_ballots(make_entry(1, facts=facts))
    assert [(each.name, each.words, each.clarity, each.bound, each.charged) for each in ballots] == [
        ("crowd", "leans to class 1", 5.3, 4.8, ("a",)),
        ("split", "moves with 3 others in fc1.weight", 8.1, 11.0, ()),
        ("odd", "", None, None, None),
    ]


def test_the_page_on_the_audit_names_every_telling_number_and_state() -> None:
    page = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| (?:.*) \| (\w*) ?\|$", page, re.MULTILINE)
    numbers = {name: worse for names, worse in rows for name in re.findall(r"`(\w+)`", names)}
    for name, meaning in FACTS.items():
        if meaning.worse and name != "elected":  # the members of an intersection have a row of their own
            assert numbers[name] == meaning.worse.replace("another", ""), name
    states = page.split("| in a round, a client is |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(.+?)` \|", states, re.MULTILINE)) == set(STATES.values())
