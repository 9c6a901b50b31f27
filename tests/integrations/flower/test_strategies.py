"""Guarded strategies aggregate as the strategy or the defense would, over the replies that the guard lets through."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flower_federation import (
    GLOBAL,
    NODES,
    Make,
    ask_nodes,
    assert_average,
    compute_average,
    make_guarded,
    make_reply,
    reply_with_nan,
    train_node,
)
from flwr.serverapp.strategy import FedAvg

from snowball import defenses
from snowball.defenses import FLAME, RLR, Context, Median, MultiKrum, Snowball, Verdict
from snowball.errors import SettingError, UpdateError
from snowball.guard import AuditLog, Guard, Reply
from snowball.integrations.flower import Guarded, GuardedFedAvg
from snowball.updates import Updates

pytestmark = pytest.mark.usefixtures("runtime")


def test_with_fedavg_for_defense_the_model_is_flowers_own(make: Make) -> None:
    strategy, plain = make(defense=defenses.FedAvg()), FedAvg()
    replies = [make_reply(message, loss=message.metadata.dst_node_id) for message in ask_nodes(strategy)]
    arrays, metrics = strategy.aggregate_train(1, replies)
    expected, expected_metrics = plain.aggregate_train(1, replies)
    for name in ("first", "last"):
        np.testing.assert_allclose(arrays[name].numpy(), expected[name].numpy(), atol=1e-6, rtol=1e-6)
    assert dict(metrics) == pytest.approx(dict(expected_metrics))


def test_types_and_order_are_the_models_and_counters_stay_counters(make: Make) -> None:
    strategy = make(defense=defenses.FedAvg())
    arrays, _ = strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy)))
    assert [array.numpy().dtype for array in arrays.values()] == [np.float32, np.float32, np.int64]
    highest, mean = 7 + max(NODES), round(float(compute_average(NODES, "counter")))
    assert arrays["counter"].numpy() == (highest if make is GuardedFedAvg else mean)


@pytest.mark.parametrize("defense", [Median(), FLAME(), RLR(), Snowball()], ids=lambda defense: type(defense).__name__)
def test_guarded_fedavg_gives_the_defenses_own_aggregate(defense: Any) -> None:
    strategy, guard = GuardedFedAvg(defense=defense, seed=3, rounds=10), Guard(defense, seed=3, rounds=10)
    replies = list(map(make_reply, ask_nodes(strategy)))
    arrays, metrics = strategy.aggregate_train(1, replies)
    expected = guard(GLOBAL, [Reply(str(node), 10 + node, train_node(node)) for node in NODES])
    for name, values in expected.tensors.items():
        np.testing.assert_array_equal(arrays[name].numpy(), values.numpy())
    assert metrics == {}


def test_the_elected_alone_reach_the_strategy(audit: AuditLog) -> None:
    strategy = Guarded(FedAvg(), defense=MultiKrum(tolerate=2, elect=5), audit=audit.path)
    far, opposite, *rest = ask_nodes(strategy)
    replies = [make_reply(far, train_node(1, -3.0)), make_reply(opposite, train_node(2, -3.0)), *map(make_reply, rest)]
    arrays, _ = strategy.aggregate_train(1, replies)
    (entry,) = audit.read_entries()
    assert len(entry["elected"]) == 5
    assert {"1", "2"} <= set(entry["left_out"])
    assert_average(arrays, [int(client) for client in entry["averaged"]])


def test_in_monitor_mode_everybody_sane_is_averaged_and_the_audit_says_who_would_not_be(audit: AuditLog) -> None:
    strategy = Guarded(FedAvg(), defense=MultiKrum(tolerate=2, elect=5), mode="monitor", audit=audit.path)
    first, *rest = ask_nodes(strategy)
    arrays, _ = strategy.aggregate_train(1, [reply_with_nan(first), *map(make_reply, rest)])
    assert_average(arrays, NODES[1:])
    (entry,) = audit.read_entries()
    assert len(entry["left_out"]) == 2


def test_the_defense_sees_what_each_node_changed() -> None:
    seen: list[tuple[Updates, Context]] = []

    def everybody(updates: Updates, context: Context) -> Verdict:
        seen.append((updates, context))
        return defenses.FedAvg()(updates, context)

    strategy = make_guarded(defense=everybody)
    doubled = {name: values * 2 for name, values in GLOBAL.items()}
    strategy.aggregate_train(5, map(make_reply, ask_nodes(strategy, doubled, 5)))
    (updates, context), *_ = seen
    assert updates.clients == tuple(map(str, NODES))
    assert updates.examples.tolist() == [10 + node for node in NODES]
    change = updates.layout.split(updates.values[0])["first"]
    np.testing.assert_allclose(change, train_node(1)["first"] - doubled["first"], rtol=1e-5)
    assert context.round == 1


def test_a_guard_and_settings_of_a_guard_contradict_each_other(make: Make) -> None:
    with pytest.raises(SettingError, match="min_elected and a guard are given"):
        make(guard=Guard(), min_elected=2)
    guard = Guard()
    assert make(guard=guard).guard is guard


def test_a_setting_that_nobody_has_is_refused(make: Make) -> None:
    with pytest.raises(TypeError, match="min_elect"):
        make(min_elect=2)


def test_before_the_first_configuration_there_is_nothing_to_judge_by(make: Make) -> None:
    with pytest.raises(UpdateError, match="call configure_train first"):
        make().aggregate_train(1, [])
