import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweeps_made import AXES, TABLE, make_run, make_sweep, round_of, run_name

from snowball.errors import RunError
from snowball.records.files import write_json
from snowball.records.run import RunFolder
from snowball.report import read_sweeps
from snowball.report.run_metrics import read_run_metrics
from snowball.report.sweeps import MAX_SENTENCE_CHARS, PAPER_ORDER, Run, Sweep, refuse_other_run
from snowball.sim.presets import load_experiment
from snowball.sim.run import is_finished
from snowball.sweeps.grid import describe_grids
from snowball.sweeps.grid import name_run as name_run

FIRST = {path: values[0] for path, values in AXES.items()}
SNOWBALL = {**FIRST, "defense.name": "snowball"}


def read_one(folder: Path) -> tuple[Sweep, list[str]]:
    sweeps, faults = read_sweeps([folder])
    assert len(sweeps) == 1
    return sweeps[0], faults


def run_at(sweep: Sweep, at: dict[str, Any]) -> Run:
    return next(run for run in sweep.runs if run.at == at)


def test_a_sweep_has_the_numbers_of_its_runs(tmp_path: Path) -> None:
    make_sweep(tmp_path, published="label-skew", figure={"kind": "bars"})
    sweep, faults = read_one(tmp_path)
    assert faults == []
    assert (sweep.folder, sweep.name, sweep.title) == (tmp_path, "cpu/table1", "A made-up table")
    assert (sweep.published, sweep.table, sweep.figure) == ("label-skew", TABLE, {"kind": "bars"})
    assert len(sweep.runs) == 12
    run = run_at(sweep, SNOWBALL)
    assert (run.state, run.folder) == ("finished", tmp_path / run.name)
    assert run.metrics == pytest.approx(
        {
            "backdoor_accuracy": 0.003,
            "main_accuracy": 0.81,
            "last_backdoor_accuracy": 0.003,
            "last_main_accuracy": 0.81,
            "false_positive_rate": 0,
            "false_negative_rate": 1 / 3,
            "top_down_false_positive_rate": 0,
            "top_down_false_negative_rate": 1 / 3,
        }
    )


@pytest.mark.parametrize("old", [False, True], ids=["its summary says so", "its summary does not say"])
def test_rates_are_of_the_rounds_with_a_top_down_election_where_there_are_any(tmp_path: Path, old: bool) -> None:
    def grow(at: dict[str, Any], number: int) -> dict[str, Any]:
        record = round_of(at, number)
        if at != SNOWBALL or number < 3:
            return record
        return record | {"elected": [False, True, True, True], "seconds": record["seconds"] | {"top_down": 0.1}}

    make_sweep(tmp_path, {"seed": [1]}, grow)
    for file in tmp_path.glob("*/summary.json") if old else ():
        summary = json.loads(file.read_text())
        del summary["top_down"]
        write_json(file, summary)
    sweep, faults = read_one(tmp_path)
    snowball, fedavg = run_at(sweep, SNOWBALL).metrics, run_at(sweep, FIRST | {"defense.name": "fedavg"}).metrics
    assert faults == []
    assert (snowball["top_down_false_negative_rate"], snowball["false_negative_rate"]) == pytest.approx((0, 2 / 9))
    assert (fedavg["top_down_false_negative_rate"], fedavg["top_down_false_positive_rate"]) == pytest.approx((1 / 3, 1))


def test_best_and_last_round_are_told_apart(tmp_path: Path) -> None:
    def fall(at: dict[str, Any], number: int) -> dict[str, Any]:
        return round_of(at, number) | {"main_accuracy": 1 - number / 10, "backdoor_accuracy": number / 10}

    make_sweep(tmp_path, {"seed": [1]}, fall)
    metrics = read_one(tmp_path)[0].runs[0].metrics
    assert (metrics["main_accuracy"], metrics["backdoor_accuracy"]) == (0.9, 0.1)
    assert (metrics["last_main_accuracy"], metrics["last_backdoor_accuracy"]) == (0.7, 0.3)


@pytest.mark.parametrize(
    "shown", [{"table": TABLE | {"values": ["defense_seconds"]}}, {"figure": {"value": "evaluate_seconds"}}]
)
def test_seconds_are_medians_over_rounds_where_they_are_shown(tmp_path: Path, shown: dict[str, Any]) -> None:
    make_sweep(tmp_path, {"seed": [1], "rounds": [5]}, **shown)
    metrics = read_one(tmp_path)[0].runs[0].metrics
    assert metrics["defense_seconds"] == pytest.approx(0.3)
    assert metrics["evaluate_seconds"] == 0.5


def test_seconds_are_found_wherever_they_stand_in_a_line(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]}, table=TABLE | {"values": ["defense_seconds"]})
    rounds = tmp_path / run_name(FIRST) / "rounds.jsonl"
    other = {"seconds": {"defense": 7.0}, "facts": {"seconds": {"defense": 9.0}}, "participants": ['"seconds": {']}
    rounds.write_text((json.dumps(round_of(FIRST, 1) | other) + "\n") * 3)
    assert run_at(read_one(tmp_path)[0], FIRST).metrics["defense_seconds"] == 7.0


def test_a_run_without_an_attack_has_no_backdoor(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]}, lambda at, number: round_of(at, number) | {"backdoor_accuracy": None})
    run = read_one(tmp_path)[0].runs[0]
    assert run.state == "finished"
    assert "backdoor_accuracy" not in run.metrics
    assert "main_accuracy" in run.metrics


def test_a_run_that_was_never_evaluated_has_error_rates_alone(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]}, lambda at, number: round_of(at, number) | {"main_accuracy": None})
    run = read_one(tmp_path)[0].runs[0]
    rates = {"false_positive_rate", "false_negative_rate"}
    assert set(run.metrics) == rates | {f"top_down_{rate}" for rate in rates}


@pytest.mark.parametrize(("lines", "finished"), [(0, False), (2, False), (3, True), (4, False)])
@pytest.mark.parametrize("torn", ["", '{"round": 4, "part'])
def test_a_run_is_finished_where_the_simulator_says_so(tmp_path: Path, lines: int, torn: str, finished: bool) -> None:
    experiment = load_experiment("demo", ["rounds=3"])
    run = RunFolder.create(tmp_path / "run", {"settings": experiment.dump_settings()})
    for number in range(1, lines + 1):
        run.append(round_of(FIRST, number))
    with (run.path / "rounds.jsonl").open("a") as file:
        file.write(torn)
    run.write_summary()
    assert is_finished(run.path, experiment) is finished
    with nullcontext() if finished else pytest.raises(RunError, match=f"should hold 3 rounds and holds {lines}"):
        assert read_run_metrics(run.path, timed=False)[1]


def test_runs_that_are_not_there_yet_are_no_fault(tmp_path: Path) -> None:
    make_sweep(tmp_path, there=lambda at: at["seed"] == 1)
    sweep, faults = read_one(tmp_path)
    assert faults == []
    assert [run.state for run in sweep.runs if run.at["seed"] > 1] == ["missing"] * 8


def test_a_failed_run_has_its_sentence(tmp_path: Path) -> None:
    name = run_name(SNOWBALL)
    make_sweep(tmp_path, there=lambda at: at != SNOWBALL)
    write_json(tmp_path / "failed.json", {name: "it ran out of\x1b[2J memory"})
    sweep, faults = read_one(tmp_path)
    run = run_at(sweep, SNOWBALL)
    assert (run.state, run.sentence) == ("failed", r"it ran out of\x1b[2J memory")
    assert faults == [rf"{tmp_path / name} failed: it ran out of\x1b[2J memory"]


def test_a_run_that_failed_and_succeeded_later_counts(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    write_json(tmp_path / "failed.json", {run_name(SNOWBALL): "it ran out of memory"})
    sweep, faults = read_one(tmp_path)
    assert (run_at(sweep, SNOWBALL).state, faults) == ("finished", [])


def test_grids_share_the_runs_that_they_have_in_common(tmp_path: Path) -> None:
    make_sweep(tmp_path, there=lambda at: at != SNOWBALL)
    make_run(tmp_path / run_name(SNOWBALL), SNOWBALL)
    (tmp_path / run_name(SNOWBALL) / "summary.json").unlink()
    make_sweep(tmp_path, {"defense.name": ["snowball"], "seed": [1]}, name="other", there=lambda at: False)
    sweeps, faults = read_sweeps([tmp_path, tmp_path])
    assert [(sweep.name, run_at(sweep, SNOWBALL).state) for sweep in sweeps] == [
        ("cpu/table1", "unfinished"),
        ("other", "unfinished"),
    ]
    assert faults == [f"{tmp_path / run_name(SNOWBALL)} is not finished: it has no summary.json"]


def test_sweeps_are_found_in_several_folders_at_any_depth(tmp_path: Path) -> None:
    for folder in ("b", "a/deep"):
        make_sweep(tmp_path / folder, {"seed": [1]})
    found, _ = read_sweeps([tmp_path / "b", tmp_path])
    assert [sweep.folder.relative_to(tmp_path).as_posix() for sweep in found] == ["b", "a/deep"]


def test_a_run_whose_folder_is_called_sweeps_is_no_sweep(tmp_path: Path) -> None:
    make_run(tmp_path / "sweeps", FIRST)
    assert read_sweeps([tmp_path]) == ([], [])


def line(**changes: Any) -> str:
    return json.dumps(round_of(SNOWBALL, 1) | changes, sort_keys=True) + "\n"


def cut(file: str) -> Callable[[Path], None]:
    return lambda run: (run / file).unlink()


def write(file: str, content: str) -> Callable[[Path], object]:
    return lambda run: (run / file).write_text(content)


def change(file: str, **changes: Any) -> Callable[[Path], None]:
    return lambda run: write_json(run / file, json.loads((run / file).read_text()) | changes)


def keep(lines: int, more: str = "") -> Callable[[Path], object]:
    """Keep so many rounds of a run, and put something behind."""

    def spoil(run: Path) -> None:
        rounds = run / "rounds.jsonl"
        rounds.write_text("".join(rounds.read_text().splitlines(keepends=True)[:lines]) + more)

    return spoil


HEADLINE = {"round": 1, "main_accuracy": 0.5, "backdoor_accuracy": 0.5}
RATES = {"rounds": 3, "false_positive_rate": 0.5, "false_negative_rate": 0.5}


@pytest.mark.parametrize(
    ("spoil", "state", "sentence"),
    [
        (cut("run.json"), "broken", "is not a run's folder: it has no run.json"),
        (write("run.json", '{"settings'), "broken", "run.json is not valid JSON"),
        (write("run.json", "[1]"), "broken", "run.json must hold a JSON object, not a list"),
        (write("run.json", "{}"), "broken", "is of another version: its run.json has no 'settings'"),
        (cut("summary.json"), "unfinished", "is not finished: it has no summary.json"),
        (cut("rounds.jsonl"), "broken", "rounds.jsonl should hold 3 rounds and holds 0, though the run has its"),
        (keep(1), "broken", "should hold 3 rounds and holds 1, though the run has its summary.json"),
        (keep(2, '{"round": 3, "part'), "broken", "rounds.jsonl should hold 3 rounds and holds 2, though"),
        (keep(3, line(round=4)), "broken", "rounds.jsonl should hold 3 rounds and holds 4, though"),
        (write("summary.json", '{"best": nul'), "broken", "summary.json is not valid JSON"),
        (write("summary.json", '{"best": null}'), "broken", "summary.json is of another version: it has no 'last'"),
        (change("summary.json", best={"round": 1}), "broken", "of another version: its 'best' cannot be {'round': 1}"),
        (
            change("summary.json", best=HEADLINE | {"main_accuracy": 7}),
            "broken",
            "its 'best' cannot be {'round': 1, ",
        ),
        (change("summary.json", last=HEADLINE | {"round": "<b>"}), "broken", "its 'last' cannot be {'round': '<b>'"),
        (change("summary.json", false_positive_rate=10**400), "broken", "its 'false_positive_rate' cannot be 1000"),
        (change("summary.json", false_negative_rate=True), "broken", "its 'false_negative_rate' cannot be True"),
        (change("summary.json", false_negative_rate="0.5"), "broken", "its 'false_negative_rate' cannot be '0.5'"),
        (change("summary.json", top_down=[]), "broken", "its 'top_down' cannot be []"),
        (change("summary.json", top_down={"rounds": 3}), "broken", "its 'top_down' cannot be {'rounds': 3}"),
        (change("summary.json", top_down=RATES | {"false_positive_rate": 2}), "broken", "its 'top_down' cannot be {"),
        (change("summary.json", seconds={"train": -1}), "broken", "its 'seconds' cannot be {'train': -1}"),
    ],
)
def test_a_run_that_cannot_be_used_is_one_sentence_and_the_rest_is_read(
    tmp_path: Path, spoil: Callable[[Path], object], state: str, sentence: str
) -> None:
    make_sweep(tmp_path, {"seed": [1]})
    spoil(tmp_path / run_name(SNOWBALL))
    sweep, faults = read_one(tmp_path)
    assert run_at(sweep, SNOWBALL).state == state
    assert run_at(sweep, SNOWBALL).metrics == {}
    assert len(faults) == 1
    assert sentence in faults[0]
    assert run_name(SNOWBALL) in faults[0]
    assert sum(run.state == "finished" for run in sweep.runs) == 3


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"round": 1, "sec\n' + line(), "line 1 of .* is not valid JSON"),
        (line(seconds=3), "line 1 of .* has no 'seconds'"),
        (line() + "[1]\n", "line 2 of .* has no 'seconds'"),
        (line() + "{}\n", "line 2 of .* has no 'seconds'"),
        (line() + line(seconds={"defense": float("nan")}), "line 2 of .*: defense cannot take nan seconds"),
        (line(seconds={"defense": 1e300}), r"line 1 of .*: defense cannot take 1e\+300 seconds"),
        (line(seconds={"defense": 10**400}), "line 1 of .*: defense cannot take 1000*$|seconds"),
        (line(seconds={"evaluate": -1}), "evaluate cannot take -1 seconds"),
        (line(seconds={"evaluate": "<b>"}), "evaluate cannot take <b> seconds"),
        ('{"seconds": ' + "[" * 100_000 + "\n", "line 1 of .* is not valid JSON"),
    ],
)
def test_rounds_that_cannot_be_timed_are_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    make_sweep(tmp_path, {"defense.name": ["snowball"], "seed": [1]}, table=TABLE | {"values": ["defense_seconds"]})
    (tmp_path / run_name(SNOWBALL) / "rounds.jsonl").write_text(content + line() * (3 - content.count("\n")))
    sweep, faults = read_one(tmp_path)
    assert run_at(sweep, SNOWBALL).state == "broken"
    assert len(faults) == 1
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(faults[0])


def test_a_run_with_other_settings_than_its_place_is_refused(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    folder = tmp_path / run_name(SNOWBALL)
    change("run.json", settings={**json.loads((folder / "run.json").read_text())["settings"], "seed": 5})(folder)
    sweep, faults = read_one(tmp_path)
    assert run_at(sweep, SNOWBALL).state == "broken"
    assert faults == [f"{folder} is another run than its sweep's: seed is 5 in it, not 1"]


@pytest.mark.parametrize("preset", ["demo", "cpu/sent140"])
@pytest.mark.parametrize("defense", ["snowball", "snowball-plus", "fldetector"])
def test_a_run_is_known_by_the_name_that_the_simulator_gives_it(tmp_path: Path, preset: str, defense: str) -> None:
    experiment = load_experiment(preset, (f"defense.name={defense}",))
    name = name_run(experiment)
    run = Run(name, tmp_path / name, {"defense.name": defense})
    refuse_other_run(run, json.loads(json.dumps(experiment.dump_settings())))


def test_a_run_with_other_settings_than_its_name_is_refused(tmp_path: Path) -> None:
    """Two folders may hold runs of one name and of different settings: the hash tells which is right."""
    for folder in ("a", "b"):
        make_sweep(tmp_path / folder, {"seed": [1]})
    changed = tmp_path / "b" / run_name(SNOWBALL)
    change("run.json", settings={**json.loads((changed / "run.json").read_text())["settings"], "cohort": 5})(changed)
    (first, second), faults = read_sweeps([tmp_path / "a", tmp_path / "b"])
    assert (run_at(first, SNOWBALL).state, run_at(second, SNOWBALL).state) == ("finished", "broken")
    assert len(faults) == 1
    assert faults[0].startswith(f"{changed} holds other settings than its name says: theirs would end in ")


def test_a_setting_that_a_run_lacks_stands_in_its_place_as_none(tmp_path: Path) -> None:
    file = make_sweep(tmp_path, {"seed": [1]})
    manifest = json.loads(file.read_text())
    for entry in manifest["runs"]:
        entry["at"]["defense.target_share"] = None
    write_json(file, manifest)
    sweep, faults = read_one(tmp_path)
    assert faults == []
    assert all(run.state == "finished" for run in sweep.runs)


PLACE = {"data.name": "mnist", "attack.name": "cba", "defense.name": "krum", "seed": 1}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"runs": None}, "its 'runs' cannot be None"),
        ({"runs": []}, r"its 'runs' cannot be \[\]"),
        ({"runs": [{"folder": "../elsewhere", "at": PLACE}]}, "its 'runs' cannot be"),
        ({"runs": [{"folder": "..", "at": PLACE}]}, "its 'runs' cannot be"),
        ({"runs": [{"folder": "/etc", "at": PLACE}]}, "its 'runs' cannot be"),
        ({"runs": [{"folder": "a\0b", "at": PLACE}]}, "its 'runs' cannot be"),
        ({"runs": [{"folder": "a" * 300, "at": PLACE}]}, "its 'runs' cannot be"),
        ({"runs": [{"folder": "a", "at": {"seed": 1}}]}, "its 'runs' cannot be"),
        ({"runs": [{"folder": "a", "at": PLACE | {"seed": "1"}}]}, "its 'runs' cannot be"),
        ({"runs": [{"folder": "a", "at": PLACE}] * 2}, "it names 2 runs, 1 distinct"),
        ({"axes": "seed"}, "its 'axes' cannot be 'seed'"),
        ({"name": 7}, "its 'name' cannot be 7"),
        ({"title": ["<b>"]}, r"its 'title' cannot be \['<b>'\]"),
        ({"published": 3}, "its 'published' cannot be 3"),
        ({"table": "rows"}, "its 'table' cannot be 'rows'"),
        ({"figure": []}, r"its 'figure' cannot be \[\]"),
    ],
)
def test_a_manifest_with_odd_fields_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = make_sweep(tmp_path, {"seed": [1]}, there=lambda at: False, name="odd")
    write_json(file, json.loads(file.read_text()) | changes)
    make_sweep(tmp_path, {"seed": [1]})
    sweep, faults = read_one(tmp_path)
    assert sweep.name == "cpu/table1"
    assert len(faults) == 1
    with pytest.raises(AssertionError, match=f"odd.json is not a sweep's manifest: {sentence}"):
        raise AssertionError(faults[0])


@pytest.mark.parametrize("field", ["name", "title", "published", "table", "figure", "axes", "runs"])
def test_a_manifest_that_lacks_a_field_is_one_sentence(tmp_path: Path, field: str) -> None:
    file = make_sweep(tmp_path, {"seed": [1]})
    manifest = json.loads(file.read_text())
    del manifest[field]
    write_json(file, manifest)
    assert read_sweeps([tmp_path]) == ([], [f"{file} is not a sweep's manifest: it has no {field!r}"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is not valid JSON"),
        ('{"name": "t', "is not valid JSON"),
        ("3", "an object was expected, got int"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_manifest_that_is_none_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "a.json").write_text(content)
    sweeps, faults = read_sweeps([tmp_path])
    assert sweeps == []
    assert len(faults) == 1
    assert sentence in faults[0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"table": {"rows": "defense.name"}}, "has a table whose rows are not a list of names"),
        ({"table": {"columns": [3]}}, "has a table whose columns are not a list of names"),
        (
            {"table": {"worst": ["attack.target"]}},
            "has a table of the worst of ['attack.target'], which is not a setting",
        ),
        (
            {"table": {"values": ["main_acuracy"]}},
            "'main_acuracy', which is not a metric; did you mean 'main_accuracy'?",
        ),
        ({"published": "label-scew"}, "asks for published numbers 'label-scew'; did you mean 'label-skew'?"),
    ],
)
def test_a_sweep_is_shown_without_what_is_odd_about_it(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    make_sweep(tmp_path, {"seed": [1]}, **changes)
    sweep, faults = read_one(tmp_path)
    assert all(getattr(sweep, name) is None for name in changes)
    assert len(faults) == 1
    assert sentence in faults[0]


def test_a_table_that_no_screen_could_hold_is_one_sentence(tmp_path: Path) -> None:
    runs = [
        {"folder": f"r{number}", "at": PLACE | {"defense.name": f"d{number}", "data.name": f"n{number}"}}
        for number in range(101)
    ]
    make_sweep(tmp_path, there=lambda at: False, runs=runs)
    sweeps, faults = read_sweeps([tmp_path])
    assert sweeps == []
    assert faults[0].endswith("asks for a table of 101 rows and 101 columns, over 10000 cells")


@pytest.mark.parametrize(("content", "faulty"), [("[]", True), ("{", True), ("{}", False), ('{"x": 3}', True)])
def test_an_odd_list_of_failures_is_one_sentence_at_most(tmp_path: Path, content: str, faulty: bool) -> None:
    make_sweep(tmp_path, {"seed": [1]})
    (tmp_path / "failed.json").write_text(content)
    sweep, faults = read_one(tmp_path)
    assert len(faults) == faulty
    assert all("failed.json" in fault for fault in faults)
    assert all(run.state == "finished" for run in sweep.runs)


def test_names_and_titles_are_one_short_line_that_can_be_seen(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]}, name="n", title="a\nb\x1b[2J\u202e" + "x" * 1000)
    title = read_one(tmp_path)[0].title
    assert title.startswith(r"a\nb\x1b[2J\u202exxx")
    assert len(title) == MAX_SENTENCE_CHARS + 1
    assert title.endswith("…")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FILES = ["run.json", "rounds.jsonl", "summary.json", "../failed.json", "../sweeps/cpu-table1.json"]
FIELDS = ["name", "title", "published", "table", "figure", "axes", "runs", "best", "last", "seconds", "settings"]


@given(file=st.sampled_from(FILES), field=st.sampled_from(FIELDS), value=json_values)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_in_the_files_is_more_than_a_sentence(tmp_path: Path, file: str, field: str, value: Any) -> None:
    from shutil import rmtree

    from snowball.report import build_sweep_table
    from snowball.report.export.write import EXPORTS

    rmtree(tmp_path / "sweep", ignore_errors=True)
    make_sweep(
        tmp_path / "sweep", {"defense.name": ["krum"], "seed": [1]}, table=TABLE | {"values": ["defense_seconds"]}
    )
    target = tmp_path / "sweep" / run_name({**FIRST, "defense.name": "krum"}) / file
    former = json.loads(target.read_text()) if target.exists() and file != "rounds.jsonl" else {}
    target.write_text(json.dumps(former | {field: value}) + "\n")
    sweeps, faults = read_sweeps([tmp_path / "sweep"])
    assert all(fault.isprintable() for fault in faults)
    for sweep in sweeps:
        for export in EXPORTS.values():
            assert export(build_sweep_table(sweep)).encode()


def test_sweeps_come_in_the_papers_order_with_the_headline_first(tmp_path: Path) -> None:
    names = ["cpu/defaults", "cpu/table2", "mine", "a/other", "cpu/curves", "cpu/table1", "cpu/summary"]
    for name in names:
        make_sweep(tmp_path, {"seed": [1]}, name=name)
    found = [sweep.name for sweep in read_sweeps([tmp_path])[0]]
    assert found[:5] == ["cpu/summary", "cpu/table1", "cpu/table2", "cpu/curves", "cpu/defaults"]
    assert sorted(found[5:]) == ["a/other", "mine"]


def test_the_papers_order_names_shipped_grids() -> None:
    assert set(PAPER_ORDER) <= {name.partition("/")[2] for name in describe_grids()}
