"""A webhook: events as JSON to an address, from a thread of its own, so that a slow receiver delays no round."""

import atexit
import json
import os
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from http.client import HTTPMessage
from logging import getLogger
from queue import Full, Queue
from threading import Event as Flag
from threading import Thread
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from snowball.errors import RunError, SettingError
from snowball.guard.alerts.events import ALERTS, MAX_ID_CHARS, Event, Kind
from snowball.records.text import escape_text

logger = getLogger("snowball")

MAX_WAITING = 100
"""The most events that wait to be sent; further ones are dropped with a warning."""

FIRST_PAUSE_SECONDS = 1.0
"""The pause after the first attempt; it doubles each time."""

MAX_RETRIES, MAX_TIMEOUT_SECONDS = 10, 600

TEMPORARY_STATUSES = (408, 429)
"""Statuses below 500 after which another attempt may succeed."""


@dataclass(frozen=True)
class Message:
    """An event that waits to be sent: how to name it in a warning, and its body."""

    label: str
    body: bytes


class RefuseRedirects(HTTPRedirectHandler):
    """Follows no redirect: an event goes where the operator says, and nowhere else."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Leave the redirect's status as it is, an error."""


@dataclass(eq=False)
class Webhook:
    """Sends events as JSON by HTTP POST, with retries; at exit, it waits for one time-out to send what is left.

    The body has `text`, which chat programs show, and `kind`, `round`, `client`, `time` and `outcome`. Redirects are
    not followed. Warnings name the receiver's host and never the rest of the address.

    Attributes:
        url: an http or https address, or `$NAME` to read it from that environment variable.
        timeout: seconds to wait for an answer.
        retries: further attempts after a failed one.
        kinds: the kinds of events to send.
    """

    url: str = field(repr=False)
    timeout: float = 10.0
    retries: int = 3
    kinds: tuple[Kind, ...] = ALERTS

    def __post_init__(self) -> None:
        if not 0 < self.timeout <= MAX_TIMEOUT_SECONDS:
            raise SettingError(f"timeout = {self.timeout} must be above 0 and at most {MAX_TIMEOUT_SECONDS} seconds")
        if not 0 <= self.retries <= MAX_RETRIES:
            raise SettingError(f"retries = {self.retries} must be between 0 and {MAX_RETRIES}")
        address = split_address(read_address(self.url))
        self.host, self.target, self.headers = address.hostname, remove_login(address), make_headers(address)
        self.opener = build_opener(RefuseRedirects)
        self.waiting: Queue[Message | None] = Queue(MAX_WAITING)
        self.closing = Flag()
        self.thread: Thread | None = None

    def __call__(self, event: Event) -> None:
        """Queue an event."""
        if event.kind not in self.kinds:
            return
        if self.thread is None:
            self.thread = Thread(target=self._send_all, name="snowball-webhook", daemon=True)
            self.thread.start()
            atexit.register(self.close)
        try:
            self.waiting.put_nowait(Message(f"{event.kind} of round {event.round}", encode_event(event)))
        except Full as error:
            raise RunError(f"{self.host} is too slow: {MAX_WAITING} events wait, and this one is dropped") from error

    def close(self) -> None:
        """Send what is left, for one time-out at most."""
        if self.thread is None:
            return
        self.closing.set()
        with suppress(Full):  # then the thread is busy, and sees the flag
            self.waiting.put_nowait(None)
        self.thread.join(self.timeout)
        if lost := self.thread.is_alive() + sum(message is not None for message in list(self.waiting.queue)):
            logger.warning("%d events did not reach %s: the program ended first", lost, self.host)

    def _send_all(self) -> None:
        while not (self.closing.is_set() and self.waiting.empty()) and (message := self.waiting.get()) is not None:
            self._send(message)

    def _send(self, message: Message) -> None:
        """Send an event; pause and try again while that may help."""
        for attempt in range(self.retries + 1):
            try:
                self._post(message.body)
                return
            except Exception as error:  # the thread has to live, whatever the receiver answers
                failure = error
            if isinstance(failure, HTTPError) and failure.code < 500 and failure.code not in TEMPORARY_STATUSES:
                break
            if attempt < self.retries:
                self.closing.wait(FIRST_PAUSE_SECONDS * 2**attempt)
        logger.warning("The event %s did not reach %s: %s", message.label, self.host, describe_failure(failure))

    def _post(self, body: bytes) -> None:
        """Send a body and wait for the status; what else is answered is not read."""
        request = Request(self.target, body, self.headers, method="POST")
        try:
            self.opener.open(request, timeout=self.timeout).close()
        except HTTPError as error:
            error.close()
            raise


def read_address(url: str) -> str:
    """Return the address, from the environment if it is `$NAME`."""
    if not url.startswith("$"):
        return url
    if not (found := os.environ.get(url[1:])):
        raise SettingError(f"url = {url!r} names an environment variable that is not set")
    return found


def split_address(address: str) -> SplitResult:
    """Split an address into its parts, or refuse it without repeating it: it may hold a password or a token."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not address.isascii() or not address.isprintable() or " " in address:
        raise SettingError("url must be an address such as https://host/path, with http or https and ASCII characters")
    return parts


def remove_login(address: SplitResult) -> str:
    """Return an address without user and password, which urllib does not understand."""
    return address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()


def make_headers(address: SplitResult) -> dict[str, str]:
    """Return the headers of a request; user and password of the address become one."""
    headers = {"Content-Type": "application/json", "User-Agent": "snowball"}
    if address.username is not None:
        login = f"{unquote(address.username)}:{unquote(address.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    return headers


def encode_event(event: Event) -> bytes:
    """Return an event as JSON."""
    content: dict[str, Any] = {
        "text": escape(event.message, quote=False),  # in chat programs, <...> is a command
        "kind": event.kind,
        "round": event.round,
        "client": None if event.client is None else escape_text(event.client, MAX_ID_CHARS),
        "time": event.entry["time"],
        "outcome": event.entry["outcome"],
    }
    return json.dumps(content).encode()


def describe_failure(error: Exception) -> str:
    """Say why an event was not sent; the texts of errors are left out, since they may repeat the address."""
    if isinstance(error, HTTPError):
        return f"status {error.code}"
    cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
    return type(cause).__name__
