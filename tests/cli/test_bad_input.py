"""Bad input on the command line: every case is one line on the error output and exit code 2, never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowball.cli import lists
from snowball.records.run import RunFolder

Call = Callable[..., tuple[int, str, str]]

LONG, DIGITS, HEX = "x" * 5000, "9" * 5000, "0x" + "f" * 5000
DOTS, DEEP = ".".join("a" * 5000), "[" * 5000 + "]" * 5000

FILES: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)),
    "zeros": b"\0" * 100,
    "loop.toml": b"extends = 'loop.toml'",
    "deep.toml": f"a = {DEEP}".encode(),
    "section.toml": f"[{DOTS}]\nb = 1".encode(),
    "hex.toml": f"extends = 'demo'\nrounds = {HEX}".encode(),
    "list.toml": f"extends = 'demo'\n[peers.krum]\ntolerate = [{HEX}]".encode(),
    "nan.toml": b"extends = 'demo'\n[training]\nlr = nan",
    "date.toml": b"extends = 'demo'\nrounds = 1979-05-27",
    "twice.toml": b"a = 1\na = 2",
    "number.toml": b"extends = 5",
    "long.toml": f"extends = '{LONG}'".encode(),
    "folder.toml": b"extends = 'folder'",
    "peers.toml": b"extends = 'demo'\npeers = 3",
    "escape.toml": b"extends = 'demo'\n\"a\\u001b[31m\\n\" = 1",
    "deep.jsonl": f"{DEEP * 20}\n".encode(),
    "digits.jsonl": f'{{"round": {DIGITS}}}\n'.encode(),
    "object.jsonl": b"{}\n",
}

RUNS = {
    "nothing": "",
    "array": "[]",
    "null": "null",
    "nested": "[" * 100_000,
    "digits": f'{{"settings": {{"rounds": {DIGITS}}}}}',
    "partial": '{"settings": {"rounds": 1}}',
}

SETTINGS = [
    *("", "=", "a", "=1", ".=1", "a..b=1", f"{DOTS}=1", "a\x1b[2J\n=1", "peers.krum=1", "extends=demo"),
    *(f"rounds={value}" for value in ("-1", "0", "1.5", "nan", "1e400", "true", "[]", "{}", "'", DIGITS, HEX)),
    *("seed=-1", f"seed={'1' * 400}", "cohort=9223372036854775807", "cohort=9223372036854775808", "cohort=1"),
    *("data.clients=1000000000", "data.examples=1", "data.examples=9223372036854775807", "data.alpha=-1"),
    *("data.alpha=1e308", "data.minimum=9223372036854775807", "data.partition=natural", "data.name=../x"),
    *("training.lr=nan", "training.lr=-1", "training.lr=1e-400", "training.batch=0", "model.name=torch:nn"),
    *("attack.malicious=2", "attack.target=-1", "attack.target=99", f"attack.trigger={LONG}", "attack.name=\0"),
    *("attack.trigger=white-square@99,99", "attack.poison_ratio=1e308", "attack.draw=never", "attack.first_round=0"),
    *("defense.name=", "defense.name=:", "defense.name=os:system", "defense.name=5", "defense.name=krum\x1b"),
    *(f"defense.name={DOTS}:b", "defense.name=sys:exit", "defense=3"),
]

COMMANDS = [
    *(["run", source] for source in ("", ".", "/", LONG, "\x1b[31m", "\udcff", "demo\n", "/dev/null", "folder")),
    *(["run", name] for name in FILES if not name.endswith(".jsonl")),
    *(["run", "demo", "--resume", "--out", name] for name in (*RUNS, "directory", "missing")),
    *(["run", "demo", "--out", name] for name in ("empty", "empty/x", "/proc/x", "/dev/null", LONG)),
    ["run", "demo", "--overwrite", "--out", "directory"],
    ["demo", "--seed", "-1"],
    *(["sweep", name, "--out", "o"] for name in ("", "folder", "empty", "binary", "hex.toml", "deep.toml", LONG)),
    *(["sweep", "cpu/table1", "--out", name] for name in ("empty", "/proc/x", LONG)),
    *(
        ["rehearse", name, "--out", "o"]
        for name in ("", "folder", "empty", "binary", "hex.toml", "deep.toml", "date.toml", LONG)
    ),
    *(["rehearse", "--sites", "8", "--sizes", sizes, "--out", "o"] for sizes in ("", ",", "-1", DIGITS, "\x1b", "nan")),
    *(["rehearse", "--sites", "8", "--set", each, "--out", "o"] for each in ("a", "sizes=5", f"{DOTS}=1", "alpha=nan")),
    *(["rehearse", "--sites", "8", "--out", name] for name in ("empty", "/proc/x", LONG)),
    *(["report", name] for name in ("missing", "empty", "folder", "\udcff", LONG, *RUNS) if name != "partial"),
    *(["report", "partial", "--html", name] for name in ("folder", "/proc/x", "no/such.html", "")),
    *(["report", "partial", "--export", name] for name in ("empty", "/proc/x")),
    *(["guard-state", name] for name in ("missing", "folder", "binary", "/dev/null", LONG)),
    *(["audit", name] for name in ("missing", "folder", "binary", "/dev/null", LONG)),
    *(["audit", name] for name in FILES if name.endswith(".jsonl")),
    *(["audit", "empty", "--client", name] for name in ("x", "\x1b" * 5000)),
    ["audit", "empty", "--html", "folder"],
    *(["data", "fetch", name] for name in ("", LONG, "os:system", "a\0b")),
    *(["show", "trigger", name] for name in ("", LONG, "os:system", "white-square@9999,9999", "white-square@-1,0")),
    *(["show", "trigger", "noise", *more] for more in (["--target", "10"], ["--png", "folder"], ["--data", "\n"])),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of bad files and bad runs."""
    path = tmp_path_factory.mktemp("bad")
    for name, content in FILES.items():
        (path / name).write_bytes(content)
    for name, text in RUNS.items():
        (path / name).mkdir()
        (path / name / "run.json").write_text(text, encoding="utf-8")
    (path / "folder").mkdir()
    (path / "directory" / "run.json").mkdir(parents=True)
    return path


def refuse(call: Call, *arguments: str) -> str:
    """Return the one short line of an error without control characters."""
    code, _, errors = call(*arguments)
    assert code == 2
    assert errors.startswith("snowball: ")
    assert errors.endswith("\n")
    assert errors[:-1].isprintable()
    assert len(errors) < 1500
    return errors


def name_case(arguments: Any) -> str:
    return ascii(" ".join(arguments) if isinstance(arguments, list) else arguments)[1:60]


@pytest.mark.parametrize("arguments", COMMANDS, ids=name_case)
def test_a_bad_command_is_one_line(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(folder)
    refuse(call, *arguments)


@pytest.mark.parametrize("setting", SETTINGS, ids=name_case)
def test_a_bad_setting_is_one_line(call: Call, tmp_path: Path, setting: str) -> None:
    refuse(call, "run", "demo", "--engine", "serial", "--out", str(tmp_path / "run"), "--set", setting)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["hidden", "latent"])
def test_a_vae_that_no_machine_holds_is_refused(call: Call, tmp_path: Path, name: str) -> None:
    chosen = ["--set", "defense.name=snowball", "--set", "defense.judge=vae", "--set", "defense.grow_after=0"]
    words = refuse(call, "run", "demo", *chosen, "--set", f"defense.vae.{name}={2**62}", "--out", str(tmp_path))
    assert f"vae.{name} must be a width up to 1000000" in words


def test_a_long_error_keeps_its_beginning_and_its_end(call: Call) -> None:
    words = refuse(call, "run", "demo", "--set", f"rounds={DIGITS}")
    assert words.startswith('snowball: rounds = "999')
    assert words.endswith('999" should be a valid integer\n')


def test_too_little_memory_is_said_and_other_errors_of_torch_are_not_hidden(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> None:
        raise error

    torch_error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
    for error in (MemoryError(), torch_error):
        monkeypatch.setitem(lists.LISTS, "models", lambda error=error: fail(error))
        assert refuse(call, "list", "models").startswith("snowball: there is not enough memory: ")
    monkeypatch.setitem(lists.LISTS, "models", lambda: fail(RuntimeError("shapes differ")))
    with pytest.raises(RuntimeError, match="shapes differ"):
        call("list", "models")


def test_names_in_a_run_obey_no_terminal(call: Call, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {"settings": {"defense": {"name": "\x1b[2J\ud800[red]"}}})
    code, output, _ = call("report", tmp_path)
    assert code == 0
    assert "\\x1b[2J\\ud800[red]" in output


ASCII = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}


def write_audit(path: Path) -> Path:
    names = ("answered", "silent", "dropped", "averaged")
    models = {"model_before": "", "model_after": "", "time": "", "mode": "enforce", "outcome": "aggregated"}
    who = {"round": 1, "reason": None, "asked": None, "facts": {}, "elected": ["Z\xfcrich"], "left_out": ["\u6771"]}
    path.write_text(json.dumps({**{name: [] for name in names}, **models, **who}) + "\n", encoding="utf-8")
    return path


def test_an_ascii_terminal_shows_other_names_escaped(tmp_path: Path) -> None:
    audit = write_audit(tmp_path / "audit.jsonl")
    command = [sys.executable, "-m", "snowball", "audit", str(audit)]
    done = subprocess.run(command, capture_output=True, env=ASCII, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"| Z\\xfcrich |" in done.stdout.replace(b"  ", b"")
    assert b"\\u6771" in done.stdout


def test_a_closed_output_is_no_fault(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {"settings": {}})
    script = '"$0" -m snowball report "$1" --html - >&-'
    done = subprocess.run(["sh", "-c", script, sys.executable, tmp_path], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_stops_reading_ends_a_command_quietly() -> None:
    command = [sys.executable, "-m", "snowball", "list", "defenses", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.wait()
    process.stderr.close()
