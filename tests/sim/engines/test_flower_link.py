"""Flower's programs for a simulation: how they are started, and that none outlives a run. Stand-ins play their part."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snowball.errors import RunError
from snowball.sim.engines import flower_link
from snowball.sim.engines.flower_link import SimulationLink, read_last_line, stop_process

LISTENS = """
import json, os, socket, sys, time
from pathlib import Path
Path(os.environ["FLWR_HOME"], "started").write_text(json.dumps([os.getpid(), os.environ["RAY_ADDRESS"]]))
with socket.create_server(("127.0.0.1", int(sys.argv[-1]))):
    time.sleep(600)
"""
FAILS = "import sys\nprint('the port is taken')\nsys.exit(1)"
TELLS = "import sys\nprint(*sys.argv[1:], sep='|')"


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which Flower's programs are looked for."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.setattr(flower_link.sysconfig, "get_path", lambda _: str(folder))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return folder


def write_program(path: Path, code: str) -> None:
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o700)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def read_started(link: SimulationLink) -> tuple[int, str]:
    pid, address = json.loads((link.folder / "started").read_text())
    return pid, address


@pytest.mark.parametrize(("given", "used", "cores"), [(None, "local", True), ("head:6379", "head:6379", False)])
def test_ray_starts_on_its_own_unless_a_cluster_is_given(
    given: str | None, used: str, cores: bool, scripts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if given:
        monkeypatch.setenv("RAY_ADDRESS", given)
    write_program(scripts / "flower-superlink", LISTENS)
    write_program(scripts / "flwr", TELLS)
    with SimulationLink(workers=3) as link:
        pid, address = read_started(link)
        assert address == used
        link.run_app(Path("app"), 8, {"rounds": 2, "out": "a b"}, tmp_path / "log")
    words = (tmp_path / "log").read_text().strip().split("|")
    assert words[:5] == ["run", "app", "simulation", "--stream", "--federation-config"]
    assert words[5].startswith("num-supernodes=8 client-resources-num-cpus=1")
    assert ("init-args-num-cpus=3" in words[5]) == cores
    assert words[6:] == ["--run-config", 'rounds=2 out="a b"']
    assert not is_running(pid)
    assert not link.folder.exists()


def test_a_superlink_that_does_not_start_is_a_sentence(scripts: Path) -> None:
    write_program(scripts / "flower-superlink", FAILS)
    link = SimulationLink()
    with pytest.raises(RunError, match=r"^Flower's SuperLink does not start: the port is taken$"), link:
        pass
    assert not link.folder.exists()


def test_an_app_that_fails_is_a_sentence(scripts: Path, tmp_path: Path) -> None:
    write_program(scripts / "flower-superlink", LISTENS)
    write_program(scripts / "flwr", FAILS)
    with (
        pytest.raises(RunError, match=r"the run failed in Flower, see .*log: the port is taken"),
        SimulationLink() as link,
    ):
        link.run_app(Path("app"), 8, {}, tmp_path / "log")


def test_a_killed_run_leaves_no_superlink_behind(scripts: Path, tmp_path: Path) -> None:
    write_program(scripts / "flower-superlink", LISTENS)
    program = f"""
import os
from snowball.sim.engines import flower_link
flower_link.sysconfig.get_path = lambda _: {str(scripts)!r}
link = flower_link.SimulationLink().__enter__()
print(link.process.pid, flush=True)
os._exit(137)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 137, done.stderr
    end = time.monotonic() + 60
    while is_running(int(done.stdout)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_running(int(done.stdout))


def test_a_program_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_link, "STOP_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout:
        process.stdout.readline()
        stop_process(process)
    assert process.returncode == -9


def test_a_log_s_last_words_are_found(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("first\n│ last words  │\n╰─────╯\n\n", encoding="utf-8")
    assert read_last_line(tmp_path / "log") == "last words"
    (tmp_path / "log").write_bytes(b"a byte \xff")
    assert read_last_line(tmp_path / "log").startswith("a byte ")
    assert read_last_line(tmp_path / "none") == "it says nothing"
