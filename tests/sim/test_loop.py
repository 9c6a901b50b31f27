import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch

from snowball.defenses import DEFENSES, ClientTask, Context, Verdict
from snowball.defenses.ops import elect_everyone
from snowball.errors import SettingError, UpdateError
from snowball.records.files import replace_non_finite
from snowball.records.rounds import PAIRS
from snowball.records.summary import has_top_down
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation, partition_data
from snowball.sim.loop import build_first_state, rehearse_round, simulate
from snowball.sim.round_record import measure_distances
from snowball.testing import make_toy_texts
from snowball.updates import Updates

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")


def collect_records(experiment: Experiment, **options: Any) -> list[dict[str, Any]]:
    return list(simulate(Federation.build(experiment), **options))


def drop_seconds(rounds: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in rounds]


def test_a_record_is_plain_json_and_complete(tiny: MakeExperiment) -> None:
    first, second = collect_records(tiny())
    assert json.loads(json.dumps([first, second], allow_nan=False)) == [first, second]
    assert (first["round"], second["round"]) == (1, 2)
    assert len(first["participants"]) == len(first["malicious"]) == len(first["elected"]) == len(first["map"]) == 5
    assert first["malicious"] == [int(client) < 2 for client in first["participants"]]
    assert sum(first["malicious"]) == 1
    assert 0 <= first["main_accuracy"] <= 1
    assert 0 <= first["backdoor_accuracy"] <= 1
    assert first["facts"]["clusters"] == 2
    assert {"train", "defense", "evaluate", "bottom_up"} <= set(first["seconds"])
    assert not any(name.startswith("seconds") for name in first["facts"])


def test_the_same_seed_gives_the_same_rounds(tiny: MakeExperiment) -> None:
    once = drop_seconds(collect_records(tiny()))
    assert drop_seconds(collect_records(tiny())) == once
    assert drop_seconds(collect_records(tiny("seed=4"))) != once


def test_a_state_in_the_middle_goes_on_as_if_nothing_had_been(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("rounds=3"))
    state = build_first_state(federation)
    running = simulate(federation, state=state)
    first = next(running)
    running.close()
    assert state.round == 1
    rest = list(simulate(federation, state=state))
    assert drop_seconds([first, *rest]) == drop_seconds(collect_records(tiny("rounds=3")))
    assert list(simulate(federation, state=state)) == []


def test_without_an_attack_the_rates_of_infected_are_null(tiny: MakeExperiment) -> None:
    record = collect_records(tiny("attack.name=none", "rounds=1", "defense.name=fedavg"))[0]
    assert record["backdoor_accuracy"] is None
    assert record["false_positive_rate"] is None
    assert record["false_negative_rate"] == 0


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        (["defense.name=snowball", "defense.grow_after=1"], [False, True]),
        (["defense.name=snowball", "defense.grow_after=2"], [False, False]),
        (["defense.name=snowball-minus"], [False, False]),
        (["defense.name=intersection"], [True, True]),
    ],
)
def test_a_record_tells_whether_a_top_down_election_was_held(
    tiny: MakeExperiment, changes: list[str], held: list[bool]
) -> None:
    assert [has_top_down(record) for record in collect_records(tiny(*changes))] == held


def test_ideal_elects_exactly_the_benign(tiny: MakeExperiment) -> None:
    record = collect_records(tiny("rounds=1", "defense.name=ideal"))[0]
    assert record["elected"] == [not bad for bad in record["malicious"]]
    assert (record["false_positive_rate"], record["false_negative_rate"]) == (0, 0)


def test_an_observer_sees_the_updates_and_the_truth(tiny: MakeExperiment) -> None:
    seen: list[tuple[tuple[str, ...], Sequence[bool], int, torch.Size]] = []

    def observe(updates: Updates, malicious: Sequence[bool], round: int) -> None:
        seen.append((updates.clients, malicious, round, updates.values.shape))

    rounds = collect_records(tiny(), observe=observe)
    truths = [dict(sorted(zip(record["participants"], record["malicious"], strict=True))) for record in rounds]
    assert seen == [
        (tuple(truth), list(truth.values()), record["round"], (5, 29640))
        for truth, record in zip(truths, rounds, strict=True)
    ]


@dataclass(frozen=True)
class Counting:
    """Keeps the model, counts rounds in its state, and reports facts that are not finite."""

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        count = (context.state or {"count": 0})["count"] + 1
        facts = {"count": count, "scores": torch.tensor([torch.nan] * 5), "far": float("inf"), "seconds.own": 0.5}
        return Verdict(torch.zeros(updates.layout.width), elect_everyone(updates), facts, {"count": count})


def test_a_defense_gets_its_state_and_its_facts_become_json(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEFENSES, "counting", Counting)
    rounds = collect_records(tiny("defense.name=counting"))
    assert [record["facts"]["count"] for record in rounds] == [1, 2]
    assert rounds[0]["facts"]["scores"] == [None] * 5
    assert rounds[0]["facts"]["far"] is None
    assert rounds[0]["seconds"]["own"] == 0.5
    assert rounds[0]["main_accuracy"] == rounds[1]["main_accuracy"]  # nothing was added to the model


def test_a_defense_is_told_the_device_that_clients_are_trained_on(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    class Asking(Counting):
        def __call__(self, updates: Updates, context: Context) -> Verdict:
            told.append(context.device)
            return super().__call__(updates, context)

    class Elsewhere(SerialEngine):
        def __init__(self, federation: Federation) -> None:
            super().__init__(federation)
            self.device = "cpu:0"

    monkeypatch.setitem(DEFENSES, "asking", Asking)
    collect_records(tiny("rounds=1", "defense.name=asking"), engine=Elsewhere)
    assert told == ["cpu", "cpu:0"]  # the rehearsal is on the CPU


def test_settings_that_no_round_could_satisfy_are_refused_before_any_training(tiny: MakeExperiment) -> None:
    with pytest.raises(SettingError, match="5 clusters need over 5 updates, got 5"):
        collect_records(tiny("defense.clusters=5"), engine=pytest.fail)


def test_a_defense_that_cannot_train_on_texts_is_refused_before_any_training(tiny: MakeExperiment) -> None:
    experiment = tiny("defense.name=flip", "attack.name=none", "model.name=gru-quarter")
    texts = make_toy_texts(300)
    parts = partition_data(texts, experiment.data, experiment.seed)
    federation = Federation(experiment=experiment, dataset=texts, parts=parts, attack=None, attack_setup=None)
    with pytest.raises(SettingError, match=r"^flip finds triggers in images .*, got samples of shape \(25, 8\)$"):
        list(simulate(federation, engine=pytest.fail))


TASKS: list[ClientTask] = []


@dataclass(frozen=True)
class Teaching(Counting):
    """Notes the tasks of clients, draws random numbers, and trains nothing."""

    def train(self, task: ClientTask) -> None:
        TASKS.append(task)
        torch.rand(1)
        torch.rand(1, generator=task.rng)


def test_a_lesson_is_rehearsed_on_two_samples_and_leaves_no_trace(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEFENSES, "teaching", Teaching)
    TASKS.clear()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    rehearse_round(Federation.build(tiny("defense.name=teaching")))
    (task,) = TASKS
    assert task.labels.tolist() == [0, 1]
    assert task.inputs.shape == (2, 1, 28, 28)
    assert torch.equal(torch.get_rng_state(), before)


def test_building_the_first_state_does_not_rehearse(tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFENSES, "teaching", Teaching)
    TASKS.clear()
    state = build_first_state(Federation.build(tiny("defense.name=teaching")))
    assert (state.round, state.defense, state.clients, TASKS) == (0, None, {}, [])


def test_training_that_diverges_is_said_with_its_round(tiny: MakeExperiment) -> None:
    with pytest.raises(UpdateError, match=r"^training diverged in round 1: .*; try a training\.lr below 1e\+20$"):
        collect_records(
            tiny("training.lr=1e20", "training.epochs=2", "defense.name=fedavg")
        )  # one step alone is finite


def test_mean_distances_by_hand() -> None:
    rows = torch.tensor([[0.0, 0.0], [30.0, 40.0], [3.0, 4.0], [30.0, 0.0], [0.0, 10.0]])
    products = Updates.from_layers({"w": rows[:, :1], "v": rows[:, 1:]}).products()
    found = measure_distances(products, [False, True, False, True, False])
    apart = {"benign": 5 + 10 + 45**0.5, "infected": 40}
    between = 50 + 30 + 45 + (27**2 + 4**2) ** 0.5 + (30**2 + 30**2) ** 0.5 + (30**2 + 10**2) ** 0.5
    expected = {"benign": apart["benign"] / 3, "between": between / 6, "infected": apart["infected"]}
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("malicious", "absent"),
    [([False, False], {"between", "infected"}), ([True, False], {"benign", "infected"}), ([True], {*PAIRS})],
)
def test_where_there_are_no_two_there_is_no_distance(malicious: list[bool], absent: set[str]) -> None:
    updates = Updates.from_layers({"w": torch.eye(len(malicious))})
    found = replace_non_finite(measure_distances(updates.products(), malicious))
    assert {name for name, value in found.items() if value is None} == absent


def test_benign_distances_keep_their_digits_beside_a_huge_row() -> None:
    rows = torch.tensor([[1e-3, 0.0], [0.0, 1e-3], [1e-3, 1e-3], [1e12, -1e12]], dtype=torch.float64)
    found = measure_distances(Updates.from_layers({"w": rows}).products(), [False, False, False, True])
    assert found["benign"] == pytest.approx((2 + 2**0.5) / 3 * 1e-3, rel=1e-9)


def test_recorded_distances_are_those_of_the_updates(tiny: MakeExperiment) -> None:
    seen: list[float] = []

    def observe(updates: Updates, malicious: Sequence[bool], round: int) -> None:
        benign = updates.values[~torch.tensor(malicious)].double()
        seen.append(float(torch.pdist(benign).mean()))

    rounds = collect_records(tiny(), observe=observe)
    assert [record["distances"]["benign"] for record in rounds] == pytest.approx(seen, rel=1e-9)
    assert all(record["distances"]["infected"] is None for record in rounds)  # one attacker a round


def test_recorded_distances_do_not_depend_on_the_engine(tiny: MakeExperiment) -> None:
    alone, shared = (
        [record["distances"] for record in collect_records(tiny(), engine=engine)]
        for engine in (SerialEngine, partial(ProcessEngine, workers=2))
    )
    assert alone == shared
