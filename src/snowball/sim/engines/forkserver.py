"""The process that workers are forked from: it imports torch once for all of them, in parallel with the parent."""

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import current_process, forkserver, get_context
from multiprocessing.context import ForkServerContext

PRELOADED_MODULE = "snowball.sim.engines.preload"

COMMAND_MODULE = "snowball.cli"
"""The module that a worker would import for itself if the command line started it."""

GUARD_ADVICE = 'in a script, is the call under `if __name__ == "__main__":`?'
"""What to ask if a process ends before it starts its work: it imports the script that started it."""


def start_forkserver() -> ForkServerContext:
    """Start the fork server unless it is running, and return the context that starts workers."""
    context = get_context("forkserver")
    context.set_forkserver_preload([PRELOADED_MODULE, *({COMMAND_MODULE} & sys.modules.keys())])
    with ignore_sigint():
        forkserver.ensure_running()
    return context


def leave_if_importing() -> None:
    """End this process if it is a worker that still imports the user's script; the parent says why."""
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(1)


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Let processes that are started meanwhile ignore Ctrl-C: the parent decides what it means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def pause_collection() -> Iterator[None]:
    """Collect no garbage inside the context: imports leave next to none, and the search takes a part of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
