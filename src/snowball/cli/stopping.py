"""Signals that stop a command: SIGTERM and SIGHUP do what Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


RECEIVED: list[int] = []
"""The number of the signal that stops the command; libraries such as Ray raise a KeyboardInterrupt of their own."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise a KeyboardInterrupt on a signal; one that is ignored, as SIGHUP is under nohup, stays ignored."""
    own_thread = threading.current_thread() is threading.main_thread()
    handled = [number for number in STOP_SIGNALS if own_thread and signal.getsignal(number) is signal.SIG_DFL]

    def stop(number: int, frame: object) -> NoReturn:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)  # a closing terminal sends more than one
        RECEIVED.append(number)
        raise KeyboardInterrupt

    RECEIVED.clear()
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    except OSError:
        if RECEIVED:
            raise KeyboardInterrupt from None  # a progress bar cannot end on a closed terminal
        raise
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def exit_stopped(sentence: str) -> NoReturn:
    """Say how to continue, and end with the exit code that shells give after a signal."""
    with suppress(OSError):  # the terminal may be closed
        typer.echo(f"stopped; {sentence}", err=True)
    raise typer.Exit(128 + (RECEIVED[0] if RECEIVED else signal.SIGINT))
