"""Flower strategies behind a guard: one that holds any strategy, and FedAvg with the defense's own aggregate."""

from collections.abc import Iterable
from inspect import signature
from logging import getLogger
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from snowball.guard import Guard
from snowball.integrations.flower.gate import Gate, encoded

logger = getLogger("flwr")

Aggregate = tuple[ArrayRecord | None, MetricRecord | None]
"""What a strategy makes of a round; no arrays leave the global model as it is."""

EXAMPLES = "num-examples"
"""The metric by which Flower's strategies weight, unless they are told another."""

OWN = ("strategy", "gate", "guard")
"""What belongs to the wrapper; all else is the strategy's."""


class Guarded(Strategy):
    """Any strategy, which gets to aggregate the replies that a guard lets through.

    Attributes:
        strategy: the one that samples clients and aggregates; its attributes are the wrapper's, too.
        guard: who judges.
    """

    def __init__(
        self, strategy: Strategy, guard: Guard | None = None, *, state: str | Path | None = None, **settings: Any
    ) -> None:
        self.strategy = strategy
        self.gate = Gate(guard, state, settings)

    @property
    def guard(self) -> Guard:
        """Who judges."""
        return self.gate.guard

    def __getattr__(self, name: str) -> Any:
        if name in OWN:  # asked for before there is one, as copying does
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN:
            super().__setattr__(name, value)
        else:
            setattr(self.strategy, name, value)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy ask, and remember what and whom: replies are judged by what they change."""
        return self.gate.ask(arrays, self.strategy.configure_train(server_round, arrays, config, grid))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        """Let the strategy aggregate the replies that the guard averages; the old model stays where it cannot."""
        memory = self.guard.state
        judgement, messages = self.gate.judge(replies, example_key(self.strategy))
        if judgement.kept:
            return self.gate.keep(judgement)
        try:
            arrays, metrics = self.strategy.aggregate_train(server_round, messages)
            model = self.gate.fit(arrays)
        except Exception as error:  # a strategy may stumble over what the guard lets through, too
            self.guard.state = memory
            return self.gate.keep(judgement, f"{type(self.strategy).__name__} failed: {error}")
        self.gate.record(judgement, model)
        return encoded(model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy ask."""
        messages: Iterable[Message] = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Let the strategy aggregate the metrics that can be."""
        key = example_key(self.strategy)
        return self.gate.evaluated(self.strategy.aggregate_evaluate, server_round, replies, key)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *rest: Any, **more: Any) -> Result:
        """Run the rounds as the strategy does, with the guard in between."""
        self.gate.expect(num_rounds)
        return type(self.strategy).start(self, grid, initial_arrays, num_rounds, *rest, **more)

    def summary(self) -> None:
        """Log the settings of guard and strategy."""
        self.gate.summary()
        self.strategy.summary()


class GuardedFedAvg(FedAvg):
    """FedAvg with the defense's own aggregate; takes FedAvg's settings, and a guard or the guard's settings."""

    def __init__(self, guard: Guard | None = None, *, state: str | Path | None = None, **settings: Any) -> None:
        guards = {name: settings.pop(name) for name in signature(Guard).parameters if name in settings}
        super().__init__(**settings)
        self.gate = Gate(guard, state, guards)

    @property
    def guard(self) -> Guard:
        """Who judges and aggregates."""
        return self.gate.guard

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask as FedAvg does, and remember what and whom."""
        return self.gate.ask(arrays, super().configure_train(server_round, arrays, config, grid))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        """The defense's model, and the metrics of those in it."""
        judgement, messages = self.gate.judge(replies, self.weighted_by_key)
        if judgement.kept:
            return self.gate.keep(judgement)
        try:
            metrics = self.train_metrics_aggr_fn([message.content for message in messages], self.weighted_by_key)
        except Exception as error:
            logger.warning("Round %d has no metrics of its training: %s", server_round, error)
            metrics = None
        self.gate.record(judgement, judgement.tensors)
        return encoded(judgement.tensors), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate the metrics that can be."""
        return self.gate.evaluated(super().aggregate_evaluate, server_round, replies, self.weighted_by_key)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *rest: Any, **more: Any) -> Result:
        """Run the rounds as FedAvg does."""
        self.gate.expect(num_rounds)
        return super().start(grid, initial_arrays, num_rounds, *rest, **more)

    def summary(self) -> None:
        """Log the settings of guard and FedAvg."""
        self.gate.summary()
        super().summary()


def example_key(strategy: Any) -> str:
    """The metric that says how many examples a client has: the strategy's, or that of one that it holds."""
    while strategy is not None:
        if isinstance(key := getattr(strategy, "weighted_by_key", None), str):
            return key
        strategy = getattr(strategy, "strategy", None)
    return EXAMPLES
