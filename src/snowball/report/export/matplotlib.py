"""The figures of sweeps as static images, for papers and slides: the same numbers give the same bytes."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from itertools import zip_longest
from math import ceil, floor, isnan, log10, nan
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from snowball.errors import MissingExtra, SettingError
from snowball.records.files import make_folder, write_bytes
from snowball.records.text import escape_text
from snowball.report.export.write import choose_file_names
from snowball.report.figures import Figure, Panel, Series, find_heat_top
from snowball.report.palette import BENIGN, BETWEEN, HEAT, INFECTED, TONES, choose_look
from snowball.report.runs import ABSENT
from snowball.report.sweeps import Sweep

try:
    from matplotlib import style
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D
    from matplotlib.ticker import (
        EngFormatter,
        Formatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        PercentFormatter,
        StrMethodFormatter,
    )
except ImportError as error:
    raise MissingExtra("pictures need matplotlib: pip install 'matplotlib>=3.9'") from error

Look = dict[str, Any]

FILE_TYPES = ("svg", "png")
COLUMN_INCHES, PAGE_INCHES = 3.3, 7.0
"""The widths of a column and a page of a paper: up to two panels side by side fit a column, three a page."""

SCREEN_DPI = 160
"""Dots per inch of a picture in a notebook: a column is then about as wide as text."""

PANEL_INCHES, BAR_INCHES, LEGEND_LINE_INCHES = 1.9, 0.14, 0.14
"""The heights of a panel, of a bar, and of a line of the legend."""

PAINTS = {tone: light for tone, (light, _) in TONES.items()}
"""The colours on white."""

DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (4, 1.5)),
    "dot": (0, (1, 1)),
    "dashdot": (0, (4, 1.2, 1, 1.2)),
    "longdash": (0, (8, 2)),
    "longdashdot": (0, (8, 1.5, 1.5, 1.5)),
}
MARKERS = "os^vPX*"
BLACK, GREY = "#000000", "#777777"
HEAT_COLOURS = LinearSegmentedColormap.from_list("heat", [light for light, _ in HEAT.values()])
MAX_TICKS, CROWDED_POINTS = 8, 150
MAX_TITLE_CHARS, MAX_NAME_CHARS, MAX_TICK_CHARS, TITLE_CHARS_PER_INCH = 96, 48, 20, 15
"""The most characters of a title, a name and a tick label that are shown, and characters of a title per inch."""

MAX_VERDICT_CHARS = 160
"""The most characters of a run's verdict that are shown as a title."""

BAR_LOOK: Look = {"height": 0.7, "error_kw": {"elinewidth": 0.7, "ecolor": BLACK}}
NUMBER_LOOK: Look = {"fontsize": 6, "va": "center", "color": GREY}

LOOKS: dict[str, Look] = {
    "benign": {"color": PAINTS[BENIGN], "marker": "o"},
    "benign, elected": {"color": PAINTS[BENIGN], "marker": "o"},
    "benign, left out": {"color": PAINTS[BENIGN], "marker": "o", "markerfacecolor": "none"},
    "learned": {"color": BLACK, "marker": "x", "zorder": 3},
    "infected": {"color": PAINTS[INFECTED], "marker": "D"},
    "infected, elected": {"color": PAINTS[INFECTED], "marker": "D"},
    "infected, left out": {"color": PAINTS[INFECTED], "marker": "D", "markerfacecolor": "none"},
    "main accuracy": {"color": PAINTS[BENIGN], "linestyle": DASHES["dash"]},
    "backdoor accuracy": {"color": PAINTS[INFECTED]},
    "both benign": {"color": PAINTS[BENIGN]},
    "benign and infected": {"color": PAINTS[BETWEEN], "linestyle": DASHES["dash"]},
    "both infected": {"color": PAINTS[INFECTED], "linestyle": DASHES["dot"]},
}
"""The looks of series that are no defenses and have the same meaning in every figure."""

STYLE: dict[str, Any] = {
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "xtick.major.size": 2,
    "ytick.major.size": 2,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "text.parse_math": False,  # names are not formulas
    "svg.hashsalt": "snowball",  # otherwise ids in the file are random
}


class Picture(Drawing):
    """A drawing that a notebook shows, whether or not it has set up matplotlib."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=SCREEN_DPI)
        return file.getvalue()


def write_static_figures(
    sweeps: Sequence[Sweep], figures: Sequence[Figure | None], folder: str | Path, kind: str = "svg"
) -> list[Path]:
    """Write the figure of every sweep that has one, named like the tables of `write_exports`; return the paths."""
    if kind not in FILE_TYPES:
        raise SettingError(f"pictures are {' or '.join(FILE_TYPES)} files, got {kind!r}")
    paths = [Path(folder) / f"{name}.{kind}" for name in choose_file_names([sweep.name for sweep in sweeps])]
    drawn = {path: figure for path, figure in zip(paths, figures, strict=True) if figure}
    make_folder(Path(folder))
    for path, figure in drawn.items():
        write_bytes(path, render_figure(figure, kind))
    return list(drawn)


def render_figure(figure: Figure, kind: str = "svg") -> bytes:
    """Render a figure as the content of a file."""
    undated = {"Date": None} if kind == "svg" else {}
    file = BytesIO()
    with style.context(["default", STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a box stands for a character that the font lacks
        draw_figure(figure).savefig(file, format=kind, metadata={"Title": escape_text(figure.title), **undated})
    return file.getvalue()


def draw_picture(figure: Figure) -> Drawing:
    """Draw a figure of one panel for a notebook, or for a program that saves it, with a whole verdict as its title."""
    with style.context(["default", STYLE]):
        drawing = draw_figure(figure)
        drawing.axes[0].set_title(wrap_title(figure.title, COLUMN_INCHES, MAX_VERDICT_CHARS))
        return drawing


def wrap_title(title: str, inches: float, most: int = MAX_TITLE_CHARS) -> str:
    """Break a title of at most so many characters into lines of this width."""
    return fill(escape_text(title, most), int(TITLE_CHARS_PER_INCH * inches), break_on_hyphens=False)


def draw_figure(figure: Figure) -> Drawing:
    """Draw a figure's panels side by side, with a legend."""
    columns = 2 if len(figure.panels) == 4 else min(len(figure.panels), 3)
    rows, width = ceil(len(figure.panels) / columns), COLUMN_INCHES if columns < 3 else PAGE_INCHES
    drawing, looks = Picture(), choose_looks(figure)
    places = drawing.subplots(rows, columns, squeeze=False, sharey=_is_shared(figure))
    for axes, panel in zip_longest(places.flat, figure.panels):
        if panel is None:
            axes.remove()
            continue
        DRAWERS[figure.kind](axes, panel, figure, looks)
        axes.set_title(wrap_title(panel.title, width / columns))
    if figure.kind in ("curves", "distances"):
        _align_rounds(drawing.axes)
    if figure.unit == "%" and figure.kind in ("lines", "curves"):
        low, high = places[0, 0].get_ylim()  # all panels share it
        places[0, 0].set_ylim(max(low, -0.02), min(high, 1.02))
    _name_axes(drawing, places, figure)
    legend = _name_looks(drawing, figure, looks, width)
    drawing.set_size_inches(width, rows * _compute_height(figure) + LEGEND_LINE_INCHES * legend)
    return drawing


def _align_rounds(panels: Sequence[Axes]) -> None:
    """Show the same rounds in all panels."""
    limits = [axes.get_xlim() for axes in panels]
    for axes in panels:
        axes.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))


def _is_shared(figure: Figure) -> bool:
    """Whether the y axes of all panels show the same metric, or the same names."""
    frames = {
        repr([(line.name, [point.x for point in line.points]) for line in panel.series]) for panel in figure.panels
    }
    return figure.kind in ("lines", "curves", "distances") or (figure.kind in ("bars", "heat") and len(frames) == 1)


def choose_looks(figure: Figure) -> dict[str, Look]:
    """Choose the look of each series, the same in every panel; markers tell those of the same colour apart."""
    names = dict.fromkeys(series.name for panel in figure.panels for series in panel.series)
    looks, alike = {}, Counter[tuple[str, str]]()
    for name in names:
        own = choose_look(name)
        marker = MARKERS[alike[own.tone, own.dash] % len(MARKERS)]
        alike[own.tone, own.dash] += name not in LOOKS
        heavy = {"linewidth": 1.8, "zorder": 3} if own.dash == "solid" else {}
        line = {"marker": marker, "color": PAINTS[own.tone], "linestyle": DASHES[own.dash], **heavy}
        looks[name] = {"marker": marker} | LOOKS[name] if name in LOOKS else line
    return looks


def _draw_lines(axes: Axes, panel: Panel, figure: Figure, looks: Mapping[str, Look]) -> None:
    values = list(dict.fromkeys(point.x for series in panel.series for point in series.points))
    for series in panel.series:
        x, y, spread = _split_points(series)
        places = list(map(values.index, x)) if _are_names(values) else x
        axes.errorbar(places, y, spread, capsize=1.5, elinewidth=0.7, **looks[series.name])
    if _are_names(values):
        axes.set_xticks(range(len(values)), [escape_text(_format_tick(value), MAX_TICK_CHARS) for value in values])
    elif len(values) <= MAX_TICKS and "x" not in figure.logarithmic:
        axes.set_xticks(values, [f"{value:g}" for value in values])
    _scale_axes(axes, figure)


def _draw_curves(axes: Axes, panel: Panel, figure: Figure, looks: Mapping[str, Look]) -> None:
    for series in panel.series:
        x, y, spread = _split_points(series)
        look = looks[series.name] | _thin_markers(looks[series.name], len(x))
        axes.plot(x, y, **look)
        if any(spread):
            low, high = ([mean + sign * each for mean, each in zip(y, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if figure.kind == "distances":
        axes.set_ylim(0)
    _scale_axes(axes, figure)


def _thin_markers(look: Look, points: int) -> Look:
    """Leave out the markers of a curve, or keep a few if another curve has the same colour and dashes."""
    if points < 2:
        return {}
    return {"marker": ""} if look["marker"] == MARKERS[0] else {"markevery": ceil(points / 8)}


def _draw_bars(axes: Axes, panel: Panel, figure: Figure, looks: Mapping[str, Look]) -> None:
    """Draw horizontal bars, so that names can be read."""
    points = [point for series in panel.series for point in series.points]
    numbers = [nan if point.y is None else point.y for point in points]
    tones = [choose_look(str(point.x)).tone if figure.defenses else "plain" for point in points]
    spreads = [point.spread or 0 for point in points]
    axes.barh(range(len(points)), numbers, xerr=spreads, color=[PAINTS[tone] for tone in tones], **BAR_LOOK)
    for place, point in enumerate(points):
        if point.y is not None:
            words = f"{point.y:.1%}" if figure.unit == "%" else f"{point.y:.2g}"
            axes.annotate(
                words, (point.y + (point.spread or 0), place), (2, 0), textcoords="offset points", **NUMBER_LOOK
            )
    axes.set_yticks(range(len(points)), [escape_text(_format_tick(point.x), MAX_TICK_CHARS) for point in points])
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.margins(x=0.25)
    if "y" in figure.logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(*_find_limits(figure))
        _label_powers(axes.xaxis, StrMethodFormatter("{x:g}"))
    else:
        axes.set_xlim(0)
    if figure.unit == "%":
        axes.xaxis.set_major_formatter(PercentFormatter(1))


def _draw_heat(axes: Axes, panel: Panel, figure: Figure, looks: Mapping[str, Look]) -> None:
    values = list(dict.fromkeys(point.x for series in panel.series for point in series.points))
    cells = [{point.x: point.y for point in series.points} for series in panel.series]
    numbers = [[nan if (number := row.get(value)) is None else number for value in values] for row in cells]
    top = find_heat_top(figure)
    image = axes.imshow(numbers, HEAT_COLOURS, aspect="auto", vmin=0, vmax=top, origin="lower")
    for (row, column), number in np.ndenumerate(numbers):
        words = ABSENT if isnan(number) else f"{100 * number:.1f}" if figure.unit == "%" else f"{number:.2g}"
        axes.text(column, row, words, ha="center", va="center", color="white" if number > 0.65 * top else BLACK)
    axes.set_xticks(range(len(values)), [escape_text(_format_tick(value), MAX_TICK_CHARS) for value in values])
    axes.set_yticks(range(len(cells)), [escape_text(series.name, MAX_TICK_CHARS) for series in panel.series])
    axes.grid(visible=False)
    _separate_cells(axes, len(cells), len(values))
    axes.figure.colorbar(image, ax=axes, format=PercentFormatter(1, 0) if figure.unit == "%" else None, shrink=0.9)


def _separate_cells(axes: Axes, rows: int, columns: int) -> None:
    """Draw white lines between the cells of a heat map."""
    axes.set_xticks([place - 0.5 for place in range(1, columns)], minor=True)
    axes.set_yticks([place - 0.5 for place in range(1, rows)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)


def _draw_scatter(axes: Axes, panel: Panel, figure: Figure, looks: Mapping[str, Look]) -> None:
    crowded = sum(len(series.points) for series in panel.series) > CROWDED_POINTS
    marks = {"linestyle": "", "markeredgewidth": 0.7, "markersize": 1.8 if crowded else 3}
    for series in panel.series:
        x, y, _ = _split_points(series)
        axes.plot(x, y, **looks[series.name] | marks)
    axes.set_aspect("equal", "datalim")
    axes.tick_params(labelbottom=False, labelleft=False, length=0)


DRAWERS: dict[str, Callable[[Axes, Panel, Figure, Mapping[str, Look]], None]] = {
    "lines": _draw_lines,
    "heat": _draw_heat,
    "bars": _draw_bars,
    "curves": _draw_curves,
    "scatter": _draw_scatter,
    "distances": _draw_curves,
}
"""The functions that draw a panel, by kind of figure."""


def _split_points(series: Series) -> tuple[list[Any], list[float], list[float]]:
    """Return x, y and spread of the points that have a number."""
    known = [(point.x, point.y, point.spread or 0.0) for point in series.points if point.y is not None]
    return [x for x, _, _ in known], [y for _, y, _ in known], [spread for _, _, spread in known]


def _are_names(values: Sequence[float | str]) -> bool:
    return any(isinstance(value, str) for value in values)


def _format_tick(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _scale_axes(axes: Axes, figure: Figure) -> None:
    if "x" in figure.logarithmic:
        axes.set_xscale("log")
        _label_powers(axes.xaxis, EngFormatter(sep=""))
    if "y" in figure.logarithmic:
        axes.set_yscale("log")
        _label_powers(axes.yaxis, StrMethodFormatter("{x:g}"))
    if figure.unit == "%":
        axes.yaxis.set_major_formatter(PercentFormatter(1))


def _find_limits(figure: Figure) -> tuple[float, float]:
    """Return the limits of logarithmic bars, the same in all panels: a bar's length means little otherwise."""
    every = [point.y for panel in figure.panels for series in panel.series for point in series.points]
    numbers = [number for number in every if number and number > 0] or [1.0]
    low = 10 ** floor(log10(min(numbers)) - 0.1)
    return low, low * (max(numbers) / low) ** 1.3  # with room for the numbers beside the bars


def _label_powers(axis: Axis, formatter: Formatter) -> None:
    """Label a logarithmic axis in plain numbers, and also between powers of ten if it shows few of them."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(formatter)
    axis.set_minor_formatter(NullFormatter())


def _name_axes(drawing: Drawing, places: np.ndarray, figure: Figure) -> None:
    across, up = (figure.y, "") if figure.kind == "bars" else (figure.x, figure.y)
    note = f"({figure.unfinished} of the runs are not finished)" if figure.unfinished else ""
    drawing.supxlabel("\n".join(filter(None, (escape_text(across), note))), fontsize=7)
    for axes in places[:, 0]:
        axes.set_ylabel(escape_text(up))
    if figure.kind == "heat":
        drawing.suptitle(escape_text(figure.value + (", %" if figure.unit == "%" else "")), fontsize=7)


def _name_looks(drawing: Drawing, figure: Figure, looks: Mapping[str, Look], width: float) -> int:
    """Add a legend if there are several looks to tell apart; return the number of its lines."""
    if len(looks) < 2 or figure.kind in ("heat", "bars"):
        return 0
    columns = max(1, int(width / (0.35 + 0.05 * min(MAX_NAME_CHARS, max(map(len, looks))))))
    marked = figure.kind in ("lines", "scatter")
    only = {"linestyle": ""} if figure.kind == "scatter" else {} if marked else {"marker": ""}
    handles = [Line2D([], [], label=escape_text(name, MAX_NAME_CHARS), **look | only) for name, look in looks.items()]
    drawing.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=1.8, columnspacing=1)
    return ceil(len(looks) / columns)


def _compute_height(figure: Figure) -> float:
    if figure.kind != "bars":
        return PANEL_INCHES
    return 0.6 + BAR_INCHES * max(len(series.points) for panel in figure.panels for series in panel.series)
