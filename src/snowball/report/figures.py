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
from snowball.report.figure_spec import Request, read_request
from snowball.report.runs import ABSENT, noting
from snowball.report.sweeps import METRICS, Run, Sweep, mixed

WORDS = {
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

CODED = {
    "vae-updates": "code of each update",
    "vae": "mean code of differences to the elected",
    "vae-span": "mean code of differences to the elected",
}
"""What a client's mark is in a scatter plot of codes, by the judge whose VAE gives them."""

APART = {"benign": "both benign", "between": "benign and infected", "infected": "both infected"}
MOST_PANELS, HIGHEST = 48, 1e100
"""Panels of a figure, and the highest number, that can be drawn."""

STEEP = 30
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


def figures_of(sweeps: Iterable[Sweep], faults: list[str] | None = None) -> list[Figure | None]:
    """The figure of each sweep, as `figure_of` has it; one that cannot be drawn is an error, or one of the faults."""
    return [_figure_or_fault(sweep, faults) for sweep in sweeps]


def _figure_or_fault(sweep: Sweep, faults: list[str] | None) -> Figure | None:
    with noting(faults):
        try:
            return figure_of(sweep, faults)
        except SnowballError as error:
            raise RunError(f"the figure of {sweep.name} cannot be drawn: {error}") from error
    return None


def figure_of(sweep: Sweep, faults: list[str] | None = None) -> Figure | None:
    """What the sweep's [figure] shows of its finished runs; None where it has none, or they have nothing to show.

    A run whose rounds cannot be read is an error, or one of the faults and not there.
    """
    if sweep.figure is None:
        return None
    request, rounds = read_request(sweep.figure), _reader(faults)
    for path in request.paths:
        if not any(path in run.at for run in sweep.runs):
            raise SettingError(f"the figure of {sweep.name} goes by {path}, which no run of the sweep says")
    panels = tuple(filter(_numbers, _panels(sweep.runs, request, rounds)))
    if not panels:
        return None
    value, unit = _measured(request)
    is_there = rounds if request.kind in ("curves", "distances") else _is_finished
    x, y = AXES.get(request.kind, (in_words(request.x), in_words(request.y)))
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


def _reader(faults: list[str] | None) -> Rounds:
    """Reads rounds once, without the facts that no figure shows; what cannot be read is a fault."""

    @cache
    def read(folder: Path) -> Mapping[int, RoundRecord]:
        with noting(faults):
            rounds = RunFolder.open(folder).rounds()
            return {record["round"]: record | {"facts": shown_facts(record)} for record in rounds}
        return {}

    return lambda run: read(run.folder) if _is_finished(run) else {}


def shown_facts(record: RoundRecord) -> dict[str, Any]:
    """The facts of a round that figures show."""
    return {name: record["facts"][name] for name in CODES if isinstance(record["facts"].get(name), list)}


def _is_finished(run: Run) -> bool:
    return run.state == "finished"


def _panels(runs: Sequence[Run], request: Request, rounds: Rounds) -> Iterable[Panel]:
    metrics = request.value or ("",)
    places = grouped(runs, (*request.panels, *mixed(runs, request.paths)))
    if (total := len(places) * len(metrics)) > MOST_PANELS:
        raise SettingError(f"a figure has at most {MOST_PANELS} panels, and this one asks for {total}")
    for metric in metrics:
        for place, alike in places:
            title = ", ".join(filter(None, (_heading(request, metric), str(place))))
            marks = _marked(alike) if request.of == "codes" else ""
            yield Panel(": ".join(filter(None, (title, marks))), MAKERS[request.kind](alike, request, metric, rounds))


def _heading(request: Request, metric: str) -> str:
    if request.kind == "scatter":
        return f"round {request.round}" if request.round else "last round"
    if len(request.value) < 2:
        return ""
    return _label(request, metric) if request.kind == "curves" else METRICS[metric].short


def _marked(runs: Sequence[Run]) -> str:
    """What codes are of, where the sweep says which judge gave them, and it is one."""
    judges = {str(run.at.get("defense.judge")) for run in runs}
    return CODED.get(judges.pop(), "") if len(judges) == 1 else ""


def _label(request: Request, metric: str) -> str:
    return METRICS[metric].label.removesuffix(", best round" if request.kind == "curves" else "")


def _cells(runs: Sequence[Run], request: Request, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    lines = ((name, grouped(alike, request.x)) for name, alike in grouped(runs, request.series or request.y))
    return tuple(
        Series(str(name), tuple(_point(x, {run.name: run.metrics.get(metric) for run in cell}) for x, cell in line))
        for name, line in lines
    )


def _curves(runs: Sequence[Run], request: Request, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    if (read := METRICS[metric].read_round) is None:
        return ()  # which no request asks for
    lines = ((name, _over_rounds(alike, rounds, read)) for name, alike in grouped(runs, request.series))
    return tuple(Series(str(name), line) for name, line in lines if line)


def _distances(runs: Sequence[Run], request: Request, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    lines = ((pair, _over_rounds(runs, rounds, partial(_distance, pair))) for pair in PAIRS)
    return tuple(Series(APART[pair], line) for pair, line in lines if any(point.runs for point in line))


def _scatter(runs: Sequence[Run], request: Request, metric: str, rounds: Rounds) -> tuple[Series, ...]:
    """A round of the first run that is finished and can be read."""
    run = next(filter(rounds, runs), None)
    if run is None:
        return ()
    last = max(rounds(run))
    record = rounds(run).get(request.round or last)
    if record is None:
        raise SettingError(f"figure.round is {request.round}, and {run.name} ends with round {last}")
    marks: dict[str, list[Point]] = {name: [] for name in MARKS.values()}
    points = record["map"] or () if request.of == "updates" else zip(*record["facts"].values(), strict=False)
    for bad, chosen, point in zip(record["malicious"], record["elected"], points, strict=False):
        drawn = [number for number in point or () if isinstance(number, int | float) and abs(number) <= HIGHEST]
        if len(drawn) == len(point or ()) == 2:
            marks[MARKS[bad, chosen]].append(Point(drawn[0], drawn[1], None, (run.name,)))
    return tuple(Series(name, tuple(points)) for name, points in marks.items() if points)


MARKS = {
    (False, True): "benign, elected",
    (False, False): "benign, left out",
    (True, True): "infected, elected",
    (True, False): "infected, left out",
}

MAKERS: dict[str, Callable[[Sequence[Run], Request, str, Rounds], tuple[Series, ...]]] = {
    "lines": _cells,
    "heat": _cells,
    "bars": _cells,
    "curves": _curves,
    "scatter": _scatter,
    "distances": _distances,
}


def _distance(pair: str, record: RoundRecord) -> float | None:
    return (record["distances"] or {}).get(pair)


def _over_rounds(
    runs: Sequence[Run], rounds: Rounds, number_of: Callable[[RoundRecord], float | None]
) -> tuple[Point, ...]:
    """A point for every round that a run has."""
    numbers = {run.name: {number: number_of(record) for number, record in rounds(run).items()} for run in runs}
    every = sorted({number for own in numbers.values() for number in own})
    return tuple(_point(each, {name: own.get(each) for name, own in numbers.items()}) for each in every)


def grouped(runs: Sequence[Run], paths: Sequence[str]) -> list[tuple[float | str, list[Run]]]:
    """The runs by where they stand in these settings: numbers in their order, names as they come."""
    groups: dict[float | str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_place(run, paths), []).append(run)
    if any(isinstance(place, str) for place in groups):
        return list(groups.items())
    return sorted(groups.items(), key=lambda group: float(group[0]))


def in_words(paths: Sequence[str]) -> str:
    """What an axis calls settings."""
    own = {path: path.removesuffix(".name").rpartition(".")[2].replace("_", " ") for path in paths}
    return ", ".join((own | WORDS)[path] for path in paths)


def _place(run: Run, paths: Sequence[str]) -> float | str:
    values = [run.at.get(path) for path in paths]
    if len(values) == 1 and isinstance(values[0], int | float) and not isinstance(values[0], bool):
        return values[0]
    return ", ".join(ABSENT if value is None else str(value) for value in values)


def _point(x: float | str, numbers: Mapping[str, float | None]) -> Point:
    known = {name: number for name, number in numbers.items() if number is not None and abs(number) <= HIGHEST}
    mean = fmean(known.values()) if known else None
    spread = stdev(known.values()) if len(known) > 1 else None
    return Point(x, mean, spread, tuple(known), len(numbers) - len(known))


def _numbers(panel: Panel) -> list[float]:
    return [point.y for series in panel.series for point in series.points if point.y is not None]


def _measured(request: Request) -> tuple[str, Literal["%", "s", ""]]:
    """What is measured in words, and its unit."""
    if not request.value:
        return "", ""
    timed = METRICS[request.value[0]].timed
    together = "seconds" if timed else "share"
    return together if len(request.value) > 1 else _label(request, request.value[0]), "s" if timed else "%"


def _are_steep(panels: Iterable[Panel]) -> bool:
    numbers = [number for panel in panels for number in _numbers(panel)]
    return min(numbers) > 0 and max(numbers) > STEEP * min(numbers)
