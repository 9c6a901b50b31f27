from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor, nn

from snowball.defenses.base import ClientTask, State
from snowball.defenses.flip import InversionSettings, hardening
from snowball.defenses.flip.hardening import ANY, Hardening, Memory, group_by_label
from snowball.defenses.flip.inversion import Effort, Goal, mask_sizes
from snowball.rng import stream
from snowball.serialization import pack, unpack

CLASSES = 4
SHAPE = (1, 4, 4)


class Recorder(nn.Module):
    """A linear model that keeps what it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, CLASSES, bias=False)
        nn.init.normal_(self.layer.weight, generator=stream(0, "weights"))
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        if self.layer.weight.requires_grad:
            self.seen.append(images.clone())
        scores: Tensor = self.layer(images.flatten(1))
        return scores


@dataclass
class Inverter:
    """Stands in for `invert_triggers`: gives white triggers of so many pixels, and keeps what it is asked."""

    pixels: list[int]
    colour: float = 1.0
    goals: list[Goal] = field(default_factory=list)
    starts: list[Tensor] = field(default_factory=list)
    efforts: list[Effort] = field(default_factory=list)

    def __call__(
        self, model: nn.Module, goal: Goal, start: Tensor, effort: Effort, settings: object, rng: object
    ) -> tuple[Tensor, Tensor]:
        self.goals.append(goal)
        self.starts.append(start)
        self.efforts.append(effort)
        triggers = torch.zeros_like(start)
        for trigger, pixels in zip(triggers, self.pixels, strict=False):
            trigger[0].view(-1)[:pixels] = 1
        triggers[:, 1:] = self.colour
        return triggers, mask_sizes(triggers)


@pytest.fixture
def inverter(monkeypatch: pytest.MonkeyPatch) -> Inverter:
    stand_in = Inverter([2, 2])
    monkeypatch.setattr(hardening, "invert_triggers", stand_in)
    return stand_in


def make_task(labels: list[int], state: State | None = None, seed: int = 0) -> ClientTask:
    """Grey images, all alike, with these labels."""
    images = torch.full((len(labels), *SHAPE), 0.5)
    return ClientTask(
        model=Recorder(),
        inputs=images,
        labels=torch.tensor(labels),
        classes=CLASSES,
        epochs=5,
        batch=10,
        rate=0.01,
        rng=stream(seed, "lesson"),
        state=state,
    )


def seen(task: ClientTask) -> list[Tensor]:
    assert isinstance(task.model, Recorder)
    return task.model.seen


def stamped(images: Tensor) -> Tensor:
    """Which images carry the stand-in's trigger of two pixels."""
    whole = (images.flatten(1)[:, :2] == 1).all(1) & (images.flatten(1)[:, 2:] == 0.5).all(1)
    assert (whole | (images == 0.5).all(3).all(2).all(1)).all()  # others are as they were
    return whole


def warmed(sizes: Tensor | None = None, priorities: Tensor | None = None) -> State:
    """The state of a client that has been through all classes."""
    nothing = torch.zeros(CLASSES, CLASSES)
    known = (nothing if each is None else each for each in (sizes, priorities))
    return Memory(CLASSES, *known).state()


def only(source: int, target: int) -> Tensor:
    """Priorities that single out one pair."""
    priorities = torch.zeros(CLASSES, CLASSES)
    priorities[source, target] = 1
    return priorities


def harden(task: ClientTask, batches: int = 1, portion: float = 0.5) -> Hardening:
    """So many batches of all samples."""
    client = Hardening(task, portion, 0.01, InversionSettings())
    for _ in range(batches):
        client.train(torch.arange(len(task.labels)))
    return client


def harden_until(task: ClientTask, way: tuple[int, int]) -> Hardening:
    """One batch of a client that happens to take this pair."""
    for seed in range(20):
        client = harden(replace(task, rng=stream(seed, "lesson")))
        if client.pair and client.pair.way == way:
            return client
    raise AssertionError(f"nobody took {way}")


def test_members_are_of_classes_with_more_than_the_least() -> None:
    assert {label: index.tolist() for label, index in group_by_label(torch.tensor([2, 0, 2, 1, 2, 0]), 1).items()} == {
        0: [1, 5],
        2: [0, 2, 4],
    }
    assert group_by_label(torch.tensor([2, 0]), 1) == {}
    assert group_by_label(torch.tensor([], dtype=torch.int64), 1) == {}


def test_priorities_start_as_shares_of_the_largest_universal_mask() -> None:
    memory = Memory.of(None, 3)
    for sources, size in (([1, 2], 10.0), ([0, 2], 40.0), ([0, 1], 0.0)):
        assert memory.warmed < 3
        memory.warm(sources, size)
    assert memory.warmed == 3
    assert memory.sizes.tolist() == [[0, 40, 0], [10, 0, 0], [10, 40, 0]]
    assert memory.priorities.tolist() == [[0, 1, 0], [0.25, 0, 0], [0.25, 1, 0]]


def test_priorities_are_finite_where_no_universal_trigger_was_found() -> None:
    memory = Memory.of(None, 2)
    memory.warm([1], 0.0)
    memory.warm([], 0.0)
    assert memory.priorities.tolist() == [[0, 0], [0, 0]]


def test_a_priority_is_the_mean_of_itself_and_of_the_growth_of_the_mask() -> None:
    memory = Memory(2, torch.tensor([[0.0, 40], [0, 0]]), torch.tensor([[0, 0.8], [0.3, 0]]))
    memory.measure((0, 1), 60.0)
    assert memory.priorities[0, 1] == pytest.approx((0.8 + 0.5) / 2)
    assert memory.sizes[0, 1] == 60
    memory.measure((0, 1), 15.0)
    assert memory.priorities[0, 1] == pytest.approx((0.65 - 0.75) / 2)
    memory.measure((0, 1), 0.0)  # none found
    assert memory.priorities[0, 1] == pytest.approx(-0.025)
    assert memory.sizes[0, 1] == 15
    memory.measure((1, 0), 7.0)  # nothing to compare it with
    assert memory.priorities[1, 0] == 0
    assert memory.sizes[1, 0] == 7


def test_pairs_are_chosen_by_priority_and_now_and_then_at_random() -> None:
    memory = Memory(CLASSES, torch.zeros(CLASSES, CLASSES), only(2, 0))
    memory.priorities[3, 0] = 2  # nobody holds class 3
    rng = stream(0, "choose")
    chosen = Counter(memory.choose([1, 2], rng) for _ in range(600))
    pairs = {(source, target) for source in (1, 2) for target in range(CLASSES) if source != target}
    assert set(chosen) == pairs
    assert chosen[2, 0] == pytest.approx(600 * (0.7 + 0.3 / 6), rel=0.1)


def test_equal_priorities_take_turns() -> None:
    memory = Memory.of(None, CLASSES)
    assert len({memory.choose([0], stream(seed, "choose")) for seed in range(40)}) == 3


def test_every_class_has_a_batch_under_its_universal_trigger(inverter: Inverter) -> None:
    task = make_task([0, 0, 1, 1, 1, 2, 3, 3])
    client = harden(task, batches=CLASSES)
    assert [goal.targets.unique().tolist() for goal in inverter.goals] == [[0], [1], [2], [3]]
    assert [len(goal.images) for goal in inverter.goals] == [2, 2, 3, 2]  # one a class; class 2 has too few
    assert set(inverter.efforts) == {Effort(400, 1e-3)}
    for target, images in enumerate(seen(task)):
        others = task.labels != target
        assert stamped(images).sum() == int(0.5 * int(others.sum()))
        assert not stamped(images)[~others].any()
    assert client.memory.sizes.tolist() == [[0, 2, 2, 2], [2, 0, 2, 2], [0, 0, 0, 0], [2, 2, 2, 0]]
    assert set(client.memory.triggers) == {(ANY, target) for target in range(CLASSES)}


def test_classes_that_a_lesson_has_no_time_for_come_in_the_next(inverter: Inverter) -> None:
    state = harden(make_task([0, 0, 1, 1]), batches=3).memory.state()
    assert state["warmed"] == 3
    assert state["priorities"].max() == 2  # pixels, as long as they are not all known
    client = harden(make_task([0, 0, 1, 1], state), batches=2)
    assert client.memory.warmed == CLASSES
    assert client.memory.priorities.max() == 1
    assert [effort.steps for effort in inverter.efforts] == [400, 400, 400, 400, 200]  # a pair at last


def test_a_pair_with_both_classes_is_hardened_both_ways(inverter: Inverter) -> None:
    task = make_task([0] * 4 + [1] * 8 + [2] * 5, warmed(priorities=only(0, 1)))
    harden_until(task, (0, 1))
    goal = inverter.goals[-1]
    assert goal.targets.tolist() == [1] * 4 + [0] * 8
    assert goal.owner.tolist() == [0] * 4 + [1] * 8
    marks = stamped(seen(task)[-1])
    assert [int(marks[task.labels == label].sum()) for label in range(3)] == [2, 2, 0]  # half of the smaller class


def test_a_pair_whose_target_is_absent_is_hardened_one_way(inverter: Inverter) -> None:
    task = make_task([0] * 6 + [1], warmed(priorities=only(0, 3)))
    client = harden_until(task, (0, 3))
    assert inverter.goals[-1].targets.tolist() == [3] * 6
    assert int(stamped(seen(task)[-1])[:6].sum()) == 3
    assert set(client.memory.triggers) == {(0, 3)}


def test_a_pair_has_two_batches_the_second_with_a_short_search(inverter: Inverter) -> None:
    client = harden(make_task([0] * 4 + [1] * 4, warmed()), batches=4)
    assert inverter.efforts == [Effort(200, 1e-3), Effort(50, 1e-2)] * 2
    first, second = inverter.goals[:2]
    assert torch.equal(first.targets, second.targets)
    assert int((client.memory.sizes > 0).sum()) >= 1
    assert client.memory.priorities.isfinite().all()


def test_the_second_search_is_long_where_the_first_found_nothing(inverter: Inverter) -> None:
    inverter.pixels = [0, 0]
    client = harden(make_task([0] * 4 + [1] * 4, warmed(torch.full((CLASSES, CLASSES), 8.0), only(0, 1))), batches=2)
    assert inverter.efforts == [Effort(200, 1e-3)] * 2
    assert client.pair
    assert client.memory.priorities[client.pair.way] in (0.0, 0.5)
    assert client.memory.sizes[client.pair.way] == 8
    assert client.memory.triggers == {}


def test_the_size_of_a_pair_is_the_mean_over_its_batches(inverter: Inverter) -> None:
    client = Hardening(make_task([0] * 4, warmed(torch.full((CLASSES, CLASSES), 1.0))), 0.5, 0.01, InversionSettings())
    for pixels in (2, 1):
        inverter.pixels = [pixels]
        client.train(torch.arange(4))
    assert client.pair
    assert client.memory.sizes[client.pair.way] == 1.5
    assert client.memory.priorities[client.pair.way] == 0.25


def test_a_search_starts_from_the_last_trigger_or_else_from_the_universal_one(inverter: Inverter) -> None:
    client = Hardening(make_task([0] * 4, warmed()), 0.5, 0.01, InversionSettings())
    client.memory.triggers = {(ANY, target): torch.full((2, 4, 4), target / 10) for target in range(1, CLASSES)}
    for _ in range(2):
        client.train(torch.arange(4))
    assert client.pair
    assert torch.equal(inverter.starts[0][0], torch.full((2, 4, 4), client.pair.way[1] / 10))
    assert mask_sizes(inverter.starts[1]).tolist() == [2.0]


def test_stamped_images_stay_in_bounds(inverter: Inverter) -> None:
    inverter.colour = 1.5
    task = make_task([0] * 4, warmed())
    harden(task)
    assert seen(task)[0].max() == 1


def test_a_batch_whose_mask_is_too_large_is_trained_on_as_it_is(inverter: Inverter) -> None:
    inverter.pixels = [3, 3]  # of 16, an eighth allowed
    task = make_task([0] * 4 + [1] * 4, warmed())
    before = task.model.state_dict()["layer.weight"].clone()
    client = harden(task, batches=2)
    assert all((images == 0.5).all() for images in seen(task))
    assert not torch.equal(task.model.state_dict()["layer.weight"], before)
    assert not client.memory.sizes.any()
    assert client.memory.triggers  # to start from the next time


def test_a_pair_is_left_when_its_source_is_not_in_the_batch(inverter: Inverter) -> None:
    task = make_task([0] * 4 + [1] * 4, warmed())
    client = Hardening(task, 0.5, 0.01, InversionSettings())
    for half in (torch.arange(4), torch.arange(4, 8)):
        client.train(half)
    assert [goal.images.shape[0] for goal in inverter.goals] == [4, 4]
    assert inverter.efforts == [Effort(200, 1e-3)] * 2
    assert not client.memory.sizes.any()  # neither had its second batch


@pytest.mark.parametrize("labels", [[2], [2, 2, 2], [0, 1, 2, 3], [0, 0, 1, 1, 3, 3, 3]])
def test_few_samples_few_classes_and_absent_ones_are_no_trouble(labels: list[int]) -> None:
    quick = InversionSettings(universal_steps=3, pair_steps=3, repeat_steps=2)
    task = make_task(labels)
    before = task.model.state_dict()["layer.weight"].clone()
    client = Hardening(task, 0.5, 0.01, quick)
    for _ in range(CLASSES + 3):
        client.train(torch.arange(len(labels)))
    after = task.model.state_dict()["layer.weight"]
    assert after.isfinite().all()
    assert not torch.equal(after, before)
    state = client.memory.state()
    assert all(state[name].isfinite().all() for name in ("sizes", "priorities"))


def test_state_survives_packing_and_is_never_written_to(inverter: Inverter) -> None:
    inverter.pixels = [1, 2]
    first = harden(make_task([0, 0, 1, 1, 2, 2]), batches=6).memory.state()
    content = pack(first)
    outcomes = []
    for state in (first, unpack(content)):
        client = harden(make_task([0, 0, 1, 1, 2, 2], state, seed=1), batches=3)
        outcomes.append(pack(client.memory.state()))
    assert outcomes[0] == outcomes[1]
    assert pack(first) == content


def test_triggers_are_kept_as_bytes() -> None:
    memory = Memory.of(None, 2)
    memory.triggers[0, 1] = torch.rand(2, 5, 5, generator=stream(0, "trigger"))
    state = memory.state()
    assert state["triggers"].dtype == torch.uint8
    back = Memory.of(state, 2).triggers
    assert list(back) == [(0, 1)]
    torch.testing.assert_close(back[0, 1], memory.triggers[0, 1], atol=0.5 / 255 + 1e-6, rtol=0)
    assert Memory.of(Memory.of(None, 2).state(), 2).triggers == {}
