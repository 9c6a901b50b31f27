"""Reads Flower's replies one by one, and gives them a common form before a strategy sees them.

Flower's strategies end the run if one reply names its records differently, has one metric more or less, or a list of
another length; they take the order and types of arrays from the first reply. No client chooses any of this here:
names, order and types are the model's and the majority's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from snowball.errors import UpdateError
from snowball.guard import Dropped
from snowball.guard.reply import MAX_DETAIL_CHARS

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, eq=False)
class DecodedReply:
    """A reply with one record of metrics and, where they are wanted, one of arrays.

    Attributes:
        record_names: the names of the records of arrays and of metrics.
    """

    client: str
    message: Message
    metrics: Mapping[str, Any]
    arrays: Arrays
    record_names: tuple[str, str]


@dataclass(frozen=True)
class ReplyFormat:
    """The form that most replies of a round have in common.

    Attributes:
        record_names: the names of the records of arrays and of metrics.
        metrics: the metrics that over half of the replies report: the length of a list, None for a single number.
    """

    record_names: tuple[str, str]
    metrics: Mapping[str, int | None]


def decode_replies(
    messages: Iterable[Message], identify_sender: Callable[[Message], str], arrays: bool = True
) -> tuple[list[DecodedReply], list[Dropped]]:
    """Split messages into replies that can be decoded and the others, which include clients' own failures."""
    replies, dropped = [], []
    for message in messages:
        client = identify_sender(message)
        try:
            replies.append(decode_reply(client, message, arrays))
        except Exception as error:  # a reply can be wrong in any way and must not end the run
            detail = str(error) or type(error).__name__
            dropped.append(Dropped(client, "error", detail[:MAX_DETAIL_CHARS]))
    return replies, dropped


def decode_reply(client: str, message: Message, arrays: bool) -> DecodedReply:
    """Decode a reply's records; a client's failure is raised."""
    if message.has_error():
        raise UpdateError(message.error.reason or f"error code {message.error.code}")
    metrics_name, metrics = get_single_record(message.content.metric_records, "metrics")
    arrays_name, record = get_single_record(message.content.array_records, "arrays") if arrays else ("", {})
    decoded = {name: decode_array(name, array) for name, array in record.items()}
    return DecodedReply(client, message, metrics, decoded, (arrays_name, metrics_name))


def get_single_record(records: Mapping[str, Any], kind: str) -> tuple[str, Any]:
    """Return the only record of a kind and its name."""
    if len(records) != 1:
        raise UpdateError(f"it has {len(records)} records of {kind}, expected one")
    return next(iter(records.items()))


def decode_array(name: str, array: Array) -> np.ndarray[Any, Any]:
    """Return an array's numbers; the format also allows an archive of arrays, which is refused."""
    values = array.numpy()
    if not isinstance(values, np.ndarray):
        raise UpdateError(f"{name!r} is {type(values).__name__}, expected an array")
    return values


def find_majority_format(replies: Sequence[DecodedReply]) -> ReplyFormat:
    """Return the form that most replies have in common; each client counts once."""
    first = {reply.client: reply for reply in reversed(replies)}.values()
    arrays_name = find_most_common(reply.record_names[0] for reply in first)
    metrics_name = find_most_common(reply.record_names[1] for reply in first)
    votes = Counter(item for reply in first for item in get_metric_lengths(reply.metrics).items())
    metrics = {name: length for (name, length), count in votes.items() if 2 * count > len(first)}
    return ReplyFormat((arrays_name, metrics_name), metrics)


def find_most_common(names: Iterable[str]) -> str:
    """Return the most frequent name; the alphabet breaks ties."""
    votes = Counter(names)
    return min(votes, key=lambda name: (-votes[name], name), default="")


def get_metric_lengths(metrics: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the length of each metric that is a list, and None for the others."""
    return {name: len(value) if isinstance(value, list) else None for name, value in metrics.items()}


def split_by_metrics(
    replies: Iterable[DecodedReply], majority: ReplyFormat, key: str
) -> tuple[list[DecodedReply], list[Dropped]]:
    """Split replies by whether they have the majority's metrics; the guard checks the example count under `key`."""
    wanted = {item for item in majority.metrics.items() if item[0] != key}
    kept, dropped = [], []
    for reply in replies:
        if missing := sorted(name for name, _ in wanted - get_metric_lengths(reply.metrics).items()):
            detail = f"its metrics lack {missing[:5]}, as most report them"
            dropped.append(Dropped(reply.client, "error", detail[:MAX_DETAIL_CHARS]))
        else:
            kept.append(reply)
    return kept, dropped


def normalise_reply(
    reply: DecodedReply,
    majority: ReplyFormat,
    key: str,
    model: Mapping[str, np.ndarray[Any, Any]] | None = None,
    examples: float | None = None,
) -> Message:
    """Return a reply with the majority's record names and metrics, and the model's order and types of arrays.

    `examples` replaces the number of examples that the client claims.
    """
    content = reply.message.content
    records: dict[str, Any] = dict(content.config_records)
    arrays_name, metrics_name = majority.record_names
    if model is not None:
        (sent,) = content.array_records.values()
        arrays = {name: convert_array(sent[name], reply.arrays[name], own.dtype) for name, own in model.items()}
        records[arrays_name] = ArrayRecord(arrays)
    names = {*majority.metrics, key}
    metrics = {name: value for name, value in reply.metrics.items() if name in names}
    if examples is not None:
        metrics[key] = examples
    records[metrics_name] = MetricRecord(metrics)
    message = copy(reply.message)
    message.content = RecordDict(records)
    return message


def convert_array(sent: Array, values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Array:
    """Return an array in a type; the one that was sent, if it has that type."""
    return sent if values.dtype == dtype else Array(values.astype(dtype))


def is_example_count(value: Any) -> bool:
    """Whether a metric is a number of examples to weight by."""
    return isinstance(value, int | float) and 0 < value < float("inf")
