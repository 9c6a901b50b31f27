"""Sets the number of threads that torch computes with, and gives work to another thread of Python."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside the context; rounding in sums depends on how threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class InlineExecutor(Executor):
    """Does all work at once, on the thread that submits it."""

    def submit(self, work: Callable[..., T], /, *given: Any, **settings: Any) -> Future[T]:
        """Do the work, and return its result as that of a finished task."""
        done: Future[T] = Future()
        done.set_result(work(*given, **settings))
        return done


def make_executor(threads: int) -> Executor:
    """Make an executor that does one thing after the other, on a thread of its own if there are two or more.

    On that thread, torch computes without further threads.
    """
    if threads == 1:
        return InlineExecutor()
    return ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
