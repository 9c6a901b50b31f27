"""The webhook against real servers: quick, slow, broken, redirecting, endless, and none at all."""

import json
import logging
import runpy
import socket
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from snowball.errors import RunError, SettingError
from snowball.guard.alerts import Alerts, Webhook, webhook

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
make_entry, make_event, accuse = SHARED["make_entry"], SHARED["make_event"], SHARED["accuse"]

SECRET = "s3cr3t"


class Receiver(ThreadingHTTPServer):
    """A server that notes the requests and answers them one after the other as it is told; the last answer repeats."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, Any, dict[str, Any]]] = []
        self.answers: list[int | str] = [200]
        self.released = Flag()

    def wait_for_requests(self, count: int) -> None:
        """Wait until there are as many requests, but not for ever."""
        for _ in range(2000):
            if len(self.requests) >= count:
                return
            Flag().wait(0.01)
        pytest.fail(f"there are {len(self.requests)} requests, not {count}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/{SECRET}?token={SECRET}"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers, body))
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer == "wait":
            self.server.released.wait(30)
            return
        if answer == "garbage":
            self.wfile.write(b"\x00\xff not HTTP at all\r\n\r\n")
            return
        self.send_response(200 if isinstance(answer, str) else answer, "a text\twith token")
        if answer in (302, 307):
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()
        while answer == "endless" and not self.server.released.wait(0.01):
            self.wfile.write(b"x" * 1000)

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers, {}))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(webhook, "FIRST_PAUSE_SECONDS", 0.01)
    server = Receiver()
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def make_hook() -> Iterator[Callable[..., Webhook]]:
    made: list[Webhook] = []

    def make(*arguments: Any, **settings: Any) -> Webhook:
        made.append(Webhook(*arguments, **settings))
        return made[-1]

    yield make
    for hook in made:
        hook.close()


MakeHook = Callable[..., Webhook]


def test_an_alert_arrives_as_json(receiver: Receiver, make_hook: MakeHook) -> None:
    hook = make_hook(receiver.url)
    Alerts([hook], patience=1).report_round(accuse(4, ["<!channel>"], ["a"], facts={"charge": "leans to class 1"}))
    hook.close()
    ((path, headers, body),) = receiver.requests
    assert path == f"/hooks/{SECRET}?token={SECRET}"
    assert headers["Content-Type"] == "application/json"
    assert body == {
        "text": "Round 4: &lt;!channel&gt; was suspect: leans to class 1",
        "kind": "suspect",
        "round": 4,
        "client": "<!channel>",
        "time": "2026-01-01T00:00:00+00:00",
        "outcome": "aggregated",
    }


def test_the_kinds_to_send_can_be_chosen(receiver: Receiver, make_hook: MakeHook) -> None:
    hook = make_hook(receiver.url, kinds=("round", "kept"))
    for kind in ("round", "kept", "unclear"):
        hook(make_event(kind))
    hook.close()
    assert [body["kind"] for _, _, body in receiver.requests] == ["round", "kept"]


def test_user_and_password_of_the_address_become_a_header(receiver: Receiver, make_hook: MakeHook) -> None:
    hook = make_hook(f"http://us%40er:{SECRET}@127.0.0.1:{receiver.server_port}/hook#part")
    hook(make_event())
    hook.close()
    ((path, headers, _),) = receiver.requests
    assert path == "/hook"
    assert b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"us@er:{SECRET}"


@pytest.mark.parametrize("failure", [500, 503, 429, "garbage"])
def test_what_may_pass_is_tried_again(failure: int | str, receiver: Receiver, make_hook: MakeHook) -> None:
    receiver.answers = [failure, failure, 204]
    hook = make_hook(receiver.url)
    hook(make_event())
    hook.close()
    assert len(receiver.requests) == 3


@pytest.mark.parametrize(
    ("failure", "attempts", "said"),
    [(500, 3, "status 500"), (404, 1, "status 404"), (302, 1, "status 302"), (307, 1, "status 307")],
)
def test_a_failure_is_a_warning_without_the_address(
    failure: int, attempts: int, said: str, receiver: Receiver, make_hook: MakeHook, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [failure]
    hook = make_hook(receiver.url, retries=2)
    hook(make_event())
    hook.close()
    assert [path for path, _, _ in receiver.requests] == [f"/hooks/{SECRET}?token={SECRET}"] * attempts
    assert caplog.messages == [f"The event kept of round 1 did not reach 127.0.0.1: {said}"]


def test_a_closed_port_is_a_warning(receiver: Receiver, make_hook: MakeHook, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    hook = make_hook(f"http://user:{SECRET}@127.0.0.1:{port}/{SECRET}", retries=1)
    hook(make_event())
    hook.close()
    assert caplog.messages == ["The event kept of round 1 did not reach 127.0.0.1: ConnectionRefusedError"]
    assert SECRET not in repr(hook) + caplog.text


def test_a_slow_receiver_is_given_up(receiver: Receiver, make_hook: MakeHook, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers = ["wait", 200]
    hook = make_hook(receiver.url, timeout=0.2, retries=0)
    hook(make_event(number=1))
    hook(make_event(number=2))
    receiver.wait_for_requests(2)
    hook.close()
    assert caplog.messages == ["The event kept of round 1 did not reach 127.0.0.1: TimeoutError"]


def test_an_answer_that_never_ends_is_not_read(receiver: Receiver, make_hook: MakeHook) -> None:
    receiver.answers = ["endless"]
    hook = make_hook(receiver.url)
    for number in (1, 2):
        hook(make_event(number=number))
    receiver.wait_for_requests(2)
    hook.close()
    assert not receiver.released.is_set()


def test_a_receiver_that_hangs_delays_no_round_and_later_events_are_dropped(
    receiver: Receiver, make_hook: MakeHook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook, "MAX_WAITING", 2)
    receiver.answers = ["wait"]
    hook = make_hook(receiver.url, timeout=20, retries=0)
    hook(make_event(number=1))
    receiver.wait_for_requests(1)
    hook(make_event(number=2))
    hook(make_event(number=3))
    with pytest.raises(RunError, match=r"127\.0\.0\.1 is too slow: 2 events wait, and this one is dropped"):
        hook(make_event(number=4))
    Alerts([hook]).send(make_event(number=5))
    assert "the listener Webhook failed: 127.0.0.1 is too slow" in caplog.text
    receiver.answers = [200]
    receiver.released.set()
    hook.close()
    assert [body["round"] for _, _, body in receiver.requests] == [1, 2, 3]


def test_closing_waits_for_one_time_out_and_says_what_is_lost(
    receiver: Receiver, make_hook: MakeHook, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = ["wait"]
    hook = make_hook(receiver.url, timeout=0.2, retries=10)
    for number in (1, 2, 3):
        hook(make_event(number=number))
    hook.close()
    assert caplog.messages == ["3 events did not reach 127.0.0.1: the program ended first"]


PROGRAM = """
import runpy, sys
from snowball.guard.alerts import Webhook
make_event = runpy.run_path(sys.argv[1])["make_event"]
hook = Webhook(sys.argv[2], timeout=10)
for number in range(1, 21):
    hook(make_event(number=number))
"""


def test_what_waits_is_sent_when_a_program_ends(receiver: Receiver) -> None:
    conftest = str(Path(__file__).parent / "conftest.py")
    subprocess.run([sys.executable, "-c", PROGRAM, conftest, receiver.url], check=True, timeout=60)
    assert [body["round"] for _, _, body in receiver.requests] == list(range(1, 21))


def test_the_address_may_come_from_the_environment(
    receiver: Receiver, make_hook: MakeHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingError, match=r"'\$HOOK' names an environment variable that is not set"):
        Webhook("$HOOK")
    monkeypatch.setenv("HOOK", receiver.url)
    hook = make_hook("$HOOK")
    hook(make_event())
    hook.close()
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        "", "host/path", "ftp://host/", "file:///etc/passwd", "https://", "http:///path", "http://[::1", "javascript:0",
        "http://host:99999/", "http://host:port/", "http://host/a b", "http://host/\n", "http://hôst/", "http://host/ü",
        f"gopher://user:{SECRET}@host/",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingError, match="url must be an address such as https://host/path") as raised:
        Webhook(url)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"timeout": 601}, {"retries": -1}, {"retries": 11}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"(timeout|retries) = -?\d+ must be "):
        Webhook("http://host/", **settings)


def test_the_log_of_urllib_stays_silent(
    receiver: Receiver, make_hook: MakeHook, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        hook = make_hook(receiver.url)
        hook(make_event())
        hook.close()
    assert SECRET not in caplog.text
