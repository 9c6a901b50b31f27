import random
import runpy
from dataclasses import dataclass
from enum import IntEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from snowball.defenses import FLAME, Context, FedAvg, FoolsGold, Intersection, Median, Snowball, SnowballPlus, Verdict
from snowball.errors import RunError, SettingError
from snowball.guard import Guard, Reply
from snowball.guard.state import GuardState, forget_memory, parse_state, read_release, read_state, write_state
from snowball.records.files import locate_before
from snowball.serialization import pack, unpack, unpack_sealed
from snowball.updates import Updates

MODEL = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["MODEL"]
MEMORY = {"clients": {"a": {"round": 2, "sum": torch.ones(3)}}}
OLD = {"round": 3, "seed": 1, "method": "FoolsGold", "defense": MEMORY}
"""A state as the first version wrote it."""

MODELS = [(2, "ab"), (3, "cd")]


@pytest.fixture
def judged(tmp_path: Path, replies: list[Reply]) -> Path:
    """The state after two rounds, with the one before it."""
    guard = Guard(FoolsGold(), seed=5)
    for _ in range(2):
        guard(MODEL, replies)
        guard.save(tmp_path / "guard.state")
    return tmp_path / "guard.state"


def flip_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_damaged_state_goes_back_by_a_round(
    judged: Path, replies: list[Reply], caplog: pytest.LogCaptureFixture
) -> None:
    before, draw = read_state(locate_before(judged)), random.Random(1)
    assert before.round == 1
    good, kept = judged.read_bytes(), locate_before(judged).read_bytes()
    for _ in range(20):
        judged.write_bytes(good)
        locate_before(judged).write_bytes(kept)
        flip_bit(judged, draw.randrange(8 * len(good)))
        caplog.clear()
        guard = Guard(FoolsGold())
        assert guard.load(judged)
        assert pack(guard.state_dict()) == pack(before.plain())
        (message,) = caplog.messages
        assert message.startswith(f"{judged} is not the state of a guard: it ")
    guard(MODEL, replies)
    guard.save(judged)
    assert pack(read_state(judged).plain()) == pack(unpack_sealed(good))
    assert (read_state(judged).round, read_state(locate_before(judged)).round) == (2, 1)


def test_a_state_is_refused_if_the_one_before_is_damaged_too(judged: Path) -> None:
    for path in (judged, locate_before(judged)):
        flip_bit(path, 4000)
    guard = Guard(FoolsGold(), on_other_state="fresh")
    with pytest.raises(RunError, match=r"guard\.state is not the state of a guard: it .*; nor is guard\.state\.before"):
        guard.load(judged)
    assert guard.round == 0


def test_a_federation_that_starts_again_has_no_state_before(judged: Path, replies: list[Reply]) -> None:
    judged.unlink()
    guard = Guard(FoolsGold())
    assert not guard.load(judged)
    guard(MODEL, replies)
    guard.save(judged)
    assert not locate_before(judged).exists()


def test_a_state_without_a_seal_can_be_converted(tmp_path: Path) -> None:
    file = tmp_path / "guard.state"
    file.write_bytes(pack(OLD))
    with pytest.raises(RunError, match="has no SHA-256 of its content: it is damaged, or only the earlier version"):
        read_state(file)
    write_state(file, parse_state(unpack(file.read_bytes())))
    assert read_state(file).round == 3


def make_guard(**settings: Any) -> Guard:
    return Guard(SnowballPlus(), **settings)


def test_the_state_says_who_wrote_it(tmp_path: Path) -> None:
    guard = Guard(FoolsGold(remember=7), seed=5)
    guard.save(tmp_path / "state")
    state = read_state(tmp_path / "state")
    assert (state.version, state.method) == (version("snowball-fl"), "FoolsGold")
    assert state.settings["remember"] == 7
    assert parse_state(guard.state_dict()).plain() == state.plain()


def test_states_of_earlier_versions_load() -> None:
    guard = Guard(FoolsGold())
    guard.load_state_dict(OLD)
    assert (guard.round, guard.seed, guard.models.hashes) == (3, 1, [])
    assert guard.state is MEMORY
    intersection = Guard(Intersection())
    intersection.load_state_dict({**OLD, "method": "Intersection", "defense": {"members": [None, None]}})
    assert intersection.round == 3


def test_the_state_of_another_defense_is_refused_with_the_choices(tmp_path: Path) -> None:
    write_state(tmp_path / "guard.state", parse_state(OLD))
    with pytest.raises(RunError) as caught:
        make_guard().load(tmp_path / "guard.state")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(
        f"{tmp_path / 'guard.state'} cannot be used: this state belongs to the defense 'FoolsGold'"
    )
    assert "this guard's is 'SnowballPlus'" in sentence
    assert "on_other_state='fresh'" in sentence


def test_fresh_keeps_round_seed_and_hashes(tmp_path: Path, replies: list[Reply]) -> None:
    write_state(tmp_path / "guard.state", GuardState(3, 1, MEMORY, "FoolsGold", models=MODELS))
    guard = make_guard(on_other_state="fresh")
    assert guard.load(tmp_path / "guard.state")
    assert (guard.round, guard.seed, guard.state, guard.models.hashes) == (3, 1, None, MODELS)


def test_fresh_does_not_touch_a_state_that_fits() -> None:
    guard = Guard(FoolsGold(), on_other_state="fresh")
    guard.load_state_dict(OLD)
    assert guard.state is MEMORY


def test_another_set_of_members_is_another_defense() -> None:
    state = Guard(Intersection((Snowball(), FLAME()))).state_dict()
    Guard(Intersection((Snowball(), FLAME()))).load_state_dict(state)
    with pytest.raises(
        RunError, match=r"'Intersection\(Snowball, FLAME\)', this guard's is 'Intersection\(FLAME, Median\)'"
    ):
        Guard(Intersection((FLAME(), Median()))).load_state_dict(state)


def test_a_later_versions_state_is_refused_and_an_earlier_ones_is_not() -> None:
    state = make_guard().state_dict()
    make_guard().load_state_dict({**state, "version": "0.0.9"})
    with pytest.raises(RunError, match=r"written by version '999\.1', later than this one: set on_other_state='fresh'"):
        make_guard().load_state_dict({**state, "version": "999.1"})
    guard = make_guard(on_other_state="fresh")
    guard.load_state_dict({**state, "version": "999.1", "round": 8})
    assert guard.round == 8


@pytest.mark.parametrize(
    ("text", "release"),
    [("1.2.3", (1, 2, 3)), ("1.2.0", (1, 2)), ("1.2.dev3", (1, 2)), ("", ()), ("next", ()), ("²", ()), ("9" * 99, ())],
)
def test_a_version_is_its_numbers(text: str, release: tuple[int, ...]) -> None:
    assert read_release(text) == release


def test_any_defense_can_start_from_a_state_without_memory(tmp_path: Path) -> None:
    state = forget_memory(GuardState(3, 1, MEMORY, "FoolsGold", {"remember": 7}, "0.0.1", MODELS))
    write_state(tmp_path / "state", state)
    for defense in (FedAvg(), SnowballPlus(), FoolsGold()):
        guard = Guard(defense)
        assert guard.load(tmp_path / "state")
        assert (guard.round, guard.seed, guard.state, guard.models.hashes) == (3, 1, None, MODELS)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 1},
        {"settings": [1]},
        {"models": "abc"},
        {"models": [[1, 2]]},
        {"models": [[True, "ab"]]},
        {"models": [["ab", 1]]},
        {"models": [[1, "ab", 2]]},
        {"method": 7},
        {"names": ["a"]},
        {"names": {"a": 1}},
    ],
)
def test_what_no_guard_can_have_written_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="this is not the state of a guard"):
        parse_state({**OLD, **changes})


def test_a_choice_that_nobody_has_is_refused() -> None:
    with pytest.raises(SettingError, match="on_other_state is 'refuse' or 'fresh', got 'migrate'"):
        make_guard(on_other_state="migrate")


class Level(IntEnum):
    HIGH = 2


@dataclass(frozen=True)
class Odd:
    """A defense with settings that no file holds as they are."""

    level: Level = Level.HIGH
    bound: float = float("inf")
    function: Any = print

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        return FedAvg()(updates, context)


def test_odd_settings_do_not_keep_the_state_from_being_saved(tmp_path: Path) -> None:
    Guard(Odd()).save(tmp_path / "state")
    assert read_state(tmp_path / "state").settings == {
        "level": 2, "bound": None, "function": "<built-in function print>"
    }  # fmt: skip
