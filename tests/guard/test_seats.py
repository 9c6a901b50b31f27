"""Copies count as one, and an update of no length has no seat."""

import runpy
from pathlib import Path

import pytest
import torch

from snowball.defenses import FedAvg, Snowball, SnowballPlus
from snowball.guard import Guard, Judgement, Reply, seats

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply, change_reply = SHARED["MODEL"], SHARED["make_honest_reply"], SHARED["change_reply"]
TRAINED = ("first.weight", "last.weight", "last.bias")


def ride(client: str, step: float = 0.0) -> Reply:
    """Return a reply that moves running statistics as others do, but what is trained by next to nothing."""
    honest = make_honest_reply(50)
    rng = torch.Generator().manual_seed(int(client[-2:]))
    trained = {name: MODEL[name] + step * torch.randn(MODEL[name].shape, generator=rng) for name in TRAINED}
    return Reply(client, 20, {**honest.tensors, **trained})


def copy_reply(reply: Reply, client: str) -> Reply:
    return Reply(client, 20, {name: tensor.clone() for name, tensor in reply.tensors.items()})


def list_dropped(judgement: Judgement) -> dict[str, str]:
    return {fault["client"]: fault["reason"] for fault in judgement.entry["dropped"]}


@pytest.mark.parametrize("step", [0.0, 1e-7])
def test_whoever_sends_the_model_back_has_no_seat(replies: list[Reply], step: float) -> None:
    defense = Snowball(grow_after=0, clusters=3)
    riders = [ride(f"site-{number}", step) for number in (91, 92)]
    judgement = Guard(defense, seed=1)(MODEL, [*replies, *riders])
    assert list_dropped(judgement) == {"site-91": "no-length", "site-92": "no-length"}
    assert judgement.averaged == Guard(defense, seed=1)(MODEL, replies).averaged
    assert "long, the median is" in judgement.entry["dropped"][0]["detail"]


def test_a_site_with_a_hundredth_of_the_usual_steps_keeps_its_seat(replies: list[Reply]) -> None:
    assert "site-91" in Guard(FedAvg())(MODEL, [*replies, ride("site-91", 3e-4)]).averaged


def test_copies_have_one_seat_and_the_weight_of_one(replies: list[Reply]) -> None:
    copies = [copy_reply(replies[2], f"site-{number}") for number in (91, 92)]
    copies[0] = change_reply(copies[0], norm_running_mean=torch.full((4,), 0.03))  # nobody votes on statistics
    judgement = Guard(FedAvg(), seed=1)(MODEL, [*replies, *copies])
    dropped = list_dropped(judgement)
    assert set(dropped.values()) == {"copy"}
    (kept,) = {"site-02", "site-91", "site-92"} - dropped.keys()
    assert kept in judgement.averaged
    assert len(judgement.averaged) == len(replies)
    alone = Guard(FedAvg(), seed=1)(MODEL, [*replies[:2], Reply("site-02", 20, replies[2].tensors), *replies[3:]])
    if kept != "site-02":
        torch.testing.assert_close(judgement.tensors["first.weight"], alone.tensors["first.weight"])


def test_lots_choose_which_copy_stays(replies: list[Reply]) -> None:
    kept = set()
    for seed in range(12):
        judgement = Guard(FedAvg(), seed=seed)(MODEL, [*replies, copy_reply(replies[2], "site-91")])
        kept |= {"site-02", "site-91"} - list_dropped(judgement).keys()
    assert kept == {"site-02", "site-91"}


def test_opposite_updates_of_one_length_are_not_copies() -> None:
    model = {"weight": torch.zeros(2, 2)}
    answers = [Reply("a", 1, {"weight": torch.eye(2)}), Reply("b", 1, {"weight": -torch.eye(2)})]
    assert Guard(FedAvg())(model, answers).averaged == ("a", "b")


def test_replies_that_differ_where_no_number_is_sampled_are_not_copies() -> None:
    model, steps = {"weight": torch.zeros(1000), "bias": torch.zeros(2)}, torch.zeros(3, 1000)
    steps[0, 1] = steps[1, 2] = steps[2, 2] = 1.0  # equal lengths, and equal at every fifteenth number
    answers = [
        Reply(client, 1, {"weight": step, "bias": torch.zeros(2)}) for client, step in zip("abc", steps, strict=True)
    ]
    judgement = Guard(FedAvg(), seed=1)(model, answers)
    assert len(judgement.averaged) == 2
    assert "a" in judgement.averaged


def test_replies_of_equal_length_are_not_read_again_if_sampled_numbers_tell_them_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = {"weight": torch.zeros(4, 4), "bias": torch.zeros(0)}
    answers = [Reply(f"{row}", 1, {"weight": torch.eye(4).roll(row, 1), "bias": torch.zeros(0)}) for row in range(4)]
    monkeypatch.setattr(seats, "hash_model", None)
    assert Guard(FedAvg())(model, answers).averaged == ("0", "1", "2", "3")


@pytest.mark.parametrize("mode", ["enforce", "monitor"])
def test_a_round_of_nothing_but_copies_or_zeros_keeps_the_model(replies: list[Reply], mode: str) -> None:
    same = [copy_reply(replies[0], f"site-{number}") for number in range(10, 18)]
    idle = [ride(f"site-{number}") for number in range(10, 18)]
    for answers, reason in ((same, "copy"), (idle, "no-length"), ([*same[:4], *idle[4:]], "copy, no-length")):
        for defense in (FedAvg(), SnowballPlus()):
            judgement = Guard(defense, mode)(MODEL, answers)  # type: ignore[arg-type]
            assert judgement.kept
            assert judgement.entry["reason"] == f"there is no reply to judge: all dropped for {reason}"
            assert torch.equal(judgement.tensors["first.weight"], MODEL["first.weight"])


def test_the_turnout_is_that_of_distinct_updates(replies: list[Reply]) -> None:
    copies = [copy_reply(replies[0], f"site-{number}") for number in range(10, 17)]
    asked = [reply.client for reply in (*replies[:2], *copies)]
    judgement = Guard(FedAvg())(MODEL, [*replies[:2], *copies], asked=asked)
    assert "low turnout: 2 of 9 asked sent a valid reply" in str(judgement.entry["reason"])
