"""Flower's replies, read one by one: what each has to have, and what is made alike before a strategy sees them.

Flower's strategies end the run where one reply calls its records otherwise, has a metric more or less, or a list of
another length; they take the order of the arrays and their types from whoever comes first. None of it is a client's to
choose here: names, order and types are the model's and the majority's.
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

Arrays = dict[str, np.ndarray[Any, Any]]

DETAIL = 200
"""Characters of a reason at most: a client writes it."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A reply with one record of metrics and, where they are wanted, one of arrays.

    Attributes:
        called: the names of both records.
    """

    client: str
    message: Message
    metrics: Mapping[str, Any]
    arrays: Arrays
    called: tuple[str, str]


@dataclass(frozen=True)
class Usual:
    """What most replies of a round have in common.

    Attributes:
        called: the names of the records of arrays and of metrics.
        metrics: what over half of the replies report: how many numbers by name, None for a metric that is no list.
    """

    called: tuple[str, str]
    metrics: Mapping[str, int | None]


def read(
    replies: Iterable[Message], sender: Callable[[Message], str], arrays: bool = True
) -> tuple[list[Answer], list[Dropped]]:
    """The replies that have their records, and the others, the client's own failures among them."""
    answers, dropped = [], []
    for message in replies:
        client = sender(message)
        try:
            answers.append(answer_of(client, message, arrays))
        except Exception as error:  # a reply can be wrong in any way, and must not end the run
            detail = str(error) or type(error).__name__
            dropped.append(Dropped(client, "error", detail[:DETAIL]))
    return answers, dropped


def answer_of(client: str, message: Message, arrays: bool) -> Answer:
    """A reply's records, decoded."""
    if message.has_error():
        raise UpdateError(message.error.reason or f"error code {message.error.code}")
    metrics_name, metrics = only(message.content.metric_records, "metrics")
    arrays_name, record = only(message.content.array_records, "arrays") if arrays else ("", {})
    decoded = {name: decode(name, array) for name, array in record.items()}
    return Answer(client, message, metrics, decoded, (arrays_name, metrics_name))


def only(records: Mapping[str, Any], kind: str) -> tuple[str, Any]:
    """The single record of a kind, and its name."""
    if len(records) != 1:
        raise UpdateError(f"it has {len(records)} records of {kind} instead of one")
    return next(iter(records.items()))


def decode(name: str, array: Array) -> np.ndarray[Any, Any]:
    """An array's numbers; an archive of arrays, which the format also allows, is none."""
    values = array.numpy()
    if not isinstance(values, np.ndarray):
        raise UpdateError(f"{name!r} is {type(values).__name__}, no array")
    return values


def usual_of(answers: Sequence[Answer]) -> Usual:
    """What most answers have in common; a client counts once."""
    first = {answer.client: answer for answer in reversed(answers)}.values()
    called = most_common(answer.called[0] for answer in first), most_common(answer.called[1] for answer in first)
    kinds = Counter(item for answer in first for item in kinds_of(answer.metrics).items())
    return Usual(called, {name: kind for (name, kind), votes in kinds.items() if 2 * votes > len(first)})


def most_common(names: Iterable[str]) -> str:
    """The name that occurs most often, the alphabet's first among equals."""
    votes = Counter(names)
    return min(votes, key=lambda name: (-votes[name], name), default="")


def kinds_of(metrics: Mapping[str, Any]) -> dict[str, int | None]:
    """How many numbers each metric is; None for one that is no list."""
    return {name: len(value) if isinstance(value, list) else None for name, value in metrics.items()}


def sound(answers: Iterable[Answer], usual: Usual, key: str) -> tuple[list[Answer], list[Dropped]]:
    """The answers that have the usual metrics, and the others; the guard looks after the number of examples."""
    wanted = {item for item in usual.metrics.items() if item[0] != key}
    kept, dropped = [], []
    for answer in answers:
        if missing := sorted(name for name, _ in wanted - kinds_of(answer.metrics).items()):
            detail = f"its metrics lack {missing[:5]}, as most report them"
            dropped.append(Dropped(answer.client, "error", detail[:DETAIL]))
        else:
            kept.append(answer)
    return kept, dropped


def alike(answer: Answer, usual: Usual, key: str, model: Mapping[str, np.ndarray[Any, Any]] | None = None) -> Message:
    """A reply as the usual one is: its records' names, its metrics, and the model's order and types of arrays."""
    content = answer.message.content
    records: dict[str, Any] = dict(content.config_records)
    if model is not None:
        (sent,) = content.array_records.values()
        records[usual.called[0]] = ArrayRecord(
            {name: like(sent[name], answer.arrays[name], own) for name, own in model.items()}
        )
    names = {*usual.metrics, key}
    records[usual.called[1]] = MetricRecord({name: value for name, value in answer.metrics.items() if name in names})
    message = copy(answer.message)
    message.content = RecordDict(records)
    return message


def like(sent: Array, values: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> Array:
    """An array in the model's type: the one that was sent, where that is it."""
    return sent if values.dtype == own.dtype else Array(values.astype(own.dtype))


def counts(value: Any) -> bool:
    """Whether a metric is a number of examples to weight by."""
    return isinstance(value, int | float) and 0 < value < float("inf")
