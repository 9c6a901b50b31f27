"""Averages the metrics that clients report in a round."""

from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from math import nan
from typing import Any

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel

from snowball.guard.reply import describe_error
from snowball.integrations.nvflare._results import get_client, get_examples

logger = getLogger("snowball")

MAX_METRIC = 1e300
"""Largest size of a metric, so that the mean is finite."""


def average_metrics(models: Iterable[FLModel], averaged: Sequence[str]) -> dict[str, float] | None:
    """Return the means, weighted by examples, of the metrics that all averaged clients report as numbers."""
    try:
        chosen = {get_client(model): model for model in reversed(list(models)) if get_client(model) in averaged}
        reported = [select_numbers(model.metrics) for model in chosen.values()]
        weights = [float(np.asarray(get_examples(model)).item()) for model in chosen.values()]
        return compute_means(reported, weights) or None
    except Exception as error:  # whatever clients report, their models matter more than their metrics
        logger.warning("The round has no metrics: %s", describe_error(error))
        return None


def compute_means(reported: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """Return the weighted means of the metrics that all have."""
    common = [name for name in (reported[0] if reported else ()) if all(name in metrics for metrics in reported)]
    total = sum(weights)
    return {
        name: sum(weight / total * metrics[name] for weight, metrics in zip(weights, reported, strict=True))
        for name in common
    }


def select_numbers(metrics: Any) -> dict[str, float]:
    """Return the metrics that are finite numbers."""
    values = metrics.items() if isinstance(metrics, Mapping) else ()
    numbers = {str(name): convert_metric(value) for name, value in values}
    return {name: number for name, number in numbers.items() if abs(number) < MAX_METRIC}


def convert_metric(value: Any) -> float:
    """Return a metric's value, or NaN if it is not a number."""
    try:
        return float(value) if isinstance(value, int | float | np.integer | np.floating) else nan
    except OverflowError:
        return nan
