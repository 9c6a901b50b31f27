from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from snowball.defenses import BUILT_IN, DEFENSES, Context, FedAvg, Krum, Snowball, VAESettings, Verdict
from snowball.errors import SettingError, UpdateError
from snowball.testing import CHECKS, check_defense, make_toy_round, run_two_rounds
from snowball.updates import Updates

QUICK = VAESettings(first_epochs=2, tune_epochs=1, hidden=8, latent=4, samples=2)


@pytest.mark.parametrize("name", DEFENSES)
def test_every_defense_in_the_table_passes_every_check(name: str) -> None:
    check_defense(DEFENSES[name](), examples=10)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFENSES)
def test_every_defense_in_the_table_passes_every_check_on_many_rounds(name: str) -> None:
    check_defense(DEFENSES[name](), examples=60)


@pytest.mark.parametrize("judge", ["vae", "vae-updates", "vae-span"])
def test_the_learned_judges_pass_every_check(judge: str) -> None:
    check_defense(Snowball(judge=judge, vae=QUICK), examples=3)


@dataclass
class Faulty:
    """A defense with one fault of each kind that a check must find."""

    fault: str
    calls: int = 0

    def __post_init__(self) -> None:
        if self.fault == "survives_pickling":
            self.key = lambda: None

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        self.calls += 1
        n = len(updates)
        elected = torch.ones(n, dtype=torch.bool)
        delta, state = updates.values.mean(0), None
        if self.fault == "elects_somebody":
            elected = ~elected
        if self.fault == "result_is_finite":
            delta = delta / 0
        if self.fault == "same_seed_same_verdict":
            delta = delta + self.calls
        if self.fault == "total_rounds_are_declared":
            delta = delta * (context.rounds or 1)
        if self.fault == "input_is_untouched":
            updates.values.mul_(2)
        if self.fault == "row_order_is_irrelevant":
            elected = updates._slots == 0  # who arrived first, which no defense should look at
        if self.fault == "state_is_plain":
            state = {"more": {1, 2}}
        if self.fault == "one_row_is_elected" and n == 1:
            elected = ~elected
        if self.fault == "identical_rows_are_harmless" and updates.values.var(0, correction=0).sum() == 0:
            delta = delta / 0
        return Verdict(delta, elected, {}, state)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_defense_called_with_something_else_says_so(name: str) -> None:
    defense: Any = BUILT_IN[name]()
    said = rf"^{type(defense).__name__} judges Updates, got Tensor: make them with Updates\.from_matrix or "
    with pytest.raises(UpdateError, match=said):
        defense(torch.zeros(3, 4), Context(round=1))
    with pytest.raises(SettingError, match=rf"^{type(defense).__name__} needs a Context, got int: pass Context"):
        defense(make_toy_round(), 1)


@pytest.mark.parametrize("fault", CHECKS)
def test_every_check_finds_its_fault(fault: str) -> None:
    check, updates, sound, faulty = CHECKS[fault], make_toy_round(), Faulty("none"), Faulty(fault)
    check(sound, updates, run_two_rounds(sound, updates))
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        check(faulty, updates, run_two_rounds(faulty, updates))


@pytest.mark.parametrize(("words", "fault"), [("elected by votes", None), ("call {calls}", "another reason")])
def test_facts_may_be_words(words: str, fault: str | None) -> None:
    class Explaining(Faulty):
        def __call__(self, updates: Updates, context: Context) -> Verdict:
            verdict = super().__call__(updates, context)
            return replace(verdict, facts={"reason": words.format(calls=self.calls)})

    defense, updates = Explaining("none"), make_toy_round()
    verdicts = run_two_rounds(defense, updates)
    with pytest.raises(AssertionError, match=fault) if fault else nullcontext():
        CHECKS["same_seed_same_verdict"](defense, updates, verdicts)


def test_a_verdict_names_the_elected_clients_in_whatever_order_they_arrived() -> None:
    rows = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0], [0.0, 0.1]])
    updates = Updates.from_matrix(rows, clients=["d", "a", "c", "b"])
    assert Krum(tolerate=1)(updates, Context(round=1)).names in {("a",), ("b",), ("d",)}
    assert FedAvg()(updates, Context(round=1)).names == ("a", "b", "c", "d")


def test_a_verdict_that_does_not_know_its_clients_says_so() -> None:
    with pytest.raises(UpdateError, match="does not know whose rows it judged"):
        Verdict(torch.zeros(2), torch.tensor([True, False])).names  # noqa: B018
