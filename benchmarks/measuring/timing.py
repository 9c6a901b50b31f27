"""Measures times, and formats them as cases of a result."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Case = dict[str, Any]
T = TypeVar("T")
R = TypeVar("R")


def time_fastest(work: Callable[[T], R], prepare: Callable[[], T], repeats: int) -> tuple[float, R]:
    """Return the seconds of the fastest of several runs, and its return value; preparation is not counted."""
    runs = []
    for _ in range(repeats):
        prepared = prepare()
        start = perf_counter()
        result = work(prepared)
        runs.append((perf_counter() - start, result))
    return min(runs, key=lambda run: run[0])


def time_turns(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the least processor seconds of each work; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = process_time()
            work()
            seconds[name].append(process_time() - start)
    return {name: min(turns) for name, turns in seconds.items()}


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Compute everything inside on one thread, in torch and NumPy alike."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def make_case(name: str, seconds: float, reference_seconds: float | None, **facts: Any) -> Case:
    """Make one case of the result."""
    ratio = None if reference_seconds is None else reference_seconds / seconds
    return {"name": name, "seconds": seconds, "reference_seconds": reference_seconds, "ratio": ratio, **facts}


def format_cases(cases: list[Case]) -> str:
    """Format the cases for people: one line each, further facts at its end."""
    head = ("name", "seconds", "reference_seconds", "ratio")
    width = max(len(case["name"]) for case in cases) + 2
    lines = [f"{'case':<{width}}{'seconds':>10}{'reference':>11}{'ratio':>9}"]
    for case in cases:
        numbers = ["-" if case[key] is None else f"{case[key]:.4g}" for key in head[1:]]
        facts = "  ".join(f"{key} {format_fact(value)}" for key, value in case.items() if key not in head)
        lines.append(f"{case['name']:<{width}}{numbers[0]:>10}{numbers[1]:>11}{numbers[2]:>9}  {facts}")
    return "\n".join(lines)


def format_fact(fact: Any) -> str:
    """Format a fact with as many digits as people read."""
    if isinstance(fact, dict):
        return ", ".join(f"{key} {format_fact(value)}" for key, value in fact.items())
    return f"{fact:.4g}" if isinstance(fact, float) else str(fact)
