"""Who went into each model, and to which model to go back."""

from collections.abc import Callable
from typing import Any

import pytest

from snowball.errors import SettingError
from snowball.report import Audit
from snowball.report.audit.contributions import find_rollback, list_contributions, write_contribution, write_rollback

Make = Callable[..., dict[str, Any]]


def chain(make_entry: Make, *rounds: str, models: str = "0123456789") -> Audit:
    """Rounds whose averaged clients are these letters; an empty one keeps the model."""
    entries, before = [], models[0]
    for number, averaged in enumerate(rounds, 1):
        after = models[number] if averaged else before
        shares = {client: 1 / len(averaged) for client in averaged}
        kept: dict[str, Any] = {} if averaged else {"outcome": "kept", "reason": "too few"}
        models_of_round = {"model_before": before * 64, "model_after": after * 64}
        entries.append(
            make_entry(
                number,
                elected=list(averaged) or ["a"],
                averaged=list(averaged),
                shares=shares,
                **models_of_round,
                **kept,
            )
        )
        before = after
    return Audit(entries)


def test_each_model_has_its_contributors_with_their_shares(make_entry: Make) -> None:
    audit = chain(make_entry, "ab", "", "abcd")
    lines = list(map(write_contribution, list_contributions(audit, 1)))
    assert lines == [
        "round 1: 000000000000 to 111111111111, with a 50 %, b 50 %",
        "round 2: 111111111111 was kept: too few",
        "round 3: 111111111111 to 333333333333, with a 25 %, b 25 %, c 25 %, d 25 %",
    ]
    assert [each.round for each in list_contributions(audit, 3)] == [3]
    with pytest.raises(SettingError, match="round 4 is not in this audit, which has rounds 1 to 3; did you mean 3"):
        list_contributions(audit, 4)
    with pytest.raises(SettingError, match="has no round yet"):
        list_contributions(Audit([]), 1)


def test_one_goes_back_to_the_last_model_without_a_client(make_entry: Make) -> None:
    audit = chain(make_entry, "ab", "ax", "ab", "ab", "ax", "ab")
    found = find_rollback(audit, 3, "x")
    assert ([each.round for each in found.rounds], found.clean_round, found.current) == ([5], 4, False)
    assert found.clean_model == "4" * 64
    assert write_rollback(found, "x", 3) == (
        "x went into the model in 1 round since round 3. "
        f"The last model without it is the one after round 4: {'4' * 64}."
    )
    first = find_rollback(audit, 2, "x")
    assert (first.clean_round, first.clean_model) == (None, "1" * 64)
    assert "The last model without it is the one before round 2: " in write_rollback(first, "x", 2)
    assert write_rollback(find_rollback(audit, 6, "x"), "x", 6) == "x went into no model since round 6."


def test_after_a_rollback_the_models_are_without_it(make_entry: Make) -> None:
    """Round 4 starts again from the model after round 1."""
    entries = list(chain(make_entry, "ab", "ax", "ab", "ab", "ab").entries)
    entries[3] = {**entries[3], "model_before": "1" * 64}
    found = find_rollback(Audit(entries), 1, "x")
    assert (found.clean_round, found.clean_model, found.current) == (5, "5" * 64, True)
    assert "The current model is without it: 5555" in write_rollback(found, "x", 1)
    entries[3] = {**entries[3], "model_before": "9" * 64}
    assert find_rollback(Audit(entries), 1, "x").current is False, "nobody knows where model 9 comes from"


def test_without_hashes_no_model_is_called_clean(make_entry: Make) -> None:
    audit = Audit([make_entry(number, averaged=["x"], elected=["x"]) for number in (1, 2)])
    found = find_rollback(audit, 1, "x")
    assert found.current is False
    assert write_rollback(found, "x", 1).endswith("the one before round 1: not known.")
    assert write_contribution(found.rounds[0]) == "round 1: an unknown model to an unknown model, with x"
