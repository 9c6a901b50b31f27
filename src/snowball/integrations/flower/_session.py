"""Connects Flower's messages to a guard; both guarded strategies hold a session."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord

from snowball.errors import SettingError, UpdateError
from snowball.guard import Guard, Judgement, Reply
from snowball.guard.reply import MAX_DETAIL_CHARS
from snowball.integrations._bookkeeping import resume_guard, save_state
from snowball.integrations.flower._replies import (
    Arrays,
    decode_replies,
    find_majority_format,
    is_example_count,
    normalise_reply,
    split_by_metrics,
)
from snowball.layout import Layout
from snowball.records.audit import JudgedRound, count_clients

logger = getLogger("flwr")


class GuardSession:
    """A guard, the file of its state, and the round under way.

    Attributes:
        model: the global arrays that were sent out; empty before the first round.
        sent: the metadata of the messages that carried them; Flower adds their ids later.
    """

    def __init__(self, guard: Guard | None, state: str | Path | None, settings: Mapping[str, Any]) -> None:
        if guard is not None and settings:
            raise SettingError(f"{', '.join(settings)} and a guard are given: set the guard's own settings instead")
        self.guard = Guard(**settings) if guard is None else guard
        self.state = None if state is None else Path(state)
        self.sets_rounds = self.guard.rounds is None
        self.model: Arrays = {}
        self.sent: list[Metadata] = []
        resume_guard(self.guard, self.state, logger)

    def announce_rounds(self, rounds: int) -> None:
        """Tell the guard how many rounds will follow, unless its settings say so."""
        if self.sets_rounds:
            self.guard.rounds = self.guard.round + rounds

    def remember_request(self, arrays: ArrayRecord, messages: Iterable[Message]) -> list[Message]:
        """Remember the global model and the clients that it is sent to."""
        messages = list(messages)
        self.model = {name: array.numpy() for name, array in arrays.items()}
        self.sent = [message.metadata for message in messages]
        return messages

    @property
    def asked(self) -> list[str]:
        """The clients that the global model was sent to."""
        return [str(metadata.dst_node_id) for metadata in self.sent]

    def identify_sender(self, reply: Message) -> str:
        """Return a reply's sender; if the SuperLink reports that a node is gone, return that node."""
        node, answered = str(reply.metadata.src_node_id), reply.metadata.reply_to_message_id
        if reply.has_error() and answered and node not in self.asked:
            return next((str(sent.dst_node_id) for sent in self.sent if sent.message_id == answered), node)
        return node

    def judge(self, messages: Iterable[Message], key: str) -> tuple[Judgement, list[Message]]:
        """Let the guard judge, and return the normalised messages of the clients to average."""
        if not self.model:
            raise UpdateError("aggregate_train needs the global model: call configure_train first")
        replies, failed = decode_replies(messages, self.identify_sender)
        majority = find_majority_format(replies)
        replies, different = split_by_metrics(replies, majority, key)
        given = [Reply(reply.client, reply.metrics.get(key), reply.arrays) for reply in replies]
        judgement = self.guard.judge(self.model, given, self.asked, [*failed, *different])
        first = {reply.client: reply for reply in reversed(replies)}
        return judgement, [
            normalise_reply(first[client], majority, key, self.model, judgement.examples[client])
            for client in judgement.averaged
        ]

    def normalise_evaluations(self, messages: Iterable[Message], key: str) -> list[Message]:
        """Return the normalised replies to an evaluation whose metrics can be averaged."""
        messages = list(messages)
        replies, _ = decode_replies(messages, self.identify_sender, arrays=False)
        majority = find_majority_format(replies)
        replies, _ = split_by_metrics(replies, majority, key)
        usable = [reply for reply in replies if is_example_count(reply.metrics.get(key))]
        if len(usable) < len(messages):
            logger.warning("%d of %d replies to an evaluation are left out", len(messages) - len(usable), len(messages))
        return [normalise_reply(reply, majority, key) for reply in usable]

    def aggregate_evaluation(
        self,
        aggregate: Callable[[int, list[Message]], MetricRecord | None],
        round: int,
        messages: Iterable[Message],
        key: str,
    ) -> MetricRecord | None:
        """Let a strategy aggregate an evaluation's metrics; return None if it fails."""
        try:
            return aggregate(round, self.normalise_evaluations(messages, key))
        except Exception as error:
            logger.warning("Round %d has no evaluation metrics: %s", round, error)
            return None

    def conform_to_model(self, arrays: ArrayRecord | None) -> Arrays:
        """Return a strategy's arrays in the model's order and types; refuse others, and numbers that are not finite."""
        if arrays is None:
            raise UpdateError("it gives no arrays")
        values = {name: array.numpy() for name, array in arrays.items()}
        Layout.from_tensors(self.model).check(values, "its aggregate")
        return {name: conform_array(name, values[name], own.dtype) for name, own in self.model.items()}

    def record(self, judgement: Judgement, model: Mapping[str, Any]) -> None:
        """Write the round to the audit with its new global model, save the guard's state, and log the round."""
        entry = self.guard.record(judgement, model)
        save_state(self.guard, self.state, entry)
        logger.info("guard: round %d, %s: %s", entry["round"], entry["outcome"], count_clients(entry))

    def keep_model(self, judgement: Judgement, reason: str | None = None) -> tuple[None, None]:
        """Record that the old model stays, and return what Flower expects of a strategy without arrays."""
        if reason is not None:
            entry: JudgedRound = {**judgement.entry, "outcome": "kept", "reason": reason[:MAX_DETAIL_CHARS]}
            entry |= {"averaged": [], "shares": {}}
            judgement = replace(judgement, averaged=(), entry=entry)
        self.record(judgement, self.model)
        return None, None

    def log_settings(self) -> None:
        """Log the guard's settings."""
        guard = self.guard
        logger.info("\t├──> Guard: %s, mode %s, %d rounds judged", guard.defense, guard.mode, guard.round)


def enter_given_shares(judgement: Judgement) -> Judgement:
    """Return a judgement whose shares are those of the example counts that a strategy gets to weight replies by."""
    names, counts = judgement.entry["averaged"], [judgement.examples[client] for client in judgement.averaged]
    shares = {name: count / sum(counts) for name, count in zip(names, counts, strict=True)}
    return replace(judgement, entry={**judgement.entry, "shares": shares})


def conform_array(name: str, values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a strategy's array in the model's type; averaged counters are rounded."""
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        converted = (values if dtype.kind == "f" else np.rint(values)).astype(dtype)
    if not (np.isfinite(values).all() and np.isfinite(converted).all()):
        raise UpdateError(f"its {name!r} holds NaN or infinite numbers")
    return converted


def encode_model(model: Mapping[str, Any]) -> ArrayRecord:
    """Return a model as Flower's record."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in model.items()})
