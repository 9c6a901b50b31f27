import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty $SNOWBALL_DATA, with an empty cache beside it."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SNOWBALL_VECTORS", raising=False)
    return tmp_path / "data"


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve folders on this machine and return their addresses."""
    with ExitStack() as running:

        def start(folder: Path) -> str:
            server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
            running.enter_context(server)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            running.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/"

        yield start
