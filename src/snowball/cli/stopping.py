"""Signals that stop a command: SIGTERM and SIGHUP do what Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal that stops a command.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise Stopped on a signal; one that is ignored, as SIGHUP is under nohup, stays ignored."""
    own_thread = threading.current_thread() is threading.main_thread()
    stopped: list[Stopped] = []
    handled = [number for number in STOP_SIGNALS if own_thread and signal.getsignal(number) is signal.SIG_DFL]

    def stop(number: int, frame: object) -> NoReturn:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)  # a closing terminal sends more than one
        stopped.append(Stopped(number))
        raise stopped[0]

    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    except OSError:
        if stopped:
            raise stopped[0] from None  # a progress bar cannot end on a closed terminal
        raise
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def exit_stopped(interrupt: KeyboardInterrupt, sentence: str) -> NoReturn:
    """Say how to continue, and end with the exit code that shells give after a signal."""
    with suppress(OSError):  # the terminal may be closed
        typer.echo(f"stopped; {sentence}", err=True)
    raise typer.Exit(128 + (interrupt.number if isinstance(interrupt, Stopped) else signal.SIGINT))
