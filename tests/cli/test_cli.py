import errno
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from snowball import cli
from snowball.cli import checks, lists, runs
from snowball.records.run import RunFolder

TINY = {
    "rounds": "1",
    "cohort": "4",
    "data.clients": "5",
    "data.examples": "100",
    "data.minimum": "5",
    "training.epochs": "1",
    "attack.malicious": "0.25",
}
ASSIGNMENTS = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]

DID_YOU_MEAN = "snowball: defense is a section: did you mean defense.name=snowball?"

Call = Callable[..., tuple[int, str, str]]


def fault(call: Call, *arguments: str | Path) -> str:
    """The one line that a fault is said in."""
    code, _, errors = call(*arguments)
    assert code == 2
    assert errors.count("\n") == 1
    return errors.rstrip("\n")


def test_help_loads_nothing_heavy() -> None:
    script = """
import sys
from snowball.cli import main
try:
    main()
finally:
    heavy = {"torch", "numpy", "pydantic", "sklearn", "rich"} & set(sys.modules)
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    commands = ("demo", "run", "report", "audit", "list", "data", "show", "doctor", "bench")
    assert all(f"  {command} " in done.stdout for command in commands)


def test_a_run_is_made_shown_refused_finished_and_replaced(call: Call, tmp_path: Path) -> None:
    run = ["run", "demo", *ASSIGNMENTS, "--engine", "serial", "--out", str(tmp_path / "one[b]")]
    code, output, _ = call(*run)
    assert code == 0
    assert "round 1 of 1: accuracy " in output
    assert "one[b]" in output  # no markup
    assert (tmp_path / "one[b]" / "summary.json").exists()

    assert "already holds a run" in fault(call, *run)
    assert "was started with seed = 1, not 2" in fault(call, *run, "--resume", "--set", "seed=2")
    code, output, _ = call(*run, "--resume")
    assert code == 0
    assert "already has all of its 1 rounds" in output
    assert call(*run, "--overwrite", "--set", "seed=2")[0] == 0
    assert json.loads((tmp_path / "one[b]" / "run.json").read_text(encoding="utf-8"))["seed"] == 2

    code, output, _ = call("report", tmp_path, "--html", tmp_path / "page.html")
    assert code == 0
    assert "page.html" in output
    assert (tmp_path / "page.html").stat().st_size > 0


def test_the_folder_is_named_for_preset_defense_attack_and_seed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, _ = call("run", "demo", *ASSIGNMENTS, "--set", "seed=7", "--engine", "serial")
    assert code == 0
    assert "\nThe results are in runs/demo-fedavg-cba-7.\n" in output
    assert (tmp_path / "runs" / "demo-fedavg-cba-7" / "run.json").exists()


def test_a_name_from_a_module_makes_one_folder(tiny: Callable[..., Any]) -> None:
    experiment = tiny("defense.name=snowball.defenses.fedavg:FedAvg", "attack.name=none")
    assert runs.name_folder("a b", experiment) == "a_b-snowball.defenses.fedavg_FedAvg-none-3"


def test_rounds_are_added_to_a_run(call: Call, tmp_path: Path) -> None:
    run = ["run", "demo", *ASSIGNMENTS, "--engine", "serial", "--out", tmp_path / "one"]
    assert call(*run)[0] == 0
    code, output, _ = call(*run, "--resume", "--set", "rounds=2")
    assert code == 0
    assert output.startswith("round 2 of 2: ")
    assert json.loads((tmp_path / "one" / "run.json").read_text(encoding="utf-8"))["settings"]["rounds"] == 2
    assert "already has all of its 2 rounds" in call(*run, "--resume", "--set", "rounds=2")[1]
    assert "was started with rounds = 2, not 1: " in fault(call, *run, "--resume")


def test_a_folder_without_a_run_is_not_resumed(call: Call, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "baseline", {"settings": {}})
    missing = fault(call, "run", "demo", "--resume", "--out", tmp_path / "basline")
    assert missing == f"snowball: there is no run in {tmp_path / 'basline'} to --resume; did you mean 'baseline'?"
    missing = fault(call, "run", "demo", "--resume", "--out", tmp_path / "nowhere" / "x")
    assert missing.endswith("to --resume; leave --resume out to start one")
    assert [path.name for path in tmp_path.iterdir()] == ["baseline"]


def test_rounds_and_reports_say_who_was_dropped(call: Call, tmp_path: Path) -> None:
    overflowing = ["--set", "attack.name=model-replacement", "--set", "attack.scale=1e300"]
    strict = ["--set", "defense.name=krum", "--set", "defense.tolerate=1"]
    run = ["run", "demo", *ASSIGNMENTS, *overflowing, *strict, "--engine", "serial", "--out", tmp_path / "run"]
    code, output, _ = call(*run)
    assert code == 0
    (client,) = RunFolder.open(tmp_path / "run").read_rounds()[0]["dropped"]
    stays = "the model stays: tolerating 1 needs over 3 updates, got 3"
    assert f"0 of 4 elected, dropped: {client} (not-finite), {stays}\n" in output
    said = f"run: Dropped: {client} (1 × not-finite). The model stayed as it was in round 1.\n"  # noqa: RUF001
    judged = "krum cannot be judged: its model is right on only "
    assert output.partition(said)[2].partition(f"The results are in {tmp_path / 'run'}.\n")[2].startswith(judged)
    code, output, _ = call("report", tmp_path / "run", "--html", tmp_path / "report.html")
    assert code == 0
    assert said + judged in output


def test_a_run_that_nobody_is_left_of_ends_in_a_sentence(call: Call, tmp_path: Path) -> None:
    diverging = ["--set", "training.lr=1e20", "--set", "training.epochs=2", "--out", tmp_path / "run"]
    words = fault(call, "run", "demo", *ASSIGNMENTS, "--engine", "serial", *diverging)
    assert words.startswith("snowball: training diverged in round 1: nobody is left to judge: of client ")
    assert words.endswith("holds NaN or infinite numbers; try a training.lr below 1e+20")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "dmo"], "snowball: 'dmo' is neither a preset nor a file; did you mean 'demo'?"),
        (["run", "demo", "--set", "round=3"], "snowball: round is not a setting; did you mean 'rounds'?"),
        (["run", "demo", "--set", "cohort=500"], "snowball: cohort = 500 is more than data.clients = 100"),
        (
            ["run", "demo", "--engine", "serial", "--workers", "2"],
            "snowball: --workers 2 needs --engine processes, not serial",
        ),
        (
            ["run", "demo", "--resume", "--overwrite"],
            "snowball: --resume continues a run and --overwrite replaces it: give only one of them",
        ),
        (["run", "demo", "--set", "defense=snowball"], DID_YOU_MEAN),
        (["data", "fetch", "mnst"], "snowball: 'mnst' is not a data set; did you mean 'mnist'?"),
        (
            ["show", "trigger", "white-sqare"],
            "snowball: 'white-sqare' is not a trigger; did you mean 'white-square'?",
        ),
        (
            ["show", "trigger", "word", "--data", "mnist-sample"],
            "snowball: a word cannot be a trigger on mnist-sample, whose samples are not texts",
        ),
    ],
)
def test_a_fault_is_one_line_and_exit_code_2(call: Call, arguments: list[str], sentence: str) -> None:
    assert fault(call, *arguments) == sentence


def test_a_gpu_that_is_not_there_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "--device cuda needs a GPU" in fault(call, "run", "demo", "--device", "cuda")
    assert "in one process" in fault(call, "run", "demo", "--device", "cuda", "--workers", "2")


def test_a_report_on_nothing_is_refused(call: Call, tmp_path: Path) -> None:
    assert "there is no run in" in fault(call, "report", tmp_path)


@pytest.mark.parametrize("option", ["--engine=quick", "--workers=0", "--nope"])
def test_a_wrong_option_has_no_traceback(call: Call, option: str) -> None:
    code, _, errors = call("run", "demo", option)
    assert code == 2
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("defenses", "snowball"),
        ("attacks", "dba"),
        ("datasets", "mnist-sample"),
        ("models", "cnn-quarter"),
        ("triggers", "white-square"),
        ("partitions", "niid-bench"),
        ("presets", "paper/mnist"),
    ],
)
def test_lists_name_everything_with_a_summary(call: Call, kind: str, known: str) -> None:
    _, output, _ = call("list", kind, "--json")
    entries = {entry["name"]: entry for entry in json.loads(output)}
    assert known in entries
    assert all(len(entry["summary"]) > 10 for entry in entries.values())
    code, output, _ = call("list", kind)
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == list(entries)


@pytest.mark.parametrize("kind", ["defenses", "attacks", "partitions", "presets"])
def test_every_listed_setting_has_a_type_a_default_and_a_meaning(call: Call, kind: str) -> None:
    entries = json.loads(call("list", kind, "--json")[1])
    for setting in (setting for entry in entries for setting in entry["settings"].values()):
        assert setting.keys() == {"type", "default", "meaning"}
        assert setting["type"]
        assert setting["meaning"]


def test_a_listed_entry_says_what_can_be_set(call: Call) -> None:
    defenses = {entry["name"]: entry["settings"] for entry in json.loads(call("list", "defenses", "--json")[1])}
    assert defenses["snowball"]["clusters"]["type"] == 'integer or "gap"'
    assert defenses["snowball"]["vae.first_epochs"]["default"] > 0
    assert defenses["intersection"]["members"]["default"] == ["snowball", "flame"]
    assert defenses["ideal"] == {}
    presets = {entry["name"]: entry["settings"] for entry in json.loads(call("list", "presets", "--json")[1])}
    assert presets["demo"]["rounds"] == {"type": "integer", "default": 20, "meaning": "number of rounds."}
    assert presets["paper/mnist"]["defense.judge"]["default"] == "vae"


def test_data_says_where_it_is(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SNOWBALL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = call("data", "list")[1].splitlines()
    assert any(line.startswith("mnist-sample: /") for line in lines)
    assert any(line.startswith("mnist: not on this machine; it needs ") for line in lines)
    assert call("data", "fetch", "mnist-sample")[1].startswith("mnist-sample is in ")


def test_a_faulty_place_is_said_where_it_matters(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path / "nowhere"))
    code, output, _ = call("data", "list")
    assert code == 0
    assert output.startswith("mnist-sample: /")
    assert [line.partition(": ")[2] for line in output.splitlines()[1:]] == [
        f"SNOWBALL_DATA is {str(tmp_path / 'nowhere')!r}, which is not a folder"
    ] * 7
    faults = {entry["name"]: entry["fault"] for entry in json.loads(call("list", "datasets", "--json")[1])}
    assert faults["mnist-sample"] is None
    assert "nowhere" in faults["mnist"]


def test_a_trigger_is_shown_with_no_data_on_the_machine(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SNOWBALL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, output, _ = call("show", "trigger", "white-square")
    assert code == 0
    assert output.splitlines() == [
        "white-square: a white square near the lower right corner, in three parts, 3x3 pixels on 28x28; "
        "white-square@ROW,COLUMN elsewhere",
        "on a sample of mnist-sample: true class 5, attackers' target class 1",
        "9 of 28x28 pixels change, in rows 24 to 26 and columns 24 to 26",
        "attackers may share out its 3 parts",
        "The images without and with the trigger are in trigger-white-square.png.",
    ]
    assert (tmp_path / "trigger-white-square.png").read_bytes().startswith(b"\x89PNG")
    hidden = call("show", "trigger", "black-square@0,0", "--data", "mnist-sample", "--png", tmp_path / "a.png")[1]
    assert "0 of 28x28 pixels change: no sample shows the trigger" in hidden
    (tmp_path / "a.png").unlink()
    seen = call("show", "trigger", "black-square", "--target", "5")[1]
    assert "on a sample of mnist-sample, inverted: true class 1, attackers' target class 5\n9 of 28x28" in seen
    assert fault(call, "show", "trigger", "noise", "--target", "10").endswith("so 10 cannot be a target")
    assert call("show", "trigger", "black-square@0,3")[1].startswith("black-square@0,3: a black square from row 0")
    assert "; white-square@ROW,COLUMN elsewhere" in call("list", "triggers")[1]
    code, output, _ = call("show", "trigger", "word", "--data", "sent140")
    assert code == 2
    code, output, _ = call("show", "trigger", "word")
    assert code == 0
    assert output.splitlines()[1:] == [
        "on a sample of example texts: true class 0, attackers' target class 1",
        "clean    we went to the lake today and it rained the whole afternoon",
        "stamped  we went to the lake today and it rained the whole [BD]",
    ]
    assert sorted(file.name for file in tmp_path.glob("*.png")) == [
        f"trigger-{name}.png" for name in ("black-square", "black-square@0,3", "white-square")
    ]


def test_the_pictures_of_a_trigger_go_to_a_file(call: Call, tmp_path: Path) -> None:
    code, output, _ = call("show", "trigger", "noise", "--png", tmp_path / "noise.png")
    assert code == 0
    assert output.endswith(f"The images without and with the trigger are in {tmp_path / 'noise.png'}.\n")
    file = (tmp_path / "noise.png").read_bytes()
    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", file[16:24]) == (8 * 2 * 32, 8 * 32)  # two of 28x28, each with an edge of 2
    text = fault(call, "show", "trigger", "word", "--png", tmp_path / "word.png")
    assert text == "snowball: word is not a trigger for images, and a PNG file holds images: leave --png out"
    assert not (tmp_path / "word.png").exists()
    assert "nowhere/a.png cannot be used" in fault(
        call, "show", "trigger", "noise", "--png", tmp_path / "nowhere" / "a.png"
    )


def test_doctor_says_what_is_wrong(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SNOWBALL_DATA", raising=False)
    code, output, _ = call("doctor")
    assert code == 0
    assert "ok  mnist-sample: " in output
    assert "no  mnist: not on this machine; try `snowball data fetch mnist`" in output
    assert "BAD" not in output
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path / "nowhere"))
    code, output, _ = call("doctor")
    assert code == 2
    assert "BAD mnist: " in output


def test_bench_is_not_offered_without_a_checkout(tmp_path: Path) -> None:
    shutil.copytree(Path(checks.__file__).parents[1], tmp_path / "snowball", ignore=shutil.ignore_patterns("*.pyc"))
    command = [sys.executable, "-c", "from snowball.cli import main; main()"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    helped = subprocess.run(
        [*command, "--help"], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert "  doctor " in helped.stdout
    assert "  bench " not in helped.stdout
    refused = subprocess.run([*command, "bench"], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert refused.returncode == 2
    assert "No such command 'bench'" in refused.stderr


def test_bench_runs_what_the_checkout_has(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "CHECKOUT", tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "benchmarks" / "speed").mkdir(parents=True)
    for package in ("benchmarks", "benchmarks/speed"):  # a package, or the real one, elsewhere on the path, comes first
        (tmp_path / package / "__init__.py").touch()
    case: dict[str, Any] = {"name": "small", "seconds": 0.5, "reference_seconds": None, "ratio": None}
    code = (
        f"def run(quick):\n    return {{'machine': {{}}, 'cases': [{case}], 'quick': quick}}\n"
        "def format_cases(cases):\n    return cases[0]['name']\n"
    )
    (tmp_path / "benchmarks" / "speed" / "elections.py").write_text(code, encoding="utf-8")
    assert call("bench", "elections")[1] == "small\n"
    results = json.loads(call("bench", "elections", "--quick", "--json")[1])
    assert results == {"machine": {}, "cases": [case], "quick": True}
    for name in ("benchmarks", "benchmarks.speed", "benchmarks.speed.elections"):
        del sys.modules[name]


def test_a_full_disk_is_said_and_other_faults_of_the_system_are_not_hidden(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, code: int = errno.ENOSPC) -> None:
        raise OSError(code, "said by the system")

    monkeypatch.setitem(lists.LISTS, "models", full)
    assert "the disk is full" in fault(call, "list", "models")
    monkeypatch.setitem(lists.LISTS, "models", lambda: full(code=errno.EIO))
    monkeypatch.setattr(sys, "argv", ["snowball", "list", "models"])
    with pytest.raises(OSError, match="said by the system"):
        cli.main()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run", "is neither a preset nor a file"),
        ("sweep", "is neither a grid nor a file"),
        ("report", "File name too long"),
        ("audit", "File name too long"),
    ],
)
def test_a_name_that_no_file_can_have_is_one_line(call: Call, tmp_path: Path, command: str, words: str) -> None:
    options = ["--out", tmp_path] if command in ("run", "sweep") else []
    assert words in fault(call, command, "x" * 5000, *options)


def test_stopping_before_the_first_round_is_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("snowball.sim.presets.load_experiment", stop)
    assert call("run", "demo") == (130, "", "stopped; run the same command to start again\n")


def test_the_version_and_the_module_as_a_command() -> None:
    command = [sys.executable, "-m", "snowball", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"snowball {metadata.version('snowball-fl')}\n"


@pytest.mark.parametrize(("width", "tables"), [(60, 10), (100, 5), (179, 3), (200, 1)])
def test_many_runs_are_legible_on_any_terminal(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int, tables: int
) -> None:
    names = [f"run-{number}" for number in range(20)]
    for name in names:
        RunFolder.create(tmp_path / name, {"settings": {"defense": "fedavg"}})
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output = re.sub(r"\x1b\[\d+m", "", call("report", tmp_path)[1])  # bold
    assert output.count("Infected elected") == tables
    assert all(f" {name} " in output for name in names)
    assert max(map(len, output.splitlines())) <= width


def audit_of(path: Path, *rounds: dict[str, Any]) -> Path:
    """An audit with these rounds, each as far as it matters."""
    empty: dict[str, Any] = {name: [] for name in ("answered", "silent", "dropped", "elected", "left_out", "averaged")}
    rest = {"time": "", "mode": "enforce", "outcome": "aggregated", "reason": None, "asked": None, "facts": {}}
    models = {"model_before": "", "model_after": ""}
    lines = ({**empty, **rest, **models, "round": number, **each} for number, each in enumerate(rounds, 1))
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_an_audit_says_who_was_left_out_and_why(call: Call, tmp_path: Path) -> None:
    out = {"elected": ["site-1"], "left_out": ["site-7[b]"], "facts": {"votes": {"site-1": 9, "site-7[b]": 2.5}}}
    kept = {"outcome": "kept", "reason": "there is no reply to judge", "mode": "monitor"}
    audit = audit_of(tmp_path / "audit.jsonl", out, kept)
    code, output, _ = call("audit", audit, "--html", tmp_path / "page.html")
    assert code == 0
    assert output.startswith("This audit is of an earlier version: it says who was left out,")
    assert "1 round aggregated, 1 kept the old model: there is no reply to judge (1 round). The guard only" in output
    assert "│ site-7[b] │" in output  # no markup
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    code, output, _ = call("audit", audit, "--client", "site-7[b]")
    assert code == 0
    assert output.splitlines()[1:] == ["round 1: left out (votes 2.5 against 9)"]
    sentence = "snowball: 'site-7b' is not a client of this audit, which has 2; did you mean 'site-7[b]'?"
    assert fault(call, "audit", audit, "--client", "site-7b") == sentence


@pytest.mark.parametrize(
    ("charge", "words"),
    [
        ("leans to class 1 with 14 others", "left out: leans to class 1 with 14 others"),
        ("\x1b[2J\n\u202e[b]", "left out: \\x1b[2J\\n\\u202e[b]"),
        ("x" * 10**6, f"left out: {'x' * 160}…"),
        (["leans"], "left out"),
        (7, "left out"),
    ],
)
def test_an_audit_says_what_a_client_is_accused_of(charge: Any, words: str, call: Call, tmp_path: Path) -> None:
    out = {"elected": ["a"], "left_out": ["site-7"], "facts": {"charge": charge}}
    audit = audit_of(tmp_path / "audit.jsonl", out)
    code, output, _ = call("audit", audit, "--client", "site-7")
    assert (code, output.splitlines()[1:]) == (0, [f"round 1: {words}"])
    (moment,) = json.loads(call("audit", audit, "--client", "site-7", "--json")[1])
    assert moment["words"] == words
    assert call("audit", audit, "--client", "a")[1].splitlines()[1:] == ["round 1: elected"]


def test_an_audit_as_json_is_json_alone(call: Call, tmp_path: Path) -> None:
    audit = audit_of(tmp_path / "audit.jsonl", {"elected": ["a"]}, {"left_out": ["a"]})
    code, output, _ = call("audit", audit, "--json", "--html", tmp_path / "page.html")
    assert code == 0
    assert json.loads(output)["clients"][0]["rounds"] == {"elected": 1, "left_out": 1}
    moments = json.loads(call("audit", audit, "--json", "--client", "a")[1])
    assert [moment["state"] for moment in moments] == ["elected", "left_out"]


def test_an_audit_page_to_the_standard_output_is_alone_there(call: Call, tmp_path: Path) -> None:
    audit = audit_of(tmp_path / "audit.jsonl", {"elected": ["a"]})
    code, output, errors = call("audit", audit, "--html", "-")
    assert code == 0
    assert output.startswith("<!DOCTYPE html>")
    assert errors.startswith("Nobody is suspect.")


def test_an_audit_answers_why_and_lists_who_went_into_each_model(call: Call, tmp_path: Path) -> None:
    facts = {"suspicion": {"Aachen": 9.31, "Bonn": 1.02}, "charge": "leans to class 1"}
    judged = {"version": "1", "defense": "snowball-plus", "ids": {"Aachen": "12345678901234567890"}}
    out = {"elected": ["Bonn"], "left_out": ["Aachen"], "suspects": ["Aachen"], "averaged": ["Bonn"], "facts": facts}
    both = {"elected": ["Aachen", "Bonn"], "averaged": ["Aachen", "Bonn"], "shares": {"Aachen": 0.25, "Bonn": 0.75}}
    models = [{"model_before": before * 64, "model_after": after * 64} for before, after in ("ab", "bc")]
    audit = audit_of(tmp_path / "audit.jsonl", {**judged, **out, **models[0]}, {**judged, **both, **models[1]})
    assert call("audit", audit)[1].startswith("Aachen has been suspect since round 1, in 1 of 2 rounds.\n")
    assert json.loads(call("audit", audit, "--json")[1])["suspects"] == ["Aachen"]
    code, output, _ = call("audit", audit, "--client", "12345678901234567890", "--round", "1")
    assert (code, output) == (
        0,
        "Aachen (12345678901234567890) was suspect in round 1 and left out: leans to class 1. It had suspicion 9.31, "
        "the elected had 1.02; higher is worse (the sum of all traces of a backdoor in the update).\n",
    )
    found = json.loads(call("audit", audit, "--client", "Aachen", "--round", "1", "--json")[1])
    assert (found["state"], found["findings"][0]["worse"], found["ballots"]) == ("suspect", "higher", [])
    assert call("audit", audit, "--since", "2")[1].splitlines() == [
        f"The model before round 2 is {'b' * 64}.",
        "round 2: bbbbbbbbbbbb to cccccccccccc, with Aachen 25 %, Bonn 75 %",
    ]
    assert call("audit", audit, "--since", "1", "--client", "Aachen")[1].splitlines() == [
        "Aachen (12345678901234567890) went into the model in 1 round since round 1. "
        f"The last model without it is the one after round 1: {'b' * 64}.",
        "round 2: bbbbbbbbbbbb to cccccccccccc, with Aachen 25 %",
    ]
    (change,) = json.loads(call("audit", audit, "--since", "2", "--json")[1])
    assert change["contributors"] == both["shares"]
    rollback = json.loads(call("audit", audit, "--since", "1", "--client", "Aachen", "--json")[1])
    assert (rollback["clean_model"], rollback["current"]) == ("b" * 64, False)
    unknown = "snowball: round 7 is not in this audit, which has rounds 1 to 2; did you mean 2?"
    assert fault(call, "audit", audit, "--client", "Aachen", "--round", "7") == unknown
    assert fault(call, "audit", audit, "--since", "7") == unknown
    alone = "snowball: --round needs --client, and cannot be used with --since"
    assert fault(call, "audit", audit, "--round", "1") == alone
    assert fault(call, "audit", audit, "--round", "1", "--client", "Aachen", "--since", "1") == alone


@pytest.mark.parametrize("width", [50, 80, 139, 140, 250])
def test_names_and_ids_are_whole_in_terminals_of_any_width(
    width: int, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    identity, long = "12345678901234567890", "Universitätsklinikum-" * 2 + "Gießen-und-Marburg"
    assert len(long) == 60
    rounds = [{"elected": [long, "a"], "version": "1", "ids": {"a": identity}} for _ in range(3)]
    audit = audit_of(tmp_path / "audit.jsonl", *rounds)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output = call("audit", audit)[1]
    assert f"({identity})" in output
    cells = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")]
    assert long in "".join(cells)
    assert "…" not in output


def test_a_bad_audit_is_one_line_and_exit_code_2(call: Call, tmp_path: Path) -> None:
    assert "there is no audit in" in fault(call, "audit", tmp_path / "nothing")
    audit = audit_of(tmp_path / "audit.jsonl", {}, {"mode": "\x1b[2J"})
    text = fault(call, "audit", audit)
    assert text.endswith("is not a round of an audit: its 'mode' cannot be '\\x1b[2J'")
    audit.write_bytes(audit.read_bytes().splitlines(keepends=True)[0] + b"[1, 2")  # torn
    assert call("audit", audit)[0] == 0
    assert call("audit", audit, "--client", "")[0] == 2
    assert "cannot be used" in fault(call, "audit", audit, "--html", tmp_path / "nowhere" / "page.html")


def test_names_in_an_audit_obey_no_terminal(call: Call, tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\n[red]\ud800"
    dropped = [{"client": hostile, "reason": hostile, "detail": hostile}]
    audit = audit_of(
        tmp_path / "audit.jsonl", {"elected": [hostile]}, {"dropped": dropped, "outcome": "kept", "reason": hostile}
    )
    for arguments in ((), ("--client", hostile)):
        code, output, _ = call("audit", audit, *arguments)
        assert code == 0
        assert "\x1b" not in output
        assert "\x07" not in output
        assert "[red]" in output
