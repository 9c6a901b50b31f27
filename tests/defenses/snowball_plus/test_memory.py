from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from snowball.defenses import Context, SnowballPlus
from snowball.defenses.base import State
from snowball.defenses.snowball_plus.ballots import CLIENT_KEPT, MAX_LEAD, measure_positions, update_record
from snowball.defenses.snowball_plus.evidence import POSITIONS, gather_evidence
from snowball.defenses.snowball_plus.memory import (
    RECALL_KEPT,
    TRAITS,
    combine_rows,
    read_memory,
    read_traits,
    recall_suspects,
    record_judgement,
    update_clients,
)
from snowball.errors import RunError, SettingError
from snowball.layout import Layout
from snowball.serialization import pack, unpack
from snowball.updates import Updates

WEAK = {"infected": 15, "together": 0.4, "undo": 0.3, "lean": 0.05}


def run(make_round: Callable[..., Any], rounds: int, stored: bool = False, **setup: Any) -> list[Any]:
    """The verdicts of some rounds; `stored` writes the state to bytes and reads it back after each."""
    verdicts: list[Any] = []
    state: State | None = None
    for round in range(1, rounds + 1):
        planted = make_round(round, **setup)
        verdicts.append(
            SnowballPlus()(planted.updates, Context(round=round, rounds=rounds, base=planted.base, state=state))
        )
        state = unpack(pack(verdicts[-1].state)) if stored else verdicts[-1].state
    return verdicts


@pytest.mark.parametrize("setup", [WEAK, {"rows": 8, "infected": 1}, {}], ids=["charged", "few", "clean"])
def test_a_stored_state_goes_on_to_the_bit(make_round: Callable[..., Any], setup: dict[str, Any]) -> None:
    kept, stored = (run(make_round, 6, stored, **setup) for stored in (False, True))
    assert any("charge" in verdict.facts for verdict in kept) == bool(setup)
    for one, other in zip(kept, stored, strict=True):
        assert torch.equal(one.delta, other.delta)
        assert torch.equal(one.elected, other.elected)
        assert one.facts.get("charge") == other.facts.get("charge")
        assert pack(one.state) == pack(other.state)


def test_a_stored_record_of_positions_goes_on_to_the_bit(make_image_round: Callable[..., Any]) -> None:
    kept, stored = (run(make_image_round, 4, stored, infected=12, rewired=2.5) for stored in (False, True))
    assert [pack(verdict.state) for verdict in kept] == [pack(verdict.state) for verdict in stored]
    assert all(torch.equal(one.elected, other.elected) for one, other in zip(kept, stored, strict=True))
    assert any("clarity.position" in verdict.facts for verdict in kept)


def test_the_state_decides(make_round: Callable[..., Any]) -> None:
    planted, last = make_round(3, **WEAK), run(make_round, 2, **WEAK)[-1]
    known = SnowballPlus()(planted.updates, Context(round=3, base=planted.base, state=last.state))
    fresh = SnowballPlus()(planted.updates, Context(round=3, base=planted.base))
    assert fresh.elected.all()
    assert not known.elected.all()


ROW = torch.ones(108)
LAYERS = {"conv.weight": torch.ones(108), "hidden.weight": torch.ones(120)}
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "crowds of another model": ({"crowds": torch.ones(9)}, "its record of crowds is not 10 numbers"),
    "crowds of integers": ({"crowds": torch.ones(10).int()}, "its record of crowds is not 10 numbers"),
    "a list of crowds": ({"crowds": [1.0] * 10}, "its record of crowds is not 10 numbers"),
    "charges of the future": ({"charges": 4}, "in which it accused somebody is not one up to 3"),
    "fewer charges than none": ({"charges": -1}, "in which it accused somebody is not one up to 3"),
    "charges that are not whole": ({"charges": 1.0}, "in which it accused somebody is not one up to 3"),
    "charges of truth": ({"charges": True}, "in which it accused somebody is not one up to 3"),
    "no charges": ({"charges": None}, "in which it accused somebody is not one up to 3"),
    "charges of many lines": ({"charges": torch.ones(2, 1)}, "in which it accused somebody is not one up to 3"),
    "a row of directions": ({"directions": ROW}, "its directions are not those of the model's hidden layers"),
    "no directions": ({"directions": None}, "its directions are not those of the model's hidden layers"),
    "directions of one layer": (
        {"directions": {"conv.weight": ROW}},
        "its directions are not those of the model's hidden layers",
    ),
    "directions of other layers": (
        {"directions": {"conv.weight": ROW, "last.weight": ROW}},
        "its directions are not those of the model's hidden layers",
    ),
    "directions of a layer more": (
        {"directions": {**LAYERS, "last.weight": ROW}},
        "its directions are not those of the model's hidden layers",
    ),
    "a list of directions": ({"directions": [ROW]}, "its directions are not those of the model's hidden layers"),
    "directions of another width": (
        {"directions": {**LAYERS, "conv.weight": ROW[:-1]}},
        "its directions of layer 'conv.weight' are not 108 numbers",
    ),
    "inputs as wide as directions": ({"inputs": LAYERS}, "its inputs of layer 'conv.weight' are not 27 numbers"),
    "a list of inputs": ({"inputs": [ROW]}, "its inputs are not those of the model's hidden layers"),
    "no clients": ({"clients": None}, "its clients cannot be a NoneType"),
    "a client of the future": ({"clients": {"a": {"round": 4}}}, "in which of 3 rounds client 'a' was last seen"),
    "traits of another kind": (
        {"clients": {"a": {"round": 1, "traits": torch.ones(TRAITS - 1)}}},
        f"its traits of client 'a' is not {TRAITS} numbers",
    ),
    "positions of another model": ({"positions": torch.ones(9)}, "its record of positions is not that of such a model"),
}


def refuse(make_round: Callable[..., Any], damage: dict[str, Any], sentence: str) -> None:
    """What two rounds left is taken as it is, and refused after this damage, in one sentence."""
    planted, state = make_round(3), run(make_round, 2, infected=15)[-1].state
    SnowballPlus()(planted.updates, Context(round=3, base=planted.base, state=state))
    with pytest.raises(RunError) as caught:
        SnowballPlus()(planted.updates, Context(round=3, base=planted.base, state={**state, **damage}))
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("the defense's state is damaged or of another federation: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_state_is_refused_in_one_sentence(make_round: Callable[..., Any], case: str) -> None:
    refuse(make_round, *DAMAGED[case])


POSITION_DAMAGE: dict[str, tuple[dict[str, Any], str]] = {
    "a position too few": ({"positions": torch.ones(8)}, "its record of positions is not that of such a model"),
    "positions of integers": (
        {"positions": torch.ones(9).int()},
        "its record of positions is not that of such a model",
    ),
    "a list of positions": ({"positions": [1.0] * 9}, "its record of positions is not that of such a model"),
    "positions by layer": ({"positions": {"fc": ROW}}, "its record of positions is not that of such a model"),
}


@pytest.mark.parametrize("case", POSITION_DAMAGE)
def test_a_damaged_record_of_positions_is_refused_in_one_sentence(
    make_image_round: Callable[..., Any], case: str
) -> None:
    refuse(make_image_round, *POSITION_DAMAGE[case])


def test_inputs_without_those_of_positions_are_refused(make_image_round: Callable[..., Any]) -> None:
    state = run(make_image_round, 2, infected=15)[-1].state
    inputs = {name: row for name, row in state["inputs"].items() if name != POSITIONS}
    assert state["inputs"].keys() - inputs.keys() == {POSITIONS}
    refuse(make_image_round, {"inputs": inputs}, "its inputs are not those of the model's hidden layers")


def test_the_record_of_positions_is_kept(make_image_round: Callable[..., Any]) -> None:
    first, second = run(make_image_round, 2, infected=12, rewired=2.5)
    planted = make_image_round(2, infected=12, rewired=2.5)
    measured = measure_positions(gather_evidence(planted.updates, planted.base, None))
    assert measured is not None
    torch.testing.assert_close(
        second.state["positions"], update_record(first.state["positions"], measured.clamp(max=MAX_LEAD))
    )
    assert (
        read_memory(Context(round=3, state=second.state), planted.updates.layout).positions is second.state["positions"]
    )
    assert int(second.state["positions"].argmax()) == 5


def test_the_state_of_another_model_is_refused(make_round: Callable[..., Any]) -> None:
    state = run(make_round, 1, infected=15)[-1].state
    other = Updates.from_layers({"first": torch.ones(5, 3, 3), "last": torch.ones(5, 3, 3)})
    with pytest.raises(RunError, match="its record of crowds is not 3 numbers"):
        SnowballPlus()(other, Context(round=2, state=state))


def test_few_classes_have_no_record_of_crowds() -> None:
    layout = Layout(("first", "last"), ((3, 3), (3, 3)))
    with pytest.raises(RunError, match="its record of crowds is not 3 numbers"):
        read_memory(Context(round=2, state={"crowds": torch.ones(3), "clients": {}}), layout)


def test_no_more_clients_are_remembered_than_may_be(make_round: Callable[..., Any]) -> None:
    state: State | None = None
    for round in range(1, 5):
        planted = make_round(round, fresh=True)
        state = SnowballPlus(remember=70)(planted.updates, Context(round=round, base=planted.base, state=state)).state
        assert state is not None
        assert len(state["clients"]) == min(50 * round, 70)
        assert set(planted.updates.clients) <= set(state["clients"])
    for bound in (0, -1, 1.5, True):
        with pytest.raises(SettingError, match="remember must be 1 client or more"):
            SnowballPlus(remember=bound)  # type: ignore[arg-type]


def test_the_record_of_a_client_fades() -> None:
    known: Any = {}
    expected, weight = 0.0, 0.0
    for round, deviation in enumerate([5.0, 1.0, -2.0], start=1):
        strangeness = torch.tensor([deviation, 3.0], dtype=torch.float64)
        known = update_clients(known, ["a", "b"], strangeness, round)
        expected, weight = deviation + CLIENT_KEPT * expected, 1 + CLIENT_KEPT * weight
        assert known["a"]["traits"].tolist() == pytest.approx([expected, weight, 0, 0])
        assert known["b"]["traits"].tolist() == pytest.approx([3 * weight, weight, 0, 0])
    later = update_clients(known, ["b", "c"], torch.tensor([3.0, 9.0], dtype=torch.float64), 9)
    assert later["c"]["traits"].tolist() == [9, 1, 0, 0]  # of whom nothing was known
    assert {client: entry["round"] for client, entry in later.items()} == {"a": 3, "b": 9, "c": 9}
    assert known["b"]["round"] == 3


def test_it_is_counted_who_was_accused_of_the_rounds_with_a_charge() -> None:
    known: Any = {}
    for round, accused in enumerate([[True, False], None, [True, False], [False, True]], start=1):
        known = update_clients(known, ["a", "b"], torch.zeros(2, dtype=torch.float64), round)
        if accused:
            known = record_judgement(known, ["a", "b"], torch.tensor(accused))
    traits = read_traits(known, ["b", "a"])
    assert traits.dtype == torch.float64
    charged = 1 + CLIENT_KEPT + CLIENT_KEPT**3  # the second round was without a charge
    assert traits[:, 2].tolist() == pytest.approx([1, CLIENT_KEPT + CLIENT_KEPT**3])
    assert traits[:, 3].tolist() == pytest.approx([charged] * 2)
    after = record_judgement(known, ["a"], torch.tensor([True]))
    assert torch.equal(after["b"]["traits"], known["b"]["traits"])  # who took no part was not judged
    assert after["a"]["round"] == 4
    assert float(known["a"]["traits"][2]) == pytest.approx(float(traits[1, 2]))  # nor is what was known changed


def test_what_suspects_had_in_common_fades(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15)
    updates, suspects = planted.updates, planted.infected
    evidence = gather_evidence(updates, planted.base, None)
    once = recall_suspects(None, updates, evidence, suspects)
    for name in ("conv.weight", "hidden.weight"):
        rows = updates.values[:, updates.layout.columns[name]].double().numpy()
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        marked = suspects.numpy()
        np.testing.assert_allclose(
            once.directions[name].numpy(), units[marked].mean(0) - units[~marked].mean(0), atol=1e-6
        )
        shares = evidence.inputs[name].numpy()
        np.testing.assert_allclose(
            once.inputs[name].numpy(), shares[marked].mean(0) - shares[~marked].mean(0), atol=1e-6
        )
    twice = recall_suspects(once, updates, evidence, suspects)
    torch.testing.assert_close(twice.directions["conv.weight"], (1 + RECALL_KEPT) * once.directions["conv.weight"])
    torch.testing.assert_close(twice.inputs["conv.weight"], (1 + RECALL_KEPT) * once.inputs["conv.weight"])


def test_rows_are_added_with_their_weights() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[[3.0, 4]], [[0, 0]], [[0, 2]]])})
    combined = combine_rows(updates, "w", torch.tensor([0.2, 5, 5], dtype=torch.float64))
    torch.testing.assert_close(combined, torch.tensor([0.6, 10.8]))


def test_a_state_of_nothing_is_a_first_round(make_round: Callable[..., Any]) -> None:
    planted = make_round(1)
    for state in (None, {}):
        memory = read_memory(Context(round=2, state=state), planted.updates.layout)
        assert (memory.crowds, memory.positions, memory.recalled) == (None, None, None)
        assert (memory.charges, memory.clients) == (0, {})


def test_what_is_kept_does_not_change_with_the_updates(make_round: Callable[..., Any]) -> None:
    planted = make_round(1, infected=15)
    updates = planted.updates.replace_values(planted.updates.values.clone())
    verdict = SnowballPlus()(updates, Context(round=1, base=planted.base))
    before = pack(verdict.state)
    updates.values.zero_()
    verdict.delta.zero_()
    assert pack(verdict.state) == before
