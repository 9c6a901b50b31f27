"""Figures of sweeps as plain numbers, which the page and static pictures both draw.

Settings that no key of a sweep's [figure] names but that differ between runs get panels of their own, so that no mean
mixes them.
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
"""What axes call settings; the others go by the last of their own names."""

AXES = {
    "curves": ("round", ""),
    "distances": ("round", "mean distance of two updates"),
    "scatter": ("first principal direction", "second principal direction"),
}
"""What the axes show that neither a setting nor a metric names."""

CODE_LABELS = {
    "vae-updates": "code of each update",
    "vae": "mean code of differences to the elected",
    "vae-span": "mean code of differences to the elected",
}
"""What a client's mark is in a scatter plot of codes, by the judge whose VAE gives them."""

DISTANCE_LABELS = {"benign": "both benign", "between": "benign and infected", "infected": "both infected"}
MAX_PANELS, MAX_NUMBER = 48, 1e100
"""Panels of a figure, and the highest number, that can be drawn."""

MIN_LOG_RATIO = 30
"""From this ratio of the longest to the shortest on, seconds are on a logarithmic axis."""


@dataclass(frozen=True)
class Point:
    """One mark of a figure.

    Attributes:
        x: a number, or a name.
        y: the mean over runs; None where no run has a number.
        spread: the sample standard deviation over runs; None for fewer than two.
        runs: the names of the runs behind it.
        missing: how many of the runs that the sweep asks for are not among them.
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
    """What a sweep's [figure] shows.

    Attributes:
        kind: a key of `request.KINDS`.
        x: what the x axis shows, in words.
        y: what the y axis shows; of bars, the axis of the numbers.
        value: what is measured; the y axis shows it but in a heat map.
        unit: "%" for fractions, "s" for seconds.
        unfinished: how many of the sweep's runs are not in it, since they have not finished or cannot be read.
        logarithmic: which axes are.
    """

    kind: str
    title: str
    x: str
    y: str
    value: str
    unit: Literal["%", "s", ""]
    panels: tuple[Panel, ...]
    unfinished: int = 0
    logarithmic: tuple[Literal["x", "y"], ...] = ()


Rounds = Callable[[Run], Mapping[int, RoundRecord]]
"""Gives a run's rounds by their numbers; none of a run that is not finished or cannot be read."""


def build_figures(sweeps: Iterable[Sweep], faults: list[str] | None = None) -> list[Figure | None]:
    """The figure of each sweep, as `figure_of` has it; one that cannot be drawn is an error, or one of the faults."""
    return [_build_figure_or_note(sweep, faults) for sweep in sweeps]


def _build_figure_or_note(sweep: Sweep, faults: list[str] | None) -> Figure | None:
    with note_faults(faults):
        try:
            return build_figure(sweep, faults)
        except SnowballError as error:
            raise RunError(f"the figure of {sweep.name} cannot be drawn: {error}") from error
    return None


def build_figure(sweep: Sweep, faults: list[str] | None = None) -> Figure | None:
    """What the sweep's [figure] shows of its finished runs; None where it has none, or they have nothing to show.

    A run whose rounds cannot be read is an error, or one of the faults and not there.
    """
    if sweep.figure is None:
        return None
    request, rounds = parse_figure(sweep.figure), _make_reader(faults)
    for path in request.paths:
        if not any(path in run.at for run in sweep.runs):
            raise SettingError(f"the figure of {sweep.name} goes by {path}, which no run of the sweep says")
    panels = tuple(filter(_list_numbers, _build_panels(sweep.runs, request, rounds)))
    if not panels:
        return None
    value, unit = _describe_value(request)
    is_there = rounds if request.kind in ("curves", "distances") else _is_finished
    x, y = AXES.get(request.kind, (describe_axis(request.x), describe_axis(request.y)))
    return Figure(
        kind=request.kind,
        title=sweep.title,
        x=x,
        y=y or value,
        value=value,
        unit=unit,
        panels=panels,
        unfinished=sum(not is_there(run) for run in sweep.runs),
        logarithmic=("y",) if unit == "s" and request.kind != "heat" and _are_steep(panels) else (),
    )


def _make_reader(faults: list[str] | None) -> Rounds:
    """Reads rounds once, without the facts that no figure shows; what cannot be read is a fault."""

    @cache
    def read(folder: Path) -> Mapping[int, RoundRecord]:
        with note_faults(faults):
            rounds = RunFolder.open(folder).rounds()
            return {record["round"]: record | {"facts": select_shown_facts(record)} for record in rounds}
        return {}

    return lambda run: read(run.folder) if _is_finished(run) else {}


def select_shown_facts(record: RoundRecord) -> dict[str, Any]:
    """The facts of a round that figures show."""
    return {name: record["facts"][name] for name in CODES if isinstance(record["facts"].get(name), list)}


def _is_finished(run: Run) -> bool:
    return run.state == "finished"


def _build_panels(runs: Sequence[Run], request: FigureSpec, rounds: Rounds) -> Iterable[Panel]:
    metrics = request.value or ("",)
    places = group_runs(runs, (*request.panels, *find_mixed_settings(runs, request.paths)))
    if (total := len(places) * len(metrics)) > MAX_PANELS:
        raise SettingError(f"a figure has at most {MAX_PANELS} panels, and this one asks for {total}")
    for metric in metrics:
        for place, alike in places:
            title = ", ".join(filter(None, (_write_heading(request, metric), str(place))))
            marks = _describe_codes(alike) if request.of == "codes" else ""
            yield Panel(": ".join(filter(None, (title, marks))), BUILDERS[request.kind](alike, request, metric, rounds))


def _write_heading(request: FigureSpec, metric: str) -> str:
    if request.kind == "scatter":
        return f"round {request.round}" if request.round else "last round"
    if len(request.value) < 2:
        return ""
    return _label_metric(request, metric) if request.kind == "curves" else METRICS[metric].short


def _describe_codes(runs: Sequence[Run]) -> str:
    """What codes are of, where the sweep says which judge gave them, and it is one."""
    judges = {str(run.at.get("defense.judge")) for run in runs}
    return CODE_LABELS.get(judges.pop(), "") if len(judges) == 1 else ""


def _label_metric(request: FigureSpec, metric: str) -> str:
    return METRICS[metric].label.removesuffix(", best round" if request.kind == "curves" else "")


def _build_cells(runs: Sequence[Run], request: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    lines = ((name, group_runs(alike, request.x)) for name, alike in group_runs(runs, request.series or request.y))
    return tuple(
        Series(
            str(name), tuple(_build_point(x, {run.name: run.metrics.get(metric) for run in cell}) for x, cell in line)
        )
        for name, line in lines
    )


def _build_curves(runs: Sequence[Run], request: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    if (read := METRICS[metric].read_round) is None:
        return ()  # which no request asks for
    lines = ((name, _build_points(alike, rounds, read)) for name, alike in group_runs(runs, request.series))
    return tuple(Series(str(name), line) for name, line in lines if line)


def _build_distances(runs: Sequence[Run], request: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    lines = ((pair, _build_points(runs, rounds, partial(_read_distance, pair))) for pair in PAIRS)
    return tuple(Series(DISTANCE_LABELS[pair], line) for pair, line in lines if any(point.runs for point in line))


def _build_scatter(runs: Sequence[Run], request: FigureSpec, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    """A round of the first run that is finished and can be read."""
    run = next(filter(rounds, runs), None)
    if run is None:
        return ()
    last = max(rounds(run))
    record = rounds(run).get(request.round or last)
    if record is None:
        raise SettingError(f"figure.round is {request.round}, and {run.name} ends with round {last}")
    marks: dict[str, list[Point]] = {name: [] for name in MARK_LABELS.values()}
    points = record["map"] or () if request.of == "updates" else zip(*record["facts"].values(), strict=False)
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
    """A point for every round that a run has."""
    numbers = {run.name: {number: number_of(record) for number, record in rounds(run).items()} for run in runs}
    every = sorted({number for own in numbers.values() for number in own})
    return tuple(_build_point(each, {name: own.get(each) for name, own in numbers.items()}) for each in every)


def group_runs(runs: Sequence[Run], paths: Sequence[str]) -> list[tuple[float | str, list[Run]]]:
    """The runs by where they stand in these settings: numbers in their order, names as they come."""
    groups: dict[float | str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_locate_run(run, paths), []).append(run)
    if any(isinstance(place, str) for place in groups):
        return list(groups.items())
    return sorted(groups.items(), key=lambda group: float(group[0]))


def describe_axis(paths: Sequence[str]) -> str:
    """What an axis calls settings."""
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


def _describe_value(request: FigureSpec) -> tuple[str, Literal["%", "s", ""]]:
    """What is measured in words, and its unit."""
    if not request.value:
        return "", ""
    timed = METRICS[request.value[0]].timed
    together = "seconds" if timed else "share"
    return together if len(request.value) > 1 else _label_metric(request, request.value[0]), "s" if timed else "%"


def _are_steep(panels: Iterable[Panel]) -> bool:
    numbers = [number for panel in panels for number in _list_numbers(panel)]
    return min(numbers) > 0 and max(numbers) > MIN_LOG_RATIO * min(numbers)
