"""Tensors that are averaged but not judged: running statistics, and those named by the operator."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from snowball.data import load_dataset
from snowball.defenses import FedAvg
from snowball.guard import Guard, Reply
from snowball.guard.reply import ValidReply
from snowball.guard.validation import drop_overlong_updates, drop_stray_buffers, find_median, validate_replies

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply, change_reply = SHARED["MODEL"], SHARED["make_honest_reply"], SHARED["change_reply"]


def test_what_most_leave_alone_nobody_may_move() -> None:
    frozen = {"last_bias": MODEL["last.bias"] + 1, "first_weight": MODEL["first.weight"]}
    model = {**MODEL, "last.bias": frozen["last_bias"]}
    others = [change_reply(make_honest_reply(number), **frozen) for number in range(3)]
    mover = change_reply(make_honest_reply(9), **frozen | {"first_weight": 1.05 * MODEL["first.weight"]})
    guard = Guard(FedAvg(), buffers=["first.weight", "last.bias"])
    judgement = guard(model, [*others, mover])
    assert judgement.entry["dropped"] == [
        {"client": "site-09", "reason": "range", "detail": "it moves 'first.weight' by 0.109, above 0.017"}
    ]
    assert torch.equal(judgement.tensors["first.weight"], MODEL["first.weight"])


def test_half_precision_moves_what_is_left_alone_a_little() -> None:
    rough = {"first_weight": MODEL["first.weight"].bfloat16()}
    replies = [change_reply(make_honest_reply(number), first_weight=MODEL["first.weight"]) for number in range(3)]
    valid, dropped = validate_replies(
        [*replies, change_reply(make_honest_reply(9), **rough)], MODEL, unjudged=["first.weight"]
    )
    assert (len(valid), dropped) == (4, [])


@pytest.mark.parametrize(("times", "fine"), [(9, True), (11, False)])
def test_statistics_are_bounded_by_what_others_move_theirs(times: int, fine: bool) -> None:
    replies = [change_reply(make_honest_reply(number), norm_running_mean=torch.full((4,), 0.1)) for number in range(4)]
    replies.append(change_reply(make_honest_reply(9), norm_running_mean=torch.full((4,), -0.1 * times)))
    _, dropped = validate_replies(replies, MODEL, unjudged=["norm.running_mean"])
    assert [fault.client for fault in dropped] == ([] if fine else ["site-09"])


def test_a_client_astray_in_two_tensors_is_dropped_once() -> None:
    far = change_reply(
        make_honest_reply(9), norm_running_mean=torch.full((4,), 9.0), norm_running_var=torch.full((4,), 30.0)
    )
    _, dropped = validate_replies(
        [make_honest_reply(0), make_honest_reply(1), far], MODEL, unjudged=["norm.running_mean", "norm.running_var"]
    )
    assert [(fault.client, fault.reason) for fault in dropped] == [("site-09", "range")]


def find_dropped_norms(norms: list[float], model: float = 0.0) -> list[float]:
    """Return the norms of the updates that are dropped as too long for a model of this norm."""
    replies = [ValidReply(str(number), 1.0, {}, norm) for number, norm in enumerate(norms)]
    stay, dropped = drop_overlong_updates(replies, {"weight": torch.tensor([model])})
    assert {reply.client for reply in stay} | {fault.client for fault in dropped} == set(map(str, range(len(norms))))
    return [norms[int(fault.client)] for fault in dropped]


@pytest.mark.parametrize(
    ("usual", "model", "bound"),
    [
        (2.0, 0.0, 2000.0),  # a thousand times the median
        (2.0, 3000.0, 3000.0),  # the model's own norm
        (0.0, 0.0, 1.0),
        (1e14, 1e18, 1e15),  # whatever the others send
    ],
)
def test_updates_may_be_as_long_as_the_bound(usual: float, model: float, bound: float) -> None:
    assert find_dropped_norms([usual, usual, usual, bound], model) == []
    assert find_dropped_norms([usual, usual, usual, 1.01 * bound], model) == [1.01 * bound]


@pytest.mark.parametrize(
    ("usual", "size", "bound"), [(1.0, 1.0, 10.0), (0.01, 1.0, 1.0), (0.0, 1.0, 1 / 128), (0.0, 64.0, 0.5)]
)
def test_buffers_may_move_as_far_as_the_bound(usual: float, size: float, bound: float) -> None:
    own = {"mean": torch.tensor([size], dtype=torch.float64)}
    for move, dropped in ((bound, []), (1.01 * bound, ["3"])):
        replies = [
            ValidReply(str(number), 1.0, {"mean": own["mean"] + step}, step)
            for number, step in enumerate([usual, usual, usual, move])
        ]
        stay, stray = drop_stray_buffers(replies, own)
        assert isinstance(stray, list)
        assert [fault.client for fault in stray] == dropped
        assert [reply.client for reply in stay] == [str(number) for number in range(4) if str(number) not in dropped]


def test_replies_are_sorted_by_client_whatever_arrives_first() -> None:
    replies = [Reply(number, 10, make_honest_reply(number).tensors) for number in (2, 1, 3)]  # type: ignore[arg-type]
    valid, _ = validate_replies(replies, MODEL)
    assert [reply.client for reply in valid] == ["1", "2", "3"]


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    assert (find_median([4.0, 1.0, 3.0, 2.0]), find_median([])) == (2.0, 0.0)


def build_network() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 5, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)]
    return nn.Sequential(*layers)


def train_state(state: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return a model's state after one epoch."""
    model = build_network()
    model.load_state_dict(state)
    optimiser = torch.optim.SGD(model.parameters(), 0.05)
    for batch in torch.arange(len(labels)).split(10):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
        optimiser.step()
    return model.state_dict()


def test_honest_clients_with_one_label_each_keep_their_statistics_in_bounds() -> None:
    dataset = load_dataset("mnist-sample")
    inputs, labels = dataset.normalise(dataset.train.inputs), dataset.train.labels
    shards = [(labels == label).nonzero().flatten()[: 20 + 10 * label] for label in range(10)]
    shards += [torch.arange(start, start + 100) for start in range(0, 1000, 100)]  # as many with all labels
    model = build_network().state_dict()
    guard = Guard(FedAvg())
    for _ in range(4):
        replies = [
            Reply(str(number), len(shard), train_state(model, inputs[shard], labels[shard]))
            for number, shard in enumerate(shards)
        ]
        judgement = guard(model, replies)
        assert judgement.entry["dropped"] == []
        model = judgement.tensors
