"""Figures of sweeps as plain numbers, which the page and the static figures both draw.

Settings that differ between runs but are not named in the sweep's [figure] get separate panels, so that no mean mixes
them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from snowball.errors import RunError, SettingError, SnowballError
from snowball.records.rounds import CODES, PAIRS, RoundRecord
from snowball.records.run import RunFolder
from snowball.report.figure_spec import FigureSpec, parse_figure
from snowball.report.run_metrics import Unit
from snowball.report.runs import ABSENT, note_faults
from snowball.report.sweeps import METRICS, Run, Sweep, find_mixed_settings

AXIS_LABELS = {
    "attack.poison_ratio": "poisoned share of samples (PDR)",
    "attack.malicious": "malicious share of clients (MCR)",
    "data.alpha": "Dirichlet parameter (alpha)",
    "defense.target_share": "elected share of updates (M/K)",
    "defense.vae.first_epochs": "first epochs of the VAE",
    "defense.vae.tune_epochs": "tuning epochs of the VAE",
    "defense.vae.hidden": "hidden width of the VAE",
    "defense.vae.latent": "latent width of the VAE",
}
"""The labels of settings on axes; others use the last part of their path."""

AXES = {
    "curves": ("round", ""),
    "distances": ("round", "mean distance of two updates"),
    "scatter": ("first principal direction", "second principal direction"),
}
"""The labels of axes that show neither a setting nor a metric."""

CODE_LABELS = {
    "vae-updates": "code of each update",
    "vae": "mean code of differences to the elected",
    "vae-span": "mean code of differences to the elected",
}
"""The meaning of a client's mark in a scatter plot of codes, by the judge whose VAE gives them."""

DISTANCE_LABELS = {"benign": "both benign", "between": "benign and infected", "infected": "both infected"}
MAX_PANELS, MAX_NUMBER = 48, 1e100
"""The most panels of a figure, and the highest number, that are drawn."""

HEAT_TOPS = (0.1, 0.2, 0.5, 1.0)
"""The shares that the darkest colour of a heat map may stand for; below the first, cells are to look alike."""

MIN_LOG_RATIO = 30
"""The ratio of the longest to the shortest time from which the axis is logarithmic."""


@dataclass(frozen=True)
class Point:
    """One mark of a figure.

    Attributes:
        x: a number or a name.
        y: the mean over runs; None if no run has a number.
        spread: the sample standard deviation over runs; None for fewer than two.
        runs: the names of the runs behind it.
        missing: how many of the runs that the sweep asks for are missing.
    """

    x: float | str
    y: float | None
    spread: float | None = None
    runs: tuple[str, ...] = ()
    missing: int = 0


@dataclass(frozen=True)
class Series:
    """A line, the bars of a panel, the marks of one kind, or a row of a heat map."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Figure:
    """A figure of a sweep.

    Attributes:
        kind: a key of `figure_spec.KINDS`.
        x: the label of the x axis.
        y: the label of the y axis; for bars, of the axis of the numbers.
        value: the measured quantity; the y axis shows it, except in a heat map.
        unit: "%" for fractions, "s" for seconds, "rounds" for numbers of rounds.
        unfinished: how many of the sweep's runs are missing, because they are not finished or cannot be read.
        logarithmic: the axes that are logarithmic.
        defenses: whether bars stand for defenses, which have their own colours.
    """

    kind: str
    title: str
    x: str
    y: str
    value: str
    unit: Unit | Literal[""]
    panels: tuple[Panel, ...]
    unfinished: int = 0
    logarithmic: tuple[Literal["x", "y"], ...] = ()
    defenses: bool = False


Rounds = Callable[[Run], Mapping[int, RoundRecord]]
"""Returns a run's rounds by number; none if the run is not finished or cannot be read."""


def build_figures(sweeps: Iterable[Sweep], faults: list[str] | None = None) -> list[Figure | None]:
    """Build the figure of each sweep; one that cannot be drawn is an error, or one of the faults."""
    return [_build_figure_or_note(sweep, faults) for sweep in sweeps]


def _build_figure_or_note(sweep: Sweep, faults: list[str] | None) -> Figure | None:
    with note_faults(faults):
        try:
            return build_figure(sweep, faults)
        except SnowballError as error:
            raise RunError(f"the figure of {sweep.name} cannot be drawn: {error}") from error
    return None


def build_figure(sweep: Sweep, faults: list[str] | None = None) -> Figure | None:
    """Build the figure that the sweep's [figure] asks for; None if there is none, or no finished run to show.

    A run whose rounds cannot be read is an error, or is left out and named in the faults.
    """
    if sweep.figure is None:
        return None
    spec, rounds = parse_figure(sweep.figure), _make_reader(faults)
    for path in spec.paths:
        if not any(path in run.at for run in sweep.runs):
            raise SettingError(f"the figure of {sweep.name} goes by {path}, which no run of the sweep says")
    panels = tuple(filter(_list_numbers, _build_panels(sweep.runs, spec, rounds)))
    if not panels:
        return None
    value, unit = _describe_value(spec)
    is_there = rounds if spec.kind in ("curves", "distances") else _is_finished
    x, y = AXES.get(spec.kind, (describe_axis(spec.x), describe_axis(spec.y)))
    return Figure(
        kind=spec.kind,
        title=sweep.title,
        x=x,
        y=y or value,
        value=value,
        unit=unit,
        panels=panels,
        unfinished=sum(not is_there(run) for run in sweep.runs),
        logarithmic=("y",) if unit == "s" and spec.kind != "heat" and _are_steep(panels) else (),
        defenses=spec.kind == "bars" and spec.x == ("defense.name",),
    )


def find_heat_top(figure: Figure) -> float:
    """Return the number that the darkest colour of a heat map stands for, the same in all panels."""
    top = max((number for panel in figure.panels for number in _list_numbers(panel)), default=1.0)
    return next((share for share in HEAT_TOPS if share >= top), 1.0) if figure.unit == "%" else top or 1.0


def build_run_figure(title: str, rounds: Iterable[RoundRecord]) -> Figure:
    """Build the figure of a single run: its accuracy and the backdoor's over the rounds."""
    records = list(rounds)
    lines = {
        "main accuracy": [Point(record["round"], record["main_accuracy"]) for record in records],
        "backdoor accuracy": [Point(record["round"], record["backdoor_accuracy"]) for record in records],
    }
    shown = {name: points for name, points in lines.items() if any(point.y is not None for point in points)}
    panel = Panel(title, tuple(Series(name, tuple(points)) for name, points in shown.items()))
    return Figure("curves", title, x="round", y="share", value="share", unit="%", panels=(panel,))


def _make_reader(faults: list[str] | None) -> Rounds:
    """Make a function that reads each run's rounds once, without the facts that no figure shows."""

    @cache
    def read(folder: Path) -> Mapping[int, RoundRecord]:
        with note_faults(faults):
            rounds = RunFolder.open(folder).read_rounds()
            return {record["round"]: record | {"facts": select_shown_facts(record)} for record in rounds}
        return {}

    return lambda run: read(run.folder) if _is_finished(run) else {}


def select_shown_facts(record: RoundRecord) -> dict[str, Any]:
    """Return the facts of a round that figures show."""
    return {name: record["facts"][name] for name in CODES if isinstance(record["facts"].get(name), list)}


def _is_finished(run: Run) -> bool:
    return run.state == "finished"


def _build_panels(runs: Sequence[Run], spec: FigureSpec, rounds: Rounds) -> Iterable[Panel]:
    metrics = spec.value or ("",)
    groups = group_runs(runs, (*spec.panels, *find_mixed_settings(runs, spec.paths)))
    if (total := len(groups) * len(metrics)) > MAX_PANELS:
        raise SettingError(f"a figure has at most {MAX_PANELS} panels, and this one asks for {total}")
    for metric in metrics:
        for place, alike in groups:
            title = ", ".join(filter(None, (_write_heading(spec, metric), str(place))))
            marks = _describe_codes(alike) if spec.of == "codes" else ""
            yield Panel(": ".join(filter(None, (title, marks))), BUILDERS[spec.kind](alike, spec, metric, rounds))


def _write_heading(spec: FigureSpec, metric: str) -> str:
    if spec.kind == "scatter":
        return f"round {spec.round}" if spec.round else "last round"
    if len(spec.value) < 2:
        return ""
    return _label_metric(spec, metric) if spec.kind == "curves" else METRICS[metric].short


def _describe_codes(runs: Sequence[Run]) -> str:
    """Say what the codes mean, if a single judge gave them all."""
    judges = {str(run.at.get("defense.judge")) for run in runs}
    return CODE_LABELS.get(judges.pop(), "") if len(judges) == 1 else ""


def _label_metric(spec: FigureSpec, metric: str) -> str:
    return METRICS[metric].label.removesuffix(", best round" if spec.kind == "curves" else "")


def _build_cells(runs: Sequence[Run], spec: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    lines = ((name, group_runs(alike, spec.x)) for name, alike in group_runs(runs, spec.series or spec.y))
    return tuple(
        Series(
            str(name), tuple(_build_point(x, {run.name: run.metrics.get(metric) for run in cell}) for x, cell in line)
        )
        for name, line in lines
    )


def _build_curves(runs: Sequence[Run], spec: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    if (read := METRICS[metric].read_round) is None:
        return ()  # no spec asks for such a metric
    lines = ((name, _build_points(alike, rounds, read)) for name, alike in group_runs(runs, spec.series))
    return tuple(Series(str(name), line) for name, line in lines if line)


def _build_distances(runs: Sequence[Run], spec: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    lines = ((pair, _build_points(runs, rounds, partial(_read_distance, pair))) for pair in PAIRS)
    return tuple(Series(DISTANCE_LABELS[pair], line) for pair, line in lines if any(point.runs for point in line))


def _build_scatter(runs: Sequence[Run], spec: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    """Build the points of a round of the first run that is finished and can be read."""
    run = next(filter(rounds, runs), None)
    if run is None:
        return ()
    last = max(rounds(run))
    record = rounds(run).get(spec.round or last)
    if record is None:
        raise SettingError(f"figure.round is {spec.round}, and {run.name} ends with round {last}")
    marks: dict[str, list[Point]] = {name: [] for name in MARK_LABELS.values()}
    points = record["map"] or () if spec.of == "updates" else zip(*record["facts"].values(), strict=False)
    for bad, chosen, point in zip(record["malicious"], record["elected"], points, strict=False):
        drawn = [number for number in point or () if isinstance(number, int | float) and abs(number) <= MAX_NUMBER]
        if len(drawn) == len(point or ()) == 2:
            marks[MARK_LABELS[bad, chosen]].append(Point(drawn[0], drawn[1], None, (run.name,)))
    return tuple(Series(name, tuple(points)) for name, points in marks.items() if points)


MARK_LABELS = {
    (False, True): "benign, elected",
    (False, False): "benign, left out",
    (True, True): "infected, elected",
    (True, False): "infected, left out",
}

BUILDERS: dict[str, Callable[[Sequence[Run], FigureSpec, str, Rounds], tuple[Series, ...]]] = {
    "lines": _build_cells,
    "heat": _build_cells,
    "bars": _build_cells,
    "curves": _build_curves,
    "scatter": _build_scatter,
    "distances": _build_distances,
}


def _read_distance(pair: str, record: RoundRecord) -> float | None:
    return (record["distances"] or {}).get(pair)


def _build_points(
    runs: Sequence[Run], rounds: Rounds, number_of: Callable[[RoundRecord], float | None]
) -> tuple[Point, ...]:
    """Build one point per round, over all runs."""
    numbers = {run.name: {number: number_of(record) for number, record in rounds(run).items()} for run in runs}
    every = sorted({number for own in numbers.values() for number in own})
    return tuple(_build_point(each, {name: own.get(each) for name, own in numbers.items()}) for each in every)


def group_runs(runs: Sequence[Run], paths: Sequence[str]) -> list[tuple[float | str, list[Run]]]:
    """Group runs by their values of these settings: numbers in ascending order, names as they first appear."""
    groups: dict[float | str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_locate_run(run, paths), []).append(run)
    if any(isinstance(place, str) for place in groups):
        return list(groups.items())
    return sorted(groups.items(), key=lambda group: float(group[0]))


def describe_axis(paths: Sequence[str]) -> str:
    """Return the label of an axis that shows these settings."""
    own = {path: path.removesuffix(".name").rpartition(".")[2].replace("_", " ") for path in paths}
    return ", ".join((own | AXIS_LABELS)[path] for path in paths)


def _locate_run(run: Run, paths: Sequence[str]) -> float | str:
    values = [run.at.get(path) for path in paths]
    if len(values) == 1 and isinstance(values[0], int | float) and not isinstance(values[0], bool):
        return values[0]
    return ", ".join(ABSENT if value is None else str(value) for value in values)


def _build_point(x: float | str, numbers: Mapping[str, float | None]) -> Point:
    known = {name: number for name, number in numbers.items() if number is not None and abs(number) <= MAX_NUMBER}
    mean = fmean(known.values()) if known else None
    spread = stdev(known.values()) if len(known) > 1 else None
    return Point(x, mean, spread, tuple(known), len(numbers) - len(known))


def _list_numbers(panel: Panel) -> list[float]:
    return [point.y for series in panel.series for point in series.points if point.y is not None]


def _describe_value(spec: FigureSpec) -> tuple[str, Unit | Literal[""]]:
    """Return the measured quantity in words, and its unit."""
    if not spec.value:
        return "", ""
    unit = METRICS[spec.value[0]].unit
    together = {"%": "share", "s": "seconds", "rounds": "rounds"}[unit]
    return together if len(spec.value) > 1 else _label_metric(spec, spec.value[0]), unit


def _are_steep(panels: Iterable[Panel]) -> bool:
    numbers = [number for panel in panels for number in _list_numbers(panel)]
    return min(numbers) > 0 and max(numbers) > MIN_LOG_RATIO * min(numbers)
