"""Between Flower's messages and the guard: what Flower's strategies have in common when they are guarded."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord

from snowball.errors import SettingError, UpdateError
from snowball.guard import Guard, Judgement, Reply
from snowball.integrations.flower.replies import DETAIL, Arrays, alike, counts, read, sound, usual_of
from snowball.records.audit import JudgedRound, count_clients

logger = getLogger("flwr")


class Gate:
    """A guard, where its state is kept, and what it has to know of the round under way.

    Attributes:
        model: the global arrays that were sent out; none before the first round.
        sent: what Flower knows of the messages that carried them; it gives them their ids later.
    """

    def __init__(self, guard: Guard | None, state: str | Path | None, settings: Mapping[str, Any]) -> None:
        if guard is not None and settings:
            raise SettingError(f"{', '.join(settings)} and a guard are given: set the guard's own settings instead")
        self.guard = Guard(**settings) if guard is None else guard
        self.state = None if state is None else Path(state)
        self.counted = self.guard.rounds is None
        self.model: Arrays = {}
        self.sent: list[Metadata] = []
        if self.state is not None and self.guard.load(self.state):
            logger.info("The guard goes on after round %d, from %s", self.guard.round, self.state)

    def expect(self, rounds: int) -> None:
        """Tell the guard how many rounds there will be, unless it was told."""
        if self.counted:
            self.guard.rounds = self.guard.round + rounds

    def ask(self, arrays: ArrayRecord, messages: Iterable[Message]) -> list[Message]:
        """Remember the global model and who gets it."""
        messages = list(messages)
        self.model = {name: array.numpy() for name, array in arrays.items()}
        self.sent = [message.metadata for message in messages]
        return messages

    @property
    def asked(self) -> list[str]:
        """Who got the global model."""
        return [str(metadata.dst_node_id) for metadata in self.sent]

    def sender(self, reply: Message) -> str:
        """Who a reply is from; where the SuperLink speaks for a node that it cannot reach, that node."""
        node, answered = str(reply.metadata.src_node_id), reply.metadata.reply_to_message_id
        if reply.has_error() and answered and node not in self.asked:
            return next((str(sent.dst_node_id) for sent in self.sent if sent.message_id == answered), node)
        return node

    def judge(self, replies: Iterable[Message], key: str) -> tuple[Judgement, list[Message]]:
        """Let the guard judge; the messages of those that it averages, made alike."""
        if not self.model:
            raise UpdateError("aggregate_train comes after configure_train, which tells the global model")
        answers, failed = read(replies, self.sender)
        usual = usual_of(answers)
        answers, odd = sound(answers, usual, key)
        given = [Reply(answer.client, answer.metrics.get(key), answer.arrays) for answer in answers]
        judgement = self.guard.judge(self.model, given, self.asked, [*failed, *odd])
        first = {answer.client: answer for answer in reversed(answers)}
        return judgement, [alike(first[client], usual, key, self.model) for client in judgement.averaged]

    def comparable(self, replies: Iterable[Message], key: str) -> list[Message]:
        """Replies to an evaluation whose metrics can be averaged, made alike."""
        replies = list(replies)
        answers, _ = read(replies, self.sender, arrays=False)
        usual = usual_of(answers)
        answers, _ = sound(answers, usual, key)
        counted = [answer for answer in answers if counts(answer.metrics.get(key))]
        if len(counted) < len(replies):
            logger.warning("%d of %d replies to an evaluation are left out", len(replies) - len(counted), len(replies))
        return [alike(answer, usual, key) for answer in counted]

    def evaluated(
        self,
        aggregate: Callable[[int, list[Message]], MetricRecord | None],
        round: int,
        replies: Iterable[Message],
        key: str,
    ) -> MetricRecord | None:
        """What a strategy makes of an evaluation's metrics; nothing where it stumbles over them."""
        try:
            return aggregate(round, self.comparable(replies, key))
        except Exception as error:
            logger.warning("Round %d has no metrics of its evaluation: %s", round, error)
            return None

    def fit(self, arrays: ArrayRecord | None) -> Arrays:
        """A strategy's arrays in the model's order and types; refused where they are not the model's, or not finite."""
        if arrays is None:
            raise UpdateError("it gives no arrays")
        if set(arrays) != set(self.model):
            missing, extra = sorted(set(self.model) - set(arrays)), sorted(set(arrays) - set(self.model))
            raise UpdateError(f"it lacks {missing[:5]} of the model's arrays, and has {extra[:5]}")
        return {name: fitted(name, arrays[name].numpy(), own) for name, own in self.model.items()}

    def record(self, judgement: Judgement, model: Mapping[str, Any]) -> None:
        """Write the round down, with the global model that came of it."""
        entry = self.guard.record(judgement, model)
        try:
            if self.state is not None:
                self.guard.save(self.state)
        except Exception as error:  # the federation is worth more than its books
            logger.warning("The guard's state after round %d is not saved: %s", entry["round"], error)
        logger.info("guard: round %d, %s: %s", entry["round"], entry["outcome"], count_clients(entry))

    def keep(self, judgement: Judgement, reason: str | None = None) -> tuple[None, None]:
        """Write down that the old model stays, as Flower has it where a strategy gives no arrays."""
        if reason is not None:
            logger.warning("The old global model stays: %s", reason)
            entry: JudgedRound = {**judgement.entry, "outcome": "kept", "reason": reason[:DETAIL], "averaged": []}
            judgement = replace(judgement, averaged=(), entry=entry)
        self.record(judgement, self.model)
        return None, None

    def summary(self) -> None:
        """Log the guard's settings."""
        guard = self.guard
        logger.info("\t├──> Guard: %s, mode %s, %d rounds judged", guard.defense, guard.mode, guard.round)


def fitted(name: str, values: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A strategy's array in the type of the model's own; counters that it averaged are rounded."""
    if values.shape != own.shape:
        raise UpdateError(f"its {name!r} is {values.shape}, the model's is {own.shape}")
    with np.errstate(over="ignore", invalid="ignore"):  # what cannot be is refused below
        cast = (values if own.dtype.kind == "f" else np.rint(values)).astype(own.dtype)
    if not (np.isfinite(values).all() and np.isfinite(cast).all()):
        raise UpdateError(f"its {name!r} holds NaN or infinite numbers")
    return cast


def encoded(model: Mapping[str, Any]) -> ArrayRecord:
    """A model as Flower takes it."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in model.items()})
