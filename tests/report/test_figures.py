import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from sweeps_made import At, make_sweep, round_of, run_name, stopping_round_of

from snowball.errors import RunError, SettingError
from snowball.records.rounds import RoundRecord
from snowball.report.figure_spec import KINDS, parse_figure
from snowball.report.figures import Figure, Panel, Point, build_figure
from snowball.report.sweeps import read_sweeps

SHIPPED = sorted(Path(str(resources.files("snowball"))).glob("grids/*/*.toml"))
FIGURES = {file: figure for file in SHIPPED if (figure := tomllib.loads(file.read_text()).get("figure"))}


def drawn(folder: Path, figure: dict[str, Any] | None, **options: Any) -> Figure | None:
    make_sweep(folder, figure=figure, **options)
    ((sweep,), _) = read_sweeps([folder])
    return build_figure(sweep)


def one(folder: Path, figure: dict[str, Any], **options: Any) -> Figure:
    found = drawn(folder, figure, **options)
    assert found is not None
    return found


def line(panel: Panel, name: str) -> tuple[Point, ...]:
    (found,) = (series.points for series in panel.series if series.name == name)
    return found


def numbers(points: tuple[Point, ...]) -> list[tuple[float | str, float | None]]:
    return [(point.x, point.y) for point in points]


def poisoned(at: At, number: int) -> RoundRecord:
    """A round whose backdoor follows from the share of poisoned samples, the seed and the data."""
    backdoor = at["attack.poison_ratio"] / 2 + 0.01 * at["seed"] ** 2 + 0.1 * (at["data.name"] == "femnist")
    return round_of(at, number) | {"backdoor_accuracy": backdoor}


RATIOS = {"attack.poison_ratio": [0.3, 0.1], "defense.name": ["fedavg", "snowball"]}


def test_lines_are_means_over_seeds_with_the_runs_behind_them(tmp_path: Path) -> None:
    request = {"kind": "lines", "x": "attack.poison_ratio", "panels": "data.name"}
    axes = {**RATIOS, "data.name": ["mnist", "femnist"]}
    figure = one(tmp_path, request, axes=axes, make_round=poisoned)
    assert [panel.title for panel in figure.panels] == ["mnist", "femnist"]
    assert [series.name for series in figure.panels[0].series] == ["fedavg", "snowball"]
    low, high = line(figure.panels[1], "snowball")
    seeds = [0.05 + 0.1 + 0.01 * seed**2 for seed in (1, 2, 3)]
    assert (low.x, high.x) == (0.1, 0.3)
    assert low.y == pytest.approx(mean(seeds))
    assert low.spread == pytest.approx(stdev(seeds))
    at = {"data.name": "femnist", "attack.name": "cba", "defense.name": "snowball"}
    assert low.runs == tuple(run_name({**at, "seed": seed, "attack.poison_ratio": 0.1}) for seed in (1, 2, 3))
    assert (low.missing, figure.unfinished, figure.unit, figure.logarithmic) == (0, 0, "%", ())
    assert (figure.x, figure.y) == ("poisoned share of samples (PDR)", "backdoor accuracy, best round")


def test_runs_that_are_not_finished_are_missing_and_counted(tmp_path: Path) -> None:
    request = {"kind": "lines", "x": "attack.poison_ratio"}
    figure = one(
        tmp_path,
        request,
        axes=RATIOS,
        make_round=poisoned,
        there=lambda at: at["seed"] == 2 and not (at["defense.name"] == "fedavg" and at["attack.poison_ratio"] == 0.3),
    )
    low, high = line(figure.panels[0], "fedavg")
    assert (low.y, low.spread, low.missing) == (pytest.approx(0.09), None, 2)
    assert (high.y, high.spread, high.runs, high.missing) == (None, None, (), 3)
    assert figure.unfinished == 9


def test_two_runs_have_a_spread(tmp_path: Path) -> None:
    figure = one(tmp_path, {"kind": "bars"}, there=lambda at: at["seed"] < 3)
    assert [point.spread for point in figure.panels[0].series[0].points] == pytest.approx([stdev([0.001, 0.002])] * 4)


def test_only_axes_can_be_logarithmic(tmp_path: Path) -> None:
    def timed(at: At, number: int) -> RoundRecord:
        return round_of(at, number) | {"seconds": {"defense": 10.0 ** at["seed"]}}

    paths = {"x": "seed", "y": "defense.name"}
    assert one(tmp_path, {"kind": "heat", "value": "defense_seconds", **paths}, make_round=timed).logarithmic == ()
    lines = one(tmp_path, {"kind": "lines", "value": "defense_seconds", "x": "seed"}, make_round=timed)
    assert lines.logarithmic == ("y",)


def test_a_heat_map_has_rows_and_columns_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    axes = {"defense.name": ["snowball"], "data.alpha": [10, 0.5], "attack.malicious": [0.3, 0.1, 0.2], "seed": [1]}
    figure = one(
        tmp_path,
        {"kind": "heat", "x": "attack.malicious", "y": "data.alpha", "value": "main_accuracy"},
        axes=axes,
        make_round=lambda at, number: (
            round_of(at, number) | {"main_accuracy": at["data.alpha"] * at["attack.malicious"] / 10}
        ),
        there=lambda at: at["data.alpha"] != 10 or at["attack.malicious"] != 0.2,
    )
    (panel,) = figure.panels
    assert [series.name for series in panel.series] == ["0.5", "10"]
    assert numbers(line(panel, "10")) == [(0.1, pytest.approx(0.1)), (0.2, None), (0.3, pytest.approx(0.3))]
    assert numbers(line(panel, "0.5"))[1] == (0.2, pytest.approx(0.01))
    assert (figure.x, figure.y) == ("malicious share of clients (MCR)", "Dirichlet parameter (alpha)")
    assert figure.value == "main accuracy, best round"


@pytest.mark.parametrize(("slowest", "logarithmic"), [(20.0, ("y",)), (1.0, ())])
def test_bars_of_two_metrics_are_two_panels(tmp_path: Path, slowest: float, logarithmic: tuple[str, ...]) -> None:
    def timed(at: At, number: int) -> RoundRecord:
        seconds = {"snowball": slowest, "fedavg": 0.1}[at["defense.name"]]
        return round_of(at, number) | {"seconds": {"defense": seconds * number, "evaluate": 0.5}}

    request = {"kind": "bars", "value": ["defense_seconds", "evaluate_seconds"]}
    figure = one(tmp_path, request, axes={"defense.name": ["snowball", "fedavg"]}, make_round=timed)
    defense, evaluation = figure.panels
    assert (defense.title, evaluation.title) == ("defense, s", "evaluation, s")
    assert numbers(defense.series[0].points) == [
        ("snowball", pytest.approx(2 * slowest)),
        ("fedavg", pytest.approx(0.2)),
    ]
    assert numbers(evaluation.series[0].points) == [("snowball", 0.5), ("fedavg", 0.5)]
    assert (figure.y, figure.unit, figure.logarithmic) == ("seconds", "s", logarithmic)


def test_bars_of_rounds_are_in_rounds(tmp_path: Path) -> None:
    axes = {"defense.name": ["krum"], "rounds": [5]}
    figure = one(tmp_path, {"kind": "bars", "value": "half_rounds"}, axes=axes, make_round=stopping_round_of)
    assert numbers(figure.panels[0].series[0].points) == [("krum", 2)]
    assert (figure.unit, figure.logarithmic) == ("rounds", ())


def test_curves_have_a_point_for_every_round(tmp_path: Path) -> None:
    figure = one(tmp_path, {"kind": "curves", "value": ["main_accuracy", "defense_seconds"][:1]}, axes={"rounds": [4]})
    (panel,) = figure.panels
    assert panel.title == "mnist, cba"
    points = line(panel, "krum")
    assert [point.x for point in points] == [1, 2, 3, 4]
    assert [point.y for point in points] == pytest.approx([0.62, 0.72, 0.82, 0.92])
    assert [point.spread for point in points] == pytest.approx([0.01] * 4)
    assert (figure.x, figure.y) == ("round", "main accuracy")


def test_curves_of_seconds_and_of_several_metrics(tmp_path: Path) -> None:
    timed = one(tmp_path, {"kind": "curves", "value": "defense_seconds"})
    assert [point.y for point in line(timed.panels[0], "ideal")] == pytest.approx([0.1, 0.2, 0.3])
    both = one(tmp_path, {"kind": "curves", "value": ["main_accuracy", "backdoor_accuracy"]})
    assert [panel.title for panel in both.panels] == ["main accuracy, mnist, cba", "backdoor accuracy, mnist, cba"]
    assert line(both.panels[1], "fedavg")[0].y == pytest.approx(0.992)


def test_rounds_without_a_number_have_a_hole(tmp_path: Path) -> None:
    def some(at: At, number: int) -> RoundRecord:
        return round_of(at, number) | ({"backdoor_accuracy": None} if number == 2 and at["seed"] < 3 else {})

    figure = one(tmp_path, {"kind": "curves", "value": "backdoor_accuracy"}, make_round=some)
    points = line(figure.panels[0], "krum")
    assert [len(point.runs) for point in points] == [3, 1, 3]
    assert [point.missing for point in points] == [0, 2, 0]
    assert points[1].y == pytest.approx(0.603)


def test_a_scatter_plot_marks_who_is_infected_and_who_was_elected(tmp_path: Path) -> None:
    def moved(at: At, number: int) -> RoundRecord:
        return round_of(at, number) | {"map": [[float(number), at["seed"]], [1, 0], [None, None], [3, 1]]}

    figure = one(tmp_path, {"kind": "scatter", "panels": "defense.name"}, make_round=moved)
    assert [panel.title for panel in figure.panels] == [
        f"last round, {name}" for name in ("ideal", "fedavg", "krum", "snowball")
    ]
    marks = {series.name: numbers(series.points) for series in figure.panels[1].series}
    assert marks == {"benign, elected": [(1, 0)], "benign, left out": [(3, 1)], "infected, elected": [(3, 1)]}
    named = one(tmp_path, {"kind": "scatter", "panels": "defense.name", "round": 2}, make_round=moved)
    assert named.panels[0].title == "round 2, ideal"
    assert numbers(line(named.panels[0], "infected, left out")) == [(2, 1)]
    assert len(named.panels[0].series[0].points[0].runs) == 1


def test_who_was_dropped_is_no_point(tmp_path: Path) -> None:
    def broken(at: At, number: int) -> RoundRecord:
        record = round_of(at, number) | {"map": [[2, 1], None, None, [3, 1]]}
        return record | {"dropped": dict.fromkeys(record["participants"][1:3], "not-finite")}

    figure = one(tmp_path, {"kind": "scatter", "panels": "defense.name"}, make_round=broken)
    assert sum(len(series.points) for series in figure.panels[0].series) == 2


def test_a_scatter_plot_may_be_of_codes(tmp_path: Path) -> None:
    def coded(at: At, number: int) -> RoundRecord:
        facts = {"code.second": [5, 6, 7, "8"], "code.first": [1.5, 2, None, 4], "votes": [9, 9, 9, 9]}
        return round_of(at, number) | {"facts": facts}

    figure = one(tmp_path, {"kind": "scatter", "of": "codes"}, make_round=coded)
    marks = {series.name: numbers(series.points) for series in figure.panels[0].series}
    assert marks == {"benign, elected": [(2, 6)], "infected, left out": [(1.5, 5)]}


def test_a_scatter_plot_of_codes_says_what_they_are_of(tmp_path: Path) -> None:
    def coded(at: At, number: int) -> RoundRecord:
        return round_of(at, number) | {"facts": {"code.first": [1, 2, 3, 4], "code.second": [5, 6, 7, 8]}}

    request = {"kind": "scatter", "of": "codes", "panels": ["defense.judge"]}
    axes = {"defense.name": ["snowball"], "defense.judge": ["vae-updates", "vae", "mine"]}
    assert [panel.title for panel in one(tmp_path, request, axes=axes, make_round=coded).panels] == [
        "last round, vae-updates: code of each update",
        "last round, vae: mean code of differences to the elected",
        "last round, mine",
    ]


@pytest.mark.parametrize("facts", [{}, {"code.first": [1, 2, 3, 4]}, {"code.first": 1.0, "code.second": [1, 2, 3, 4]}])
def test_rounds_without_codes_are_no_points(tmp_path: Path, facts: dict[str, Any]) -> None:
    request = {"kind": "scatter", "of": "codes"}
    assert drawn(tmp_path, request, make_round=lambda at, number: round_of(at, number) | {"facts": facts}) is None


def test_a_scatter_plot_of_a_round_that_never_was_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"figure\.round is 9, and mnist-cba-ideal-1-\w+ ends with round 3"):
        drawn(tmp_path, {"kind": "scatter", "round": 9})


def apart(at: At, number: int) -> RoundRecord:
    distances = {"benign": 1 / number, "between": 2.0 + at["seed"], "infected": None}
    return round_of(at, number) | {"distances": distances}


def test_distances_over_rounds(tmp_path: Path) -> None:
    axes = {"defense.name": ["ideal"], "data.name": ["mnist", "femnist"]}
    figure = one(tmp_path, {"kind": "distances"}, axes=axes, make_round=apart)
    assert [panel.title for panel in figure.panels] == ["mnist", "femnist"]
    assert [series.name for series in figure.panels[0].series] == ["both benign", "benign and infected"]
    assert [point.y for point in line(figure.panels[0], "both benign")] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [point.spread for point in line(figure.panels[0], "benign and infected")] == pytest.approx([1, 1, 1])


def test_records_without_maps_or_distances_have_nothing_to_show(tmp_path: Path) -> None:
    def bare(at: At, number: int) -> RoundRecord:
        return {name: value for name, value in round_of(at, number).items() if name != "map"}

    assert drawn(tmp_path, {"kind": "distances"}, make_round=bare) is None
    assert drawn(tmp_path, {"kind": "scatter"}, make_round=bare) is None


def test_settings_that_nobody_names_get_panels_of_their_own(tmp_path: Path) -> None:
    axes = {**RATIOS, "data.name": ["mnist", "femnist"], "attack.name": ["cba", "dba"]}
    figure = one(tmp_path, {"kind": "lines", "x": "attack.poison_ratio"}, axes=axes, make_round=poisoned)
    assert [panel.title for panel in figure.panels] == [
        f"{data}, {attack}" for data in ("mnist", "femnist") for attack in ("cba", "dba")
    ]
    assert {len(point.runs) for panel in figure.panels for series in panel.series for point in series.points} == {3}


def test_settings_that_follow_from_others_do_not_part_the_lines(tmp_path: Path) -> None:
    make_sweep(tmp_path, figure={"kind": "curves", "panels": []})
    ((sweep,), _) = read_sweeps([tmp_path])
    judges = {"snowball": "vae"}
    runs = [replace(run, at=run.at | {"defense.judge": judges.get(run.at["defense.name"])}) for run in sweep.runs]
    figure = build_figure(replace(sweep, runs=runs))
    assert figure is not None
    assert [len(panel.series) for panel in figure.panels] == [4]


def test_several_paths_are_one_name(tmp_path: Path) -> None:
    figure = one(tmp_path, {"kind": "bars", "x": ["defense.name", "attack.name"], "panels": ["data.name"]})
    assert [point.x for point in figure.panels[0].series[0].points][:2] == ["ideal, cba", "fedavg, cba"]
    assert (figure.x, figure.panels[0].title) == ("defense, attack", "mnist")


def test_there_is_no_figure_where_none_is_asked_for_or_no_run_is_finished(tmp_path: Path) -> None:
    assert drawn(tmp_path / "a", None) is None
    for kind, needs in {"bars": {}, "curves": {}, "scatter": {}, "distances": {}, "lines": {"x": "seed"}}.items():
        assert drawn(tmp_path / kind, {"kind": kind, **needs}, there=lambda at: False) is None


def test_numbers_that_no_axis_can_show_are_left_out(tmp_path: Path) -> None:
    def huge(at: At, number: int) -> RoundRecord:
        far = 1e308 if number == 1 else 1.0
        distances = {"benign": far, "between": far, "infected": far}
        return round_of(at, number) | {"distances": distances, "map": [[far, -far]] * 4}

    points = one(tmp_path, {"kind": "distances"}, make_round=huge).panels[0].series[0].points
    assert [point.y for point in points] == [None, 1, 1]
    assert drawn(tmp_path, {"kind": "scatter", "round": 1}, make_round=huge) is None


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    make_sweep(tmp_path, figure={"kind": "curves"})
    ((sweep,), _) = read_sweeps([tmp_path])
    file = sweep.runs[0].folder / "rounds.jsonl"
    file.write_bytes(b"{}\n" + file.read_bytes())
    with pytest.raises(RunError, match=r"line 1 of .*rounds\.jsonl is not a round's record"):
        build_figure(sweep)


@pytest.mark.parametrize(("kind", "unfinished"), [("curves", 1), ("distances", 1), ("scatter", 0)])
def test_a_run_that_cannot_be_read_is_a_fault_and_the_others_are_drawn(
    tmp_path: Path, kind: str, unfinished: int
) -> None:
    make_sweep(tmp_path, {"defense.name": ["ideal"]}, apart, figure={"kind": kind})
    ((sweep,), _) = read_sweeps([tmp_path])
    file = sweep.runs[0].folder / "rounds.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"round": 2', b'"round": 0'))
    faults: list[str] = []
    figure = build_figure(sweep, faults)
    assert faults == [f"line 2 of {file} is not a round's record: its 'round' cannot be 0"]
    assert figure is not None
    points = [point for series in figure.panels[0].series for point in series.points]
    there = [run.name for run in sweep.runs[1:]]
    assert {point.runs for point in points} == {tuple(there[:1] if kind == "scatter" else there)}
    assert {point.missing for point in points} == {unfinished}
    assert figure.unfinished == unfinished


REFUSED = {
    "no kind": ({}, "figure.kind is one of lines, heat, bars, curves, scatter, distances, got None"),
    "another kind": ({"kind": "pie"}, "got 'pie'"),
    "no text": ({"kind": ["lines"]}, r"got \['lines'\]"),
    "a key too many": ({"kind": "bars", "serie": "x"}, "figure.serie is not a key of the kind 'bars'"),
    "a misspelt key": ({"kind": "curves", "panel": "x"}, "did you mean 'panels'?"),
    "no x": ({"kind": "lines"}, "a figure of the kind 'lines' needs figure.x, the path of a setting"),
    "a number for a path": ({"kind": "lines", "x": 3}, "figure.x is a name or a list of names, got 3"),
    "an unknown metric": ({"kind": "bars", "value": "accuracy"}, "figure.value is one of .*, got 'accuracy'"),
    "a metric of whole runs": ({"kind": "curves", "value": "last_main_accuracy"}, "got 'last_main_accuracy'"),
    "two units": ({"kind": "bars", "value": ["main_accuracy", "defense_seconds"]}, "metrics of one unit"),
    "no metric": ({"kind": "bars", "value": []}, "metrics of one unit"),
    "half a round": ({"kind": "scatter", "round": 1.5}, "figure.round is the number of a round, got 1.5"),
    "a round below": ({"kind": "scatter", "round": -1}, "got -1"),
    "of something else": ({"kind": "scatter", "of": "votes"}, "figure.of is updates or codes, got 'votes'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_figure_is_refused_in_a_sentence(case: str) -> None:
    asked, sentence = REFUSED[case]
    with pytest.raises(SettingError, match=sentence):
        parse_figure(asked)


def test_a_setting_that_no_run_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"the figure of cpu/table1 goes by attack\.poison_ratio, which no run"):
        drawn(tmp_path, {"kind": "lines", "x": "attack.poison_ratio"})


def test_more_panels_than_anybody_reads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="at most 48 panels, and this one asks for 60"):
        drawn(tmp_path, {"kind": "bars", "panels": "seed"}, axes={"seed": list(range(60))}, there=lambda at: False)


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_figures_of_shipped_grids_can_be_read(file: Path) -> None:
    assert parse_figure(FIGURES[file]).kind == FIGURES[file]["kind"]


def test_shipped_grids_have_figures_of_every_kind() -> None:
    assert {figure["kind"] for figure in FIGURES.values()} == set(KINDS)
