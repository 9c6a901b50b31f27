"""Damaged states of every defense: refused in one sentence when they are loaded, or the next rounds work.

Every damage follows from a seed, so that a failure can be repeated: `damage_state(state, seed)`.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from snowball.defenses import CRFL, DEFENSES, FLIP, ClientTask, Context, Defense, InversionSettings
from snowball.defenses.base import StatefulDefense
from snowball.errors import RunError, SnowballError
from snowball.guard import Guard, Reply
from snowball.layout import Layout
from snowball.rng import stream
from snowball.serialization import pack

MODEL = {"first.weight": torch.linspace(-1, 1, 24).view(6, 4), "last.weight": torch.linspace(1, -1, 60).view(10, 6)}
LAYOUT = Layout.from_tensors(MODEL)
STATEFUL = [name for name in DEFENSES if isinstance(DEFENSES[name](), StatefulDefense)]
JUNK: list[Callable[[], Any]] = [
    lambda: None, lambda: True, lambda: 0, lambda: -1, lambda: 2**63, lambda: -(2**63), lambda: 10**400,
    lambda: 10**5000, lambda: 0.5, lambda: float("nan"), lambda: float("-inf"), lambda: 1e308, lambda: "", lambda: "3",
    lambda: "\x00" * 99, list, dict, lambda: [None], lambda: [[]] * 3, lambda: {"clients": {}}, lambda: {"": {"": {}}},
    lambda: nest_lists(200), lambda: torch.tensor(3.0), lambda: torch.zeros(0), lambda: torch.zeros(LAYOUT.width),
    lambda: torch.zeros(1, 84), lambda: torch.full((LAYOUT.width,), torch.nan), lambda: torch.arange(4),
    lambda: torch.full((LAYOUT.width,), 3e38), lambda: torch.ones(4), lambda: torch.full((10,), -1e38),
    lambda: torch.tensor([True]), lambda: torch.ones(84).to_sparse(),
]  # fmt: skip
"""Makers of values that stand where something else belongs."""


def nest_lists(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def make_replies(round: int, clients: int = 20) -> list[Reply]:
    """Return the replies of clients, the last three of which have a common direction."""
    replies = []
    for client in range(clients):
        rng = stream(round, "reply", client)
        steps = {name: 0.05 * torch.randn(tensor.shape, generator=rng) for name, tensor in MODEL.items()}
        steps["last.weight"][3] += 0.2 * (client >= clients - 3)
        replies.append(Reply(f"site-{client:02}", 20 + client, {name: MODEL[name] + steps[name] for name in MODEL}))
    return replies


@cache
def collect_state(name: str) -> dict[str, Any]:
    """Return the state of a guard after three rounds."""
    guard = Guard(DEFENSES[name](), seed=3)
    for round in range(1, 4):
        assert not guard(MODEL, make_replies(round)).kept
    return guard.state_dict()


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all parts of nested dicts and lists, the whole not included."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, part in parts for found in ((*path, key), *list_paths(part, (*path, key)))]


def damage_tensor(tensor: Tensor, rng: random.Random) -> Any:
    """Return a tensor with other numbers, another shape or another type."""
    tensor = tensor.to_dense()
    flat = tensor.clone().reshape(-1)
    number = rng.choice([float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 0.0, -1.0, 255.0])
    if rng.random() < 0.5 and len(flat) and flat.is_floating_point():
        flat[rng.randrange(len(flat))] = number
        return flat.view(tensor.shape)
    types = [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64]
    others = [
        flat[:-1],
        flat.repeat(2),
        flat[None],
        tensor.to(rng.choice(types)),
        torch.full_like(tensor.double(), 1e300),
    ]
    return rng.choice([*others, torch.full_like(tensor.float(), number), tensor.tolist(), tensor.float().to_sparse()])


def damage_state(state: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return a copy of a state in which one to three parts are lost, moved, or something else."""
    rng, damaged = random.Random(seed), deepcopy(state)
    for _ in range(rng.randint(1, 3)):
        paths = list_paths(damaged)
        if not paths:
            break
        *way, key = rng.choice(paths)
        owner: Any = damaged
        for step in way:
            owner = owner[step]
        kind = rng.choice(["lose", "junk", "junk", "number", "number", "move", "add"])
        if kind == "lose":
            del owner[key]
        elif kind == "number" and isinstance(owner[key], Tensor):
            owner[key] = damage_tensor(owner[key], rng)
        elif kind == "number" and isinstance(owner[key], int | float):
            owner[key] = rng.choice([-owner[key], 10**30, owner[key] * 1000, [owner[key]], 2.0, "2"])
        elif kind == "move":
            owner[key] = deepcopy(rng.choice([owner, *owner.values()] if isinstance(owner, dict) else [*owner, owner]))
        elif kind == "add" and isinstance(owner, dict):
            owner[rng.choice(["clients", "site-00", "", 7, None])] = rng.choice(JUNK)()
        else:
            owner[key] = rng.choice(JUNK)()
    return damaged


def try_state(name: str, state: dict[str, Any]) -> bool:
    """Load a state into a guard and judge two rounds; return whether it was refused at loading."""
    guard = Guard(DEFENSES[name](), seed=3)
    try:
        guard.load_state_dict(state)
    except SnowballError as refusal:
        said = str(refusal)
        assert said.isprintable()
        assert len(said) < 1000
        return True
    for round in (4, 5):
        try:
            judgement = guard(MODEL, make_replies(round))
        except RunError:
            assert round == 4, "only the first round may refuse a state"
            assert state.get("layout") != collect_state(name)["layout"], "what loading could see was refused later"
            return True
        assert not judgement.kept, judgement.entry["reason"]
        assert all(tensor.isfinite().all() for tensor in judgement.tensors.values())
    assert pack(guard.state_dict())
    return False


def try_damages(name: str, seeds: range) -> int:
    """Damage a defense's part of a state, and in every fourth case any part; return how many states were refused."""
    state, refused = collect_state(name), 0
    for seed in seeds:
        whole = seed % 4 == 0
        damaged = damage_state(state if whole else state["defense"], seed)
        try:
            refused += try_state(name, damaged if whole else {**deepcopy(state), "defense": damaged})
        except Exception as error:
            raise AssertionError(f"{name} with the damage of seed {seed}: {type(error).__name__}: {error}") from error
    return refused


def test_the_defenses_with_a_memory_check_it() -> None:
    known = {"fldetector", "foolsgold", "fedsurrogate", "crfl", "snowball", "snowball-plus", "intersection"}
    assert known <= set(STATEFUL)
    for name in set(DEFENSES) - {"flare", "fltrust", "ideal", "flip"}:  # which no guard takes
        guard = Guard(DEFENSES[name](), seed=3)
        guard(MODEL, make_replies(1))
        assert guard.state is None or name in STATEFUL, f"{name} trusts any state"


@pytest.mark.parametrize("name", STATEFUL)
def test_an_undamaged_state_is_loaded(name: str) -> None:
    assert not try_state(name, deepcopy(collect_state(name)))


@pytest.mark.parametrize("name", STATEFUL)
def test_damaged_states_are_refused_at_loading_or_work(name: str) -> None:
    assert try_damages(name, range(24)) > 8


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEFUL)
def test_thousands_of_damaged_states_are_refused_at_loading_or_work(name: str) -> None:
    assert try_damages(name, range(24, 460)) > 150


SHAPE, CLASSES = (1, 6, 6), 3
QUICK = FLIP(
    epochs=1, batch=12, inversion=InversionSettings(universal_steps=2, pair_steps=2, repeat_steps=1, samples=1)
)


def train_client(state: Any) -> Any:
    """Let a client harden a small model, and return its state."""
    rng = stream(1, "client")
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES))
    inputs, labels = torch.rand(48, *SHAPE, generator=rng), torch.arange(48) % CLASSES
    task = ClientTask(
        model=model, inputs=inputs, labels=labels, classes=CLASSES, epochs=1, batch=12, rate=0.01, rng=rng, state=state
    )
    after = QUICK.train(task)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    return after


@cache
def collect_client_state() -> dict[str, Any]:
    state = dict(train_client(None))
    state["ways"] = torch.tensor([[-1, 0], [1, 2]])
    state["triggers"] = torch.full((2, 2, 6, 6), 9, dtype=torch.uint8)
    return state


def try_client_damages(seeds: range) -> int:
    refused = 0
    for seed in seeds:
        damaged = damage_state(collect_client_state(), seed)
        try:
            QUICK.check_client_state(damaged, SHAPE, CLASSES)
        except RunError:
            refused += 1
            continue
        QUICK.check_client_state(train_client(damaged), SHAPE, CLASSES)
    return refused


def test_damaged_states_of_clients_are_refused_or_work() -> None:
    QUICK.check_client_state(train_client(None), SHAPE, CLASSES)
    QUICK.check_client_state(train_client(collect_client_state()), SHAPE, CLASSES)
    assert try_client_damages(range(100)) > 50


@pytest.mark.slow
def test_thousands_of_damaged_states_of_clients_are_refused_or_work() -> None:
    assert try_client_damages(range(100, 3000)) > 1500


def predict_first(defense: CRFL, state: Any) -> Tensor:
    def score(row: Tensor, inputs: Tensor) -> Tensor:
        return inputs @ row.view(7, 12)

    context = Context(round=4, base=torch.ones(LAYOUT.width), state=state, model=score)  # type: ignore[arg-type]
    return defense.predict(torch.ones(5, 7), context)


def test_damaged_states_of_crfl_are_refused_or_predict() -> None:
    for seed in range(200):
        damaged = damage_state(collect_state("crfl")["defense"], seed)
        try:
            if damaged:
                CRFL().check_state(damaged, 3, LAYOUT)
        except RunError:
            continue
        assert predict_first(CRFL(), damaged).shape == (5,)


def test_a_defense_without_a_check_is_trusted() -> None:
    defense: Defense = DEFENSES["median"]()
    guard = Guard(defense)
    guard.load_state_dict({**Guard(defense).state_dict(), "defense": {"own": 1}})
    assert not guard(MODEL, make_replies(1)).kept
