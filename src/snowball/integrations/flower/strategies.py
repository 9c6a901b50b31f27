"""Guarded Flower strategies: one that wraps any strategy, and FedAvg with the defense's own aggregate."""

from collections.abc import Iterable
from inspect import signature
from logging import getLogger
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from snowball.guard import Guard
from snowball.integrations.flower._session import GuardSession, encode_model, enter_given_shares

logger = getLogger("flwr")

Aggregate = tuple[ArrayRecord | None, MetricRecord | None]
"""A strategy's result of a round; without arrays the global model stays as it is."""

DEFAULT_EXAMPLE_KEY = "num-examples"
"""The metric that Flower's strategies weight by, unless they are told another."""

WRAPPER_ATTRIBUTES = ("strategy", "guard_session", "guard")
"""Attributes of the wrapper itself; all others are the strategy's."""


class Guarded(Strategy):
    """Wraps any strategy, which aggregates only the replies that a guard lets through.

    Attributes:
        strategy: samples clients and aggregates; its attributes can be read and set on the wrapper.
        guard: judges the replies.
    """

    def __init__(
        self, strategy: Strategy, guard: Guard | None = None, *, state: str | Path | None = None, **settings: Any
    ) -> None:
        self.strategy = strategy
        self.guard_session = GuardSession(guard, state, settings)

    @property
    def guard(self) -> Guard:
        """The guard, which judges the replies."""
        return self.guard_session.guard

    def __getattr__(self, name: str) -> Any:
        if name in WRAPPER_ATTRIBUTES:  # read before it is set, as copying does
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in WRAPPER_ATTRIBUTES:
            super().__setattr__(name, value)
        else:
            setattr(self.strategy, name, value)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy ask clients, and remember the model and the clients: replies are judged by their changes."""
        return self.guard_session.remember_request(
            arrays, self.strategy.configure_train(server_round, arrays, config, grid)
        )

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        """Let the strategy aggregate the elected replies; the old model stays if it cannot."""
        before = self.guard.state, self.guard.known_names
        judgement, messages = self.guard_session.judge(replies, find_example_key(self.strategy))
        if judgement.kept:
            return self.guard_session.keep_model(judgement)
        try:
            arrays, metrics = self.strategy.aggregate_train(server_round, messages)
            model = self.guard_session.conform_to_model(arrays)
        except Exception as error:  # a strategy may fail on valid replies too
            self.guard.state, self.guard.known_names = before
            return self.guard_session.keep_model(judgement, f"{type(self.strategy).__name__} failed: {error}")
        self.guard_session.record(enter_given_shares(judgement), model)
        return encode_model(model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy ask clients."""
        messages: Iterable[Message] = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Let the strategy aggregate the metrics that can be averaged."""
        key = find_example_key(self.strategy)
        return self.guard_session.aggregate_evaluation(self.strategy.aggregate_evaluate, server_round, replies, key)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *rest: Any, **more: Any) -> Result:
        """Run the rounds as the strategy does, with guarded aggregation."""
        self.guard_session.announce_rounds(num_rounds)
        return type(self.strategy).start(self, grid, initial_arrays, num_rounds, *rest, **more)

    def summary(self) -> None:
        """Log the settings of the guard and the strategy."""
        self.guard_session.log_settings()
        self.strategy.summary()


class GuardedFedAvg(FedAvg):
    """FedAvg with the defense's own aggregate; takes FedAvg's settings, and a guard or a guard's settings."""

    def __init__(self, guard: Guard | None = None, *, state: str | Path | None = None, **settings: Any) -> None:
        guard_settings = {name: settings.pop(name) for name in signature(Guard).parameters if name in settings}
        super().__init__(**settings)
        self.guard_session = GuardSession(guard, state, guard_settings)

    @property
    def guard(self) -> Guard:
        """The guard, which judges and aggregates."""
        return self.guard_session.guard

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients as FedAvg does, and remember the model and the clients."""
        return self.guard_session.remember_request(arrays, super().configure_train(server_round, arrays, config, grid))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        """Return the defense's model and the averaged clients' metrics."""
        judgement, messages = self.guard_session.judge(replies, self.weighted_by_key)
        if judgement.kept:
            return self.guard_session.keep_model(judgement)
        try:
            metrics = self.train_metrics_aggr_fn([message.content for message in messages], self.weighted_by_key)
        except Exception as error:
            logger.warning("Round %d has no training metrics: %s", server_round, error)
            metrics = None
        self.guard_session.record(judgement, judgement.tensors)
        return encode_model(judgement.tensors), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate the metrics that can be averaged."""
        return self.guard_session.aggregate_evaluation(
            super().aggregate_evaluate, server_round, replies, self.weighted_by_key
        )

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *rest: Any, **more: Any) -> Result:
        """Run the rounds as FedAvg does."""
        self.guard_session.announce_rounds(num_rounds)
        return super().start(grid, initial_arrays, num_rounds, *rest, **more)

    def summary(self) -> None:
        """Log the settings of the guard and FedAvg."""
        self.guard_session.log_settings()
        super().summary()


def find_example_key(strategy: Any) -> str:
    """Return the metric that holds the example count: the strategy's, or that of a strategy it wraps."""
    while strategy is not None:
        if isinstance(key := getattr(strategy, "weighted_by_key", None), str):
            return key
        strategy = getattr(strategy, "strategy", None)
    return DEFAULT_EXAMPLE_KEY
