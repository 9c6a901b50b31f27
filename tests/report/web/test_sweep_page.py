import json
import re
import runpy
import sys
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from snowball.errors import RunError
from snowball.records.presets import describe_presets
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.report import find_runs, write_html
from snowball.report.compare import Difference, find_differences
from snowball.report.sweeps import read_sweeps
from snowball.report.web.run_index import MAX_OPEN_RUNS, build_address, build_columns, build_run_index
from snowball.report.web.sweep_tables import PaperTable, build_paper_table, describe_agreement
from snowball.sim.experiment import (
    AttackSettings,
    DataSettings,
    Experiment,
    FaultSettings,
    ModelSettings,
    TrainingSettings,
)
from snowball.sim.presets import load_experiment

sys.path.insert(0, str(Path(__file__).parent))
from sweeps_made import TABLE, At, make_sweep, round_of, run_name

HOSTILE = "<img src=x onerror=alert(1)>&\"'"


def page_of(folder: Path) -> str:
    sweeps, faults = read_sweeps([folder])
    write_html(find_runs([folder]), folder / "report.html", sweeps, faults)
    return (folder / "report.html").read_text(encoding="utf-8")


def table_of(folder: Path) -> PaperTable:
    (sweep,), _ = read_sweeps([folder])
    places = {run.path.resolve(): place for place, run in enumerate(find_runs([folder]))}
    table = build_paper_table(sweep, places)
    assert table
    return table


def words(markup: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", markup))).strip()


def test_heads_span_the_columns_that_they_group(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"data.name": ["mnist", "femnist"], "attack.name": ["cba", "dba", "edge"], "seed": [1]})
    table = table_of(tmp_path)
    assert [(name, [(head.text, head.span) for head in heads]) for name, heads in table.heads] == [
        ("data", [("mnist", 6), ("femnist", 6)]),
        ("attack", [(name, 2) for name in ("cba", "dba", "edge") * 2]),
    ]
    assert (table.corner, [metric.short for metric in table.metrics]) == ("defense", ["BA", "MA"])


def test_a_number_is_linked_to_its_runs_by_folder(tmp_path: Path) -> None:
    make_sweep(tmp_path / "one")
    make_sweep(tmp_path / "two")  # the same names once more
    runs = find_runs([tmp_path])
    places = {run.path.resolve(): place for place, run in enumerate(runs)}
    for sweep in read_sweeps([tmp_path])[0]:
        table = build_paper_table(sweep, places)
        assert table
        for label, (box,) in table.rows:
            assert [runs[place].path.parent for place in box.runs] == [sweep.folder] * 3
            assert all(f"-{label}-" in runs[place].path.name for place in box.runs)


def test_numbers_stand_beside_the_published_ones(tmp_path: Path) -> None:
    make_sweep(tmp_path, published="label-skew")
    table = table_of(tmp_path)
    rows = dict(table.rows)
    (krum,) = rows["krum"]
    backdoor, _ = krum.numbers
    assert (backdoor.mean, backdoor.spread, backdoor.published) == ("60.20", "0.10", "99.98")
    assert (backdoor.difference, backdoor.compared, backdoor.best) == ("−39.78", "better", False)  # noqa: RUF001
    (snowball,) = rows["snowball"]
    assert [number.compared for number in snowball.numbers] == ["", "worse"]
    assert [number.best for number in snowball.numbers] == [True, False]
    assert [number.best for (box,) in rows.values() for number in box.numbers].count(True) == 1
    assert table.source == "Table 1"
    assert table.agreement == "3 of 8 published numbers are met within 10 points; further off: 4 worse, 1 better."


def test_the_worst_value_of_a_setting_stands_beside_its_number(tmp_path: Path) -> None:
    def make_round(at: At, number: int) -> RoundRecord:
        return round_of(at, number) | {"backdoor_accuracy": 0.1 * at["attack.target"]}

    axes = {"defense.name": ["krum"], "attack.target": [2, 7, 4]}
    make_sweep(tmp_path, axes, make_round, table=TABLE | {"worst": "attack.target"})
    table = table_of(tmp_path)
    ((_, (krum,)),) = table.rows
    assert (krum.numbers[0].mean, krum.numbers[0].worst) == ("70.00", "7")
    assert table.worst == "Each number is that of the worst attack.target, which follows it."
    text = page_of(tmp_path)
    assert '<span class="spread"> at 7</span>' in text
    assert table.worst in text


def test_agreement_says_no_more_than_there_is() -> None:
    assert describe_agreement(Counter()) == ""
    assert describe_agreement(Counter(alike=2)) == "2 of 2 published numbers are met within 10 points."


def test_cells_say_which_of_their_runs_are_not_there_and_why(tmp_path: Path) -> None:
    make_sweep(tmp_path, there=lambda at: at["defense.name"] != "krum" and at["seed"] == 1)
    lost = {"data.name": "mnist", "attack.name": "cba", "defense.name": "ideal", "seed": 2}
    (tmp_path / "failed.json").write_text(json.dumps({run_name(lost): f"no memory {HOSTILE}"}))
    rows = dict(table_of(tmp_path).rows)
    assert (rows["ideal"][0].missing, rows["ideal"][0].reason) == (
        "1 of 3, 1 failed",
        f"{run_name(lost)} failed: no memory {HOSTILE}",
    )
    assert (rows["krum"][0].missing, rows["krum"][0].reason, rows["krum"][0].runs) == ("0 of 3", "not finished", ())
    page = page_of(tmp_path)
    assert 'data-reason="0 of 3 runs are there: not finished"' in page
    assert "<img" not in page
    assert HOSTILE in unescape(page)


def test_cells_say_what_is_wrong_with_a_run_that_cannot_be_used(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    place = {"data.name": "mnist", "attack.name": "cba", "defense.name": "krum"}
    lost, cut = (tmp_path / run_name({**place, "seed": seed}) for seed in (1, 2))
    (lost / "summary.json").unlink()
    (tmp_path / "failed.json").write_text(json.dumps({lost.name: "no memory"}))
    (cut / "rounds.jsonl").unlink()
    (krum,) = dict(table_of(tmp_path).rows)["krum"]
    said = f"{cut / 'rounds.jsonl'} should hold 3 rounds and holds 0, though the run has its summary.json"
    assert (krum.missing, krum.reason) == ("1 of 3, 1 failed", f"{lost.name} failed: no memory; {said}")
    (tmp_path / "failed.json").unlink()
    (krum,) = dict(table_of(tmp_path).rows)["krum"]
    assert (krum.missing, krum.reason) == ("1 of 3", said)


def test_the_page_has_a_place_for_each_table_and_figure(tmp_path: Path) -> None:
    make_sweep(tmp_path, name="a", title="First table", published="label-skew")
    make_sweep(tmp_path, name="b", title="A figure", table=None, figure={"kind": "bars"})
    make_sweep(tmp_path, name="c", title="Both", figure={"kind": "curves"})
    page = page_of(tmp_path)
    contents = words(page.split('<nav class="contents"')[1].split("</nav>")[0]).split("> ")[1]
    assert contents == "Tables First table Both Figures A figure Both Runs 12 runs Accuracy over rounds"
    for link in re.findall(r'<li><a href="#([\w-]+)"', page):
        assert page.count(f'id="{link}"') == 1
    headline = words(page.split("<h1>")[1].split("</h1>")[0])
    assert headline == "2 tables and 2 figures from 12 runs, beside the published numbers."
    assert (
        "12 of 12 runs have finished. fedavg: 3 of 3 lost to the backdoor; ideal: 3 of 3 held; krum: 3 of 3 held; "
        "snowball: 3 of 3 held."
    ) in page


def test_a_figure_that_cannot_be_drawn_is_a_fault_of_the_page(tmp_path: Path) -> None:
    make_sweep(tmp_path, figure={"kind": "pie"})
    page = page_of(tmp_path)
    assert "figure.kind is one of" in words(page.split('class="faults"')[1].split("</section>")[0])
    assert '<table class="paper">' in page


def test_a_run_that_cannot_be_read_is_a_fault_of_the_page_and_the_figure_has_the_others(tmp_path: Path) -> None:
    make_sweep(tmp_path, figure={"kind": "curves"})
    file = find_runs([tmp_path])[0].path / "rounds.jsonl"
    file.write_text("{}\n" + file.read_text().partition("\n")[2])
    page = page_of(tmp_path)
    faults = words(page.split('class="faults"')[1].split("</section>")[0])
    assert faults.endswith(f"> Not in this report line 1 of {file} is not a round's record: it has no 'round'")
    assert "1 table and 1 figure from 11 runs" in page


def test_faults_are_listed_once_and_many_are_folded(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    write_html(find_runs([tmp_path]), tmp_path / "a.html", (), [*(f"fault {n}" for n in range(9)), "fault 1"])
    faults = (tmp_path / "a.html").read_text().split('class="faults"')[1].split("</section>")[0]
    assert faults.count("<li>") == 9
    assert "<summary>4 more</summary>" in faults


def test_a_run_that_cannot_be_read_is_a_fault_beside_others_and_an_error_alone(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    broken, *_ = find_runs([tmp_path])
    (broken.path / "rounds.jsonl").write_text("{}\n")
    page = page_of(tmp_path)
    assert "is not a round&#39;s record" in page
    assert page.count("<tr data-outcome") == 11
    with pytest.raises(RunError, match="is not a round's record"):
        write_html([broken], tmp_path / "b.html")


def test_rows_are_sorted_by_numbers_and_show_only_places_that_differ(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]})
    entries = build_run_index(find_runs([tmp_path]), [])
    assert [column.header for column in build_columns(entries)[:2]] == ["Defense", "Backdoor, last"]
    assert build_columns(entries)[-1].keys == tuple(entry.row.seconds for entry in entries)
    make_sweep(tmp_path, {"seed": [2], "attack.name": ["dba"]})
    headers = [column.header for column in build_columns(build_run_index(find_runs([tmp_path]), []))[:4]]
    assert headers == ["Attack", "Seed", "Defense", "Backdoor, last"]


def test_many_runs_get_a_search_and_few_do_not(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]})
    runs = find_runs([tmp_path])
    for count, shown in ((MAX_OPEN_RUNS, False), (MAX_OPEN_RUNS + 1, True)):
        write_html((runs * 3)[:count], tmp_path / "a.html")
        assert ('id="filter"' in (tmp_path / "a.html").read_text()) is shown


def test_addresses_hold_any_name() -> None:
    assert build_address("a b&run=c#%") == "#run=a+b%26run%3Dc%23%25"
    assert build_address("\udcff") == "#run=%5Cudcff"


def run_of(settings: dict[str, Any], **fields: Any) -> RunFolder:
    return RunFolder(Path(), {"settings": settings, **fields})


@pytest.mark.parametrize("name", [name for name in describe_presets() if name.startswith("paper/")])
def test_the_papers_own_runs_do_not_differ_from_it(name: str) -> None:
    peers = ("snowball", "krum", "rlr", "fedavg")
    runs = [run_of(load_experiment(name, [f"defense.name={peer}", "seed=7"]).dump_settings()) for peer in peers]
    assert find_differences((run, ()) for run in runs) == []


def test_differences_are_grouped_by_what_they_are() -> None:
    runs = [
        run_of(load_experiment(name, ["data.examples=500"]).dump_settings())
        for name in ("cpu/mnist", "cpu/fashion-mnist")
    ]
    found = find_differences((run, ["training.epochs"]) for run in runs)
    assert found == [
        Difference("data.examples", "mnist and fashion-mnist", "–", "500"),  # noqa: RUF001
        Difference("defense.judge", "mnist and fashion-mnist", "vae", "distance"),
        Difference("model.name", "mnist and fashion-mnist", "cnn", "cnn-quarter"),
        Difference("rounds", "mnist", "100", "24"),
        Difference("rounds", "fashion-mnist", "120", "24"),
    ]


def test_a_peer_is_compared_with_what_the_paper_sets_for_it() -> None:
    settings = load_experiment("paper/femnist", ["defense.name=rlr", "defense.threshold=7"]).dump_settings()
    assert find_differences([(run_of(settings), ())]) == [Difference("defense.threshold", "femnist", "20", "7")]


def test_a_part_of_a_data_set_differs_and_other_data_has_nothing_to_compare() -> None:
    own = load_experiment("paper/mnist").dump_settings()
    part, whole = ({"complete": complete} for complete in (False, True))
    assert find_differences([(run_of(own, data=part), ())]) == [
        Difference("samples of the data set", "mnist", "complete", "a subset")
    ]
    assert find_differences([(run_of(own, data=whole), ())]) == []
    other = own | {"data": {"name": "../paper/mnist"}, "rounds": 1}
    assert find_differences([(run_of(other), ())]) == []


@pytest.mark.parametrize("odd", [None, 7, "x", [], {"data": 3}, {"rounds": {"a": [1]}, "data": {"name": "mnist"}}])
def test_settings_of_wrong_types_are_no_difference(tmp_path: Path, odd: Any) -> None:
    folder = RunFolder.create(tmp_path / "run", {"settings": odd, "data": odd})
    assert find_differences([(folder, ())]) == []


def test_all_settings_of_every_run_are_compared() -> None:
    """Those that presets name, and those that they leave as they are.

    The time limit is the machine's, and the SHA-256 of a start says the same as the start.
    """
    sections = {"data": DataSettings, "model": ModelSettings, "attack": AttackSettings}
    sections |= {"training": TrainingSettings, "faults": FaultSettings}
    named = {f"{name}.{field}" for name, section in sections.items() for field in section.model_fields}
    top = set(Experiment.model_fields) - {*sections, "defense", "seed", "timeout"}
    for path in sorted((named | top) - {"data.name", "attack.name", "model.start_sha256"}):
        other = load_experiment("paper/mnist").dump_settings()
        section, _, key = path.rpartition(".")
        (other[section] if section else other)[key] = "other"
        assert [each.setting for each in find_differences([(run_of(other), ())])] == [path]


@pytest.mark.slow
def test_a_hundred_runs_fit_on_a_page(tmp_path: Path) -> None:
    """30 rounds of 50 participants each, with Snowball's votes, scores and maps: no defense has more facts."""
    snowball_round = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))["snowball_round"]

    def make_round(at: At, number: int) -> RoundRecord:
        return snowball_round(number + 30 * at["seed"]) | {"round": number}  # type: ignore[no-any-return]

    axes = {"defense.name": ["snowball"], "seed": list(range(100)), "rounds": [30]}
    make_sweep(tmp_path, axes, make_round)
    assert len(page_of(tmp_path)) < 8_000_000
