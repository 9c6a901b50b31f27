"""The metrics of a round, from what clients report."""

from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from math import nan
from typing import Any

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel

from snowball.guard.reply import describe_error
from snowball.integrations.nvflare.results import client_of, examples_of

logger = getLogger("snowball")

LARGEST = 1e300
"""Metrics are below it, so that their mean is finite."""


def metrics_of(models: Iterable[FLModel], averaged: Sequence[str]) -> dict[str, float] | None:
    """The metrics that all of those averaged report as numbers, as their mean by examples."""
    try:
        chosen = {client_of(model): model for model in reversed(list(models)) if client_of(model) in averaged}
        reported = [numbers_of(model.metrics) for model in chosen.values()]
        weights = [float(np.asarray(examples_of(model)).item()) for model in chosen.values()]
        return mean_of(reported, weights) or None
    except Exception as error:  # whatever clients report, their models are worth more than their metrics
        logger.warning("The round has no metrics: %s", describe_error(error))
        return None


def mean_of(reported: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """The weighted means of what all have."""
    common = [name for name in (reported[0] if reported else ()) if all(name in metrics for metrics in reported)]
    total = sum(weights)
    return {
        name: sum(weight / total * metrics[name] for weight, metrics in zip(weights, reported, strict=True))
        for name in common
    }


def numbers_of(metrics: Any) -> dict[str, float]:
    """The metrics that are finite numbers."""
    values = metrics.items() if isinstance(metrics, Mapping) else ()
    numbers = {str(name): number_of(value) for name, value in values}
    return {name: number for name, number in numbers.items() if abs(number) < LARGEST}


def number_of(value: Any) -> float:
    """A metric's value; NaN for one that is no number."""
    try:
        return float(value) if isinstance(value, int | float | np.integer | np.floating) else nan
    except OverflowError:
        return nan
