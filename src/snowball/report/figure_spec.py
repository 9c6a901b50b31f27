"""The [figure] of a sweep, parsed and checked.

It has a `kind` and these keys, with the defaults in `KINDS`:
    x, y, series, panels      paths of settings, one or several, that axes, lines and panels differ in
    value                     one metric, or several with a panel each
    round                     of a scatter plot; 0 is the last
    of                        the points of a scatter plot: updates, or the codes that a VAE gives them, one per client
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snowball.errors import SettingError
from snowball.registry import suggest_name
from snowball.report.sweeps import METRICS

KINDS: dict[str, dict[str, Any]] = {
    "lines": {"x": None, "series": "defense.name", "panels": [], "value": "backdoor_accuracy"},
    "heat": {"x": None, "y": None, "panels": [], "value": "backdoor_accuracy"},
    "bars": {"x": "defense.name", "panels": [], "value": "backdoor_accuracy"},
    "curves": {"series": "defense.name", "panels": ["data.name", "attack.name"], "value": "main_accuracy"},
    "scatter": {"panels": ["data.name"], "round": 0, "of": "updates"},
    "distances": {"panels": ["data.name"]},
}
"""The keys of each kind of [figure] and their defaults; None marks a key that must be given."""

SCATTER_SUBJECTS = ("updates", "codes")
"""The points that a scatter plot may show."""

ROUND_METRICS = tuple(name for name, metric in METRICS.items() if metric.read_round)
"""The metrics that every round has, for curves."""


@dataclass(frozen=True)
class FigureSpec:
    """A [figure] once it is parsed."""

    kind: str
    x: tuple[str, ...] = ()
    y: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    round: int = 0
    of: str = "updates"

    @property
    def paths(self) -> tuple[str, ...]:
        """All settings that it names."""
        return (*self.x, *self.y, *self.series, *self.panels)


def parse_figure(figure: Mapping[str, Any]) -> FigureSpec:
    """Parse a sweep's [figure]; refuse one that cannot be drawn, in one sentence."""
    kind = figure.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingError(f"figure.kind is one of {', '.join(KINDS)}, got {kind!r}")
    given = {key: value for key, value in figure.items() if key != "kind"}
    for key in given:
        if key not in KINDS[kind]:
            raise SettingError(f"figure.{key} is not a key of the kind {kind!r}{suggest_name(key, KINDS[kind])}")
    return FigureSpec(kind, **{key: _parse_value(kind, key, value) for key, value in (KINDS[kind] | given).items()})


def _parse_value(kind: str, key: str, value: Any) -> Any:
    if value is None:
        raise SettingError(f"a figure of the kind {kind!r} needs figure.{key}, the path of a setting")
    if key == "round":
        if type(value) is not int or value < 0:
            raise SettingError(f"figure.round is the number of a round, got {value!r}")
        return value
    if key == "of":
        if value not in SCATTER_SUBJECTS:
            raise SettingError(f"figure.of is {' or '.join(SCATTER_SUBJECTS)}, got {value!r}")
        return value
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in names):
        raise SettingError(f"figure.{key} is a name or a list of names, got {value!r}")
    known = ROUND_METRICS if kind == "curves" else METRICS
    for name in names if key == "value" else ():
        if name not in known:
            raise SettingError(f"figure.value is one of {', '.join(known)}, got {name!r}")
    if key == "value" and len({METRICS[name].unit for name in names}) != 1:
        raise SettingError(f"figure.value needs metrics of one unit, got {value!r}")
    return tuple(names)
