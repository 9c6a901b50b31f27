"""The process that workers are forked from. It imports torch once for all of them, while the parent imports its own."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext

WORKER = "snowball.sim.engines.worker"
"""What it imports."""


def warm() -> ForkServerContext:
    """What starts workers; the first call starts the process that they come from."""
    context = get_context("forkserver")
    context.set_forkserver_preload([WORKER])
    with deaf():
        forkserver.ensure_running()
    return context


@contextmanager
def deaf() -> Iterator[None]:
    """Let processes that are started meanwhile not hear Ctrl-C: what it means is the parent's to say."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
