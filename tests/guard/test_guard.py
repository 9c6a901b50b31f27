import json
import logging
import math
import random
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from snowball.defenses import (
    FLAME,
    FLARE,
    FLIP,
    Context,
    DeepSight,
    DnC,
    FedAvg,
    FLDetector,
    FLTrust,
    FoolsGold,
    Ideal,
    Intersection,
    Krum,
    Median,
    Snowball,
    SnowballPlus,
    Verdict,
)
from snowball.differences import Differences
from snowball.errors import RunError, SettingError, UpdateError
from snowball.guard import Dropped, Guard, Judgement, Reply
from snowball.guard.conversion import choose_max_share
from snowball.guard.reply import ValidReply
from snowball.layout import Layout
from snowball.serialization import pack, pack_sealed, seal
from snowball.updates import Updates

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply, change_reply = SHARED["MODEL"], SHARED["make_honest_reply"], SHARED["change_reply"]


@dataclass(frozen=True)
class ChangedFedAvg:
    """A defense that changes FedAvg's verdict."""

    change: Callable[[Verdict], Any]

    def __call__(self, updates: Updates, context: Context) -> Any:
        return self.change(FedAvg()(updates, context))


def make_raising(error: Exception) -> ChangedFedAvg:
    def change(verdict: Verdict) -> Any:
        raise error

    return ChangedFedAvg(change)


def elect_only(*rows: int) -> ChangedFedAvg:
    """Return a defense that elects these rows and averages everybody."""

    def change(verdict: Verdict) -> Verdict:
        elected = torch.zeros_like(verdict.elected)
        elected[list(rows)] = True
        return replace(verdict, elected=elected)

    return ChangedFedAvg(change)


def have_same_model(one: Judgement, other: Judgement) -> bool:
    return all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def as_numpy(model: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy().copy() for name, tensor in model.items()}


def test_the_plain_mean_is_that_of_numpy(replies: list[Reply]) -> None:
    judgement = Guard(FedAvg())(MODEL, replies)
    shares = np.array([reply.examples for reply in replies], float)
    shares /= shares.sum()
    for name in ("first.weight", "last.bias", "norm.running_mean", "norm.running_var"):
        stacked = np.stack([reply.tensors[name].double().numpy() for reply in replies])
        expected = np.tensordot(shares, stacked, 1)
        np.testing.assert_allclose(judgement.tensors[name].numpy(), expected, rtol=0, atol=1e-6)


def test_buffers_are_those_of_the_averaged_alone(replies: list[Reply]) -> None:
    ahead = change_reply(
        replies[7], norm_num_batches_tracked=torch.tensor(5000), norm_running_mean=torch.full((4,), 0.2)
    )
    judgement = Guard(elect_only(0, 1), max_share=1)(MODEL, [*replies[:7], ahead])
    assert judgement.averaged == ("site-00", "site-01")
    assert judgement.tensors["norm.num_batches_tracked"].item() == pytest.approx(9)
    expected = (20 * replies[0].tensors["norm.running_mean"] + 21 * replies[1].tensors["norm.running_mean"]) / 41
    torch.testing.assert_close(judgement.tensors["norm.running_mean"], expected, rtol=0, atol=1e-6)
    assert Guard(FedAvg())(MODEL, [*replies[:7], ahead]).tensors["norm.num_batches_tracked"].item() == 5000


def test_statistics_are_no_part_of_what_is_judged(replies: list[Reply]) -> None:
    widths: list[int] = []
    spy = ChangedFedAvg(lambda verdict: widths.append(len(verdict.delta)) or verdict)
    Guard(spy, buffers=["last.bias"])(MODEL, replies)
    floating = {**MODEL, "norm.num_batches_tracked": torch.tensor(7.0, dtype=torch.float64)}  # as averages make it
    judgement = Guard(spy)(floating, replies)
    assert widths == [20, 22]
    assert judgement.tensors["norm.num_batches_tracked"].dtype == torch.float64
    assert judgement.tensors["norm.num_batches_tracked"].item() == pytest.approx(9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_keep_their_type_order_and_names(dtype: torch.dtype) -> None:
    model = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in MODEL.items()}
    answers = [make_honest_reply(number, model) for number in range(4)]
    shuffled = [Reply(each.client, each.examples, dict(reversed(each.tensors.items()))) for each in answers]
    judgement = Guard(FedAvg())(model, shuffled)
    assert not judgement.kept
    assert [(name, each.dtype, each.shape) for name, each in judgement.tensors.items()] == [
        (name, each.dtype, each.shape) for name, each in model.items()
    ]


def test_numpy_is_as_good_as_torch(replies: list[Reply]) -> None:
    arrays = [Reply(each.client, each.examples, as_numpy(each.tensors)) for each in replies]
    assert have_same_model(Guard(FedAvg())(MODEL, replies), Guard(FedAvg())(as_numpy(MODEL), arrays))


@pytest.mark.parametrize("defense", [FedAvg(), make_raising(ValueError("no"))])
def test_the_model_that_is_given_is_never_changed(replies: list[Reply], defense: Any) -> None:
    model = as_numpy(MODEL)
    judgement = Guard(defense)(model, replies)
    for tensor in judgement.tensors.values():
        tensor.zero_()
    assert all(np.array_equal(model[name], MODEL[name].numpy()) for name in MODEL)


@pytest.mark.parametrize("defense", [FedAvg(), Snowball(), SnowballPlus()], ids=lambda defense: type(defense).__name__)
def test_a_new_model_is_one_row_whose_tensors_can_be_written_alone(
    defense: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = {name: tensor.clone() for name, tensor in MODEL.items()}
    replies = [make_honest_reply(number) for number in range(9)]
    sent = [{name: tensor.clone() for name, tensor in reply.tensors.items()} for reply in replies]
    expected = Guard(ChangedFedAvg(lambda verdict: verdict) if isinstance(defense, FedAvg) else defense, seed=1)(
        model, replies
    )
    rows: list[Layout] = []
    make = Layout.to_row

    def make_row(self: Layout, tensors: Any) -> Tensor:
        rows.append(self)
        return make(self, tensors)

    monkeypatch.setattr(Layout, "to_row", make_row)
    judged = Guard(defense, seed=1)(model, replies)
    assert len(rows) == isinstance(defense, SnowballPlus)  # which compares updates with the model
    assert have_same_model(judged, expected)
    for before, reply in zip(sent, replies, strict=True):
        assert all(torch.equal(reply.tensors[name], before[name]) for name in before)
    assert all(torch.equal(model[name], MODEL[name]) for name in MODEL)
    trained = [tensor for name, tensor in judged.tensors.items() if not name.startswith("norm")]
    assert len({tensor.untyped_storage().data_ptr() for tensor in trained}) == len(trained)
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in trained)
    save_file(judged.tensors, tmp_path / "model.safetensors")
    assert all(torch.equal(load_file(tmp_path / "model.safetensors")[name], judged.tensors[name]) for name in MODEL)


def test_a_defense_may_keep_the_deltas_that_it_returns() -> None:
    kept: list[Tensor] = []

    def remember(verdict: Verdict) -> Verdict:
        kept.append(verdict.delta)
        copies.append(verdict.delta.clone())
        return verdict

    copies: list[Tensor] = []
    guard = Guard(ChangedFedAvg(remember), seed=1)
    for _ in range(2):
        guard(MODEL, [make_honest_reply(number) for number in range(5)])
    assert all(map(torch.equal, kept, copies))


COPYING_NOBODY = (Snowball(), SnowballPlus(), DnC(), FLAME(variant="original"), DeepSight(), FoolsGold(), FLDetector())


@pytest.mark.parametrize("defense", COPYING_NOBODY, ids=lambda defense: type(defense).__name__)
def test_a_round_makes_no_second_copy_of_the_replies(defense: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [make_honest_reply(number) for number in range(20)]
    expected = Guard(defense, seed=1)(MODEL, replies)
    monkeypatch.setattr(Differences, "to_matrix", None)
    judged = Guard(defense, seed=1)(MODEL, replies)
    assert (judged.entry["outcome"], judged.entry["reason"]) == ("aggregated", None)
    assert have_same_model(judged, expected)


def test_replies_that_arrive_one_by_one_may_lie_in_files(tmp_path: Path) -> None:
    def receive() -> Iterator[Reply]:
        for reply in replies:
            files = {}
            for name, tensor in reply.tensors.items():
                np.save(tmp_path / f"{reply.client}.{name}.npy", tensor.numpy())
                files[name] = np.load(tmp_path / f"{reply.client}.{name}.npy", mmap_mode="r")
            yield Reply(reply.client, reply.examples, files)

    replies = [make_honest_reply(number) for number in range(8)]
    judged = Guard(Snowball(clusters=3), seed=1)(MODEL, receive())
    assert have_same_model(judged, Guard(Snowball(clusters=3), seed=1)(MODEL, replies))


@pytest.mark.parametrize("defense", [FedAvg(), Krum(tolerate=2), Snowball(clusters=3), Median(), FoolsGold()])
@settings(max_examples=5, deadline=None, database=None)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_replies_changes_no_bit(defense: Any, seed: int) -> None:
    answers = [make_honest_reply(number) for number in range(8)] + [Reply("site-77", 20, {})]
    shuffled = list(answers)
    random.Random(seed).shuffle(shuffled)
    one, other = (Guard(defense, seed=1)(MODEL, order) for order in (answers, shuffled))
    assert one.averaged == other.averaged
    assert one.entry["facts"].keys() == other.entry["facts"].keys()
    assert have_same_model(one, other)


BROKEN: dict[str, tuple[Any, str]] = {
    "it raises": (make_raising(ValueError("no idea")), "ValueError: no idea"),
    "it raises without a word": (make_raising(AssertionError()), "AssertionError: "),
    "it raises what cannot be said": (make_raising(SHARED["Unspeakable"]()), "Unspeakable"),
    "it recurses": (make_raising(RecursionError("deep")), "RecursionError: deep"),
    "it has no memory": (make_raising(MemoryError()), "MemoryError: "),
    "it refuses": (Krum(tolerate=9), "tolerating 9"),
    "NaN": (ChangedFedAvg(lambda verdict: replace(verdict, delta=verdict.delta * torch.nan)), "NaN or infinite"),
    "an average that overflows": (
        ChangedFedAvg(lambda verdict: replace(verdict, delta=verdict.delta * 1e39)),
        "NaN or infinite",
    ),
    "an average of one number": (
        ChangedFedAvg(lambda verdict: replace(verdict, delta=torch.ones(1))),
        "22 numbers are needed",
    ),
    "a mask of nobody": (elect_only(), "0 of 8 are elected, and 2 are needed"),
    "too few": (elect_only(3), "1 of 8 are elected, and 2 are needed"),
    "numbers for a mask": (
        ChangedFedAvg(lambda verdict: replace(verdict, elected=verdict.elected.int())),
        "8 bools are needed",
    ),
    "a short mask": (
        ChangedFedAvg(lambda verdict: replace(verdict, elected=verdict.elected[1:])),
        "8 bools are needed",
    ),
    "no verdict": (ChangedFedAvg(lambda verdict: None), "the defense returned NoneType, a Verdict is needed"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_round_that_cannot_be_trusted_keeps_the_model_to_the_bit(case: str, replies: list[Reply]) -> None:
    defense, words = BROKEN[case]
    guard = Guard(defense, min_elected=2)
    guard.state = {"kept": 1}
    judgement = guard(MODEL, replies)
    entry = guard.record(judgement, judgement.tensors)
    assert judgement.kept
    assert words in entry["reason"]
    assert all(torch.equal(tensor, MODEL[name]) for name, tensor in judgement.tensors.items())
    assert (judgement.averaged, entry["averaged"], entry["model_before"]) == ((), [], entry["model_after"])
    assert guard.state == {"kept": 1}
    guard.defense = FedAvg()
    assert not guard(MODEL, replies).kept


def test_nobody_to_judge_keeps_the_model(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "snowball"):
        judgement = Guard()(MODEL, [], asked=["a"], failed=[Dropped("a", "error", "it broke")])
    assert judgement.entry["reason"] == "there is no reply to judge: all dropped for error"
    assert (judgement.entry["answered"], judgement.entry["silent"]) == ([], [])
    assert judgement.entry["dropped"] == [{"client": "a", "reason": "error", "detail": "it broke"}]
    assert "Round 1: the old global model stays: there is no reply to judge" in caplog.text


def test_valid_replies_whose_average_overflows_keep_the_model() -> None:
    model = {"weight": torch.full((2, 2), 6e4, dtype=torch.float16)}
    answers = [Reply(str(each), 1, {"weight": model["weight"] + 96 + 32 * each}) for each in range(3)]
    twice = ChangedFedAvg(lambda verdict: replace(verdict, delta=verdict.delta + 9e4))
    assert "the average holds NaN or infinite" in Guard(twice)(model, answers).entry["reason"]


def test_whom_the_server_drops_is_in_the_audit(replies: list[Reply], monkeypatch: pytest.MonkeyPatch) -> None:
    broken = change_reply(replies[3], last_bias=torch.full((2,), torch.nan))
    norms = {broken: math.nan}
    valid = [
        ValidReply(each.client, each.examples, each.tensors, norms.get(each, 1.0)) for each in (*replies[:3], broken)
    ]
    monkeypatch.setattr("snowball.guard.guard.validate_replies", lambda *_: (valid, []))
    judgement = Guard(FedAvg())(MODEL, replies[:4])
    fault = {"client": "site-03", "reason": "not-finite", "detail": "'last.bias' holds NaN or infinite numbers"}
    assert judgement.entry["dropped"] == [fault]
    assert judgement.averaged == ("site-00", "site-01", "site-02")


def test_monitoring_averages_all_valid_replies_and_says_who_would_be_out(replies: list[Reply]) -> None:
    broken = Reply("site-90", 20, {})
    watched = Guard(elect_only(0, 1), "monitor")(MODEL, [*replies, broken])
    assert have_same_model(watched, Guard(FedAvg())(MODEL, replies))
    assert watched.entry["elected"] == ["site-00", "site-01"]
    assert watched.entry["left_out"] == [reply.client for reply in replies[2:]]
    assert watched.averaged == tuple(reply.client for reply in replies)
    assert watched.entry["dropped"][0]["client"] == "site-90"


@pytest.mark.parametrize("case", ["it raises", "NaN", "no verdict", "numbers for a mask", "a mask of nobody"])
def test_a_defense_that_stumbles_does_not_matter_while_monitoring(case: str, replies: list[Reply]) -> None:
    defense, words = BROKEN[case]
    watched = Guard(defense, "monitor")(MODEL, replies)
    assert have_same_model(watched, Guard(FedAvg())(MODEL, replies))
    if case == "a mask of nobody":
        assert (watched.entry["elected"], watched.entry["reason"]) == ([], None)
    else:
        assert watched.entry["reason"].startswith("the defense could not judge: ")
        assert words in watched.entry["reason"]


def test_monitoring_needs_enough_valid_replies_all_the_same(replies: list[Reply]) -> None:
    assert Guard(FedAvg(), "monitor", min_elected=9)(MODEL, replies).kept


def test_rounds_are_the_guards_own_and_may_be_more_than_was_said(replies: list[Reply]) -> None:
    seen: list[tuple[int, int | None]] = []

    def spy(updates: Updates, context: Context) -> Verdict:
        seen.append((context.round, context.rounds))
        return FedAvg()(updates, context)

    guard = Guard(spy, rounds=2)
    assert not any(guard(MODEL, replies).kept for _ in range(4))
    assert seen == [(1, 2), (2, 2), (3, 3), (4, 4)]


def test_a_global_model_that_cannot_be_is_the_operators_fault_and_no_round(replies: list[Reply]) -> None:
    guard = Guard()
    with pytest.raises(UpdateError, match=r"'last\.bias' of the global model holds NaN"):
        guard({**MODEL, "last.bias": torch.full((2,), torch.nan)}, replies)
    with pytest.raises(UpdateError, match="none of the global model's 1 tensors is trained"):
        guard({"counter": torch.tensor(1)}, replies)
    assert guard.round == 0


@pytest.mark.parametrize(
    ("defense", "words"),
    [
        (FLIP(), "FLIP acts in training"),
        (FLTrust(), "FLTrust acts in training"),
        (FLARE(), "FLARE runs the model on samples, and a guard has neither"),
        (Ideal(), "Ideal is told who is malicious"),
        (Intersection((Krum(tolerate=1), Ideal())), "Ideal is told who is malicious"),
        (Snowball, "needs a defense such as Snowball"),
        ("snowball", "needs a defense such as Snowball"),
    ],
)
def test_defenses_that_a_guard_cannot_serve_are_refused(defense: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Guard(defense)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "watch"}, "mode is 'enforce' or 'monitor', got 'watch'"),
        ({"min_elected": 0}, "min_elected must be a positive number, got 0"),
        ({"max_examples": float("nan")}, "max_examples must be a positive number, got nan"),
        ({"rounds": 0}, "rounds must be a positive number, got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Guard(**settings)


def run_rounds(defense: Any, guard: Guard, first: int, last: int, model: dict[str, Tensor]) -> Judgement:
    for number in range(first, last):
        judgement = guard(model, [make_honest_reply(100 * number + client, model) for client in range(8)])
        model = judgement.tensors
    return judgement


@pytest.mark.parametrize("defense", [Snowball(), FoolsGold(), FLDetector(window=2), Intersection()])
def test_a_guard_goes_on_where_another_stood(defense: Any, tmp_path: Path) -> None:
    whole = Guard(defense, seed=3)
    middle = run_rounds(defense, whole, 0, 3, MODEL)
    whole.save(tmp_path / "guard.state")
    assert whole.state is not None
    fresh = Guard(defense)
    assert fresh.load(tmp_path / "guard.state")
    assert (fresh.round, fresh.seed) == (3, 3)
    ends = [run_rounds(defense, guard, 3, 5, middle.tensors) for guard in (whole, fresh)]
    assert have_same_model(*ends)
    untimed = [{name: fact for name, fact in end.entry["facts"].items() if "seconds" not in name} for end in ends]
    assert json.dumps(untimed[0]) == json.dumps(untimed[1])  # as texts, where NaN is NaN
    assert ends[0].entry["round"] == ends[1].entry["round"] == 5


def test_there_may_be_nothing_to_load(tmp_path: Path) -> None:
    guard = Guard()
    assert not guard.load(tmp_path / "nothing")
    assert guard.round == 0


def make_state(**changes: Any) -> dict[str, Any]:
    return {"round": 3, "seed": 1, "method": "Snowball", "defense": None, **changes}


GOOD = pack_sealed(make_state())
BAD_STATES = {
    "empty": b"",
    "cut": GOOD[:-3],
    "noise": bytes(range(256)),
    "a long header": (1 << 62).to_bytes(8, "little") + b"{}",
    "text": b"not a state",
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94",
    "no seal": pack(make_state()),
    "a list": pack_sealed([1, 2]),
    "a negative round": pack_sealed(make_state(round=-1)),
    "a bool for a round": pack_sealed(make_state(round=True)),
    "a text for a seed": pack_sealed(make_state(seed="1")),
    "a list for the defense": pack_sealed(make_state(defense=[1])),
    "no round": pack_sealed({"seed": 1, "defense": None}),
    "another defense": pack_sealed(make_state(method="FoolsGold")),
    "a tensor for a method": pack_sealed(make_state(method=torch.ones(3))),
    "a changed tree": seal(GOOD.replace(b"dict", b"tict")),
    "a missing tensor": seal(pack_sealed(make_state(defense={"a": torch.ones(1)})).replace(b'\\"0\\"', b'\\"9\\"')),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_a_damaged_or_hostile_state_is_refused_and_changes_nothing(case: str, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(BAD_STATES[case])
    guard = Guard(seed=5)
    with pytest.raises(RunError, match="state"):
        guard.load(tmp_path / "state")
    assert (guard.round, guard.seed, guard.state) == (0, 5, None)


def test_a_folder_is_no_state(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not the state of a guard"):
        Guard().load(tmp_path)


def test_a_damaged_state_of_an_earlier_version_is_refused_in_the_first_round(replies: list[Reply]) -> None:
    guard = Guard(FoolsGold())
    guard.load_state_dict(make_state(method="FoolsGold", defense={"clients": 5}))  # which says nothing of the model
    with pytest.raises(RunError, match="its clients cannot be a int; start again without it: set on_other_state='fre"):
        guard(MODEL, replies)
    assert guard.round == 3


def test_the_state_of_another_model_is_refused_or_emptied_in_the_first_round(replies: list[Reply]) -> None:
    guard = Guard(FoolsGold())
    guard(MODEL, replies)
    state, other = guard.state_dict(), {name: tensor for name, tensor in MODEL.items() if name != "last.bias"}
    answers = [make_honest_reply(number, other) for number in range(8)]
    guard.load_state_dict(state)
    with pytest.raises(RunError, match="of client 'site-00' is not 20 numbers"):
        guard(other, answers)
    guard = Guard(FoolsGold(), on_other_state="fresh")
    guard.load_state_dict(state)
    assert not guard(other, answers).kept
    assert guard.round == 2


def test_damage_is_refused_at_loading_or_the_memory_starts_again(replies: list[Reply]) -> None:
    guard = Guard(FoolsGold(), on_other_state="fresh")
    guard(MODEL, replies)
    state = guard.state_dict()
    state["defense"]["clients"]["site-03"]["sum"][4] = torch.nan
    with pytest.raises(RunError, match=r"holds numbers that are NaN, infinite or far too large; start again"):
        Guard(FoolsGold()).load_state_dict(state)
    guard.load_state_dict(state)
    assert (guard.round, guard.state) == (1, None)


def test_a_state_may_spell_the_defense_in_another_case() -> None:
    guard = Guard(FLDetector())
    guard.load_state_dict(make_state(method="FlDetector"))
    assert guard.round == 3


def test_no_share_exceeds_the_limit_whatever_a_site_claims(replies: list[Reply]) -> None:
    large = Reply("site-07", 2000, replies[7].tensors)
    judgement = Guard(FedAvg(), max_share=0.4)(MODEL, [*replies[:7], large])
    others = np.array([reply.examples for reply in replies[:7]], float)
    shares = np.append(0.6 * others / others.sum(), 0.4)
    for name in ("first.weight", "norm.running_mean"):
        stacked = np.stack([reply.tensors[name].double().numpy() for reply in replies])
        np.testing.assert_allclose(judgement.tensors[name].numpy(), np.tensordot(shares, stacked, 1), rtol=0, atol=1e-6)
    counts = np.array([judgement.examples[reply.client] for reply in replies])
    np.testing.assert_allclose(counts / counts.sum(), shares)
    assert counts.sum() == pytest.approx(others.sum() + 2000)


def test_by_default_a_site_has_at_most_half_of_the_average(replies: list[Reply]) -> None:
    judgement = Guard(FedAvg())(MODEL, [*replies[:7], Reply("site-07", 2000, replies[7].tensors)])
    assert judgement.examples["site-07"] == pytest.approx(sum(judgement.examples.values()) / 2)
    assert (choose_max_share(1), choose_max_share(8), choose_max_share(100)) == (1, 0.5, 0.1)


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan"), "half"])
def test_a_share_that_cannot_be_is_one_sentence(share: Any) -> None:
    with pytest.raises(SettingError, match="max_share must be"):
        Guard(max_share=share)
