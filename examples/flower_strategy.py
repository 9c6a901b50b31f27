"""Snowball's election in front of Flower's FedAvg: the strategy averages the elected replies and never sees the others.

Needs flwr 1.41 or later and its message API. In a ServerApp, put `ElectedFedAvg(...)` where `FedAvg(...)` stands; where
another averaging strategy stands, make that the base class. Flower does not tell a strategy how many rounds there will
be, so say after which one the election may grow from the few with most votes: `ElectedFedAvg(Snowball(grow_after=25))`.

A reply that cannot be read or does not fit the model costs its round: the old global model stays and the log says why.
What is not done here: dropping such a reply alone, bounding the number of examples that an elected client claims, by
which FedAvg weights it, and keeping the election's state for a server that starts anew. Fewer than four replies cannot
be told apart: all of them are averaged.
"""

from collections.abc import Iterable
from logging import getLogger
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from snowball.defenses import Context, Defense, Snowball, State
from snowball.errors import SettingError
from snowball.updates import Arrays, Updates

logger = getLogger("flwr")


class ElectedFedAvg(FedAvg):
    """Average the replies that a defense elects, by default Snowball."""

    def __init__(self, defense: Defense | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.defense = defense or Snowball()
        self.state: State | None = None
        self.base: Arrays = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the global model: the replies are judged by what they change in it."""
        self.base = numbers(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the elected to the strategy, and the failures, which it logs."""
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        answers = [reply for reply in replies if not reply.has_error()]
        try:
            elected = self.elect(server_round, answers) if answers else []
            return super().aggregate_train(server_round, failed + elected)
        except SettingError:
            raise
        except Exception as refusal:  # what a client sends can be wrong in any way, and must not end the run
            logger.warning("Round %d keeps the old global model: %r", server_round, refusal)
            return None, None

    def elect(self, server_round: int, answers: list[Message]) -> list[Message]:
        """The answers that the defense elects."""
        nodes = [str(answer.metadata.src_node_id) for answer in answers]
        states, examples = [], []
        for answer in answers:
            (arrays,), (metrics,) = answer.content.array_records.values(), answer.content.metric_records.values()
            states.append(numbers(arrays))
            examples.append(metrics[self.weighted_by_key])
        updates = Updates.from_states(self.base, states, np.array(examples, dtype=float), nodes)
        verdict = self.defense(updates, Context(server_round, state=self.state))
        self.state = verdict.state
        rows = verdict.elected.nonzero().flatten().tolist()
        logger.info("Elected %d of %d: nodes %s", len(rows), len(nodes), ", ".join(nodes[row] for row in rows))
        return [answers[row] for row in rows]


def numbers(arrays: ArrayRecord) -> Arrays:
    """The arrays of a record by name, refused if they are not real numbers."""
    return {name: array.numpy().astype(np.float32, casting="same_kind") for name, array in arrays.items()}
