"""What a sweep's [figure] asks for.

It has a `kind` and, each with a default or not as `KINDS` says,
    x, y, series, panels      paths of settings, one or several: what axes, lines and panels differ in
    value                     a metric or several, which get panels of their own
    round                     of a scatter plot; 0 is the last
    of                        what a scatter plot is of: updates, or the codes that a VAE gives them, one a client
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
"""What a [figure] of each kind may say, and what stands for what it does not; None is for what it must say."""

SCATTER_SUBJECTS = ("updates", "codes")
"""What a scatter plot may be of."""

ROUND_METRICS = tuple(name for name, metric in METRICS.items() if metric.read_round)
"""The metrics that every round has, for curves."""


@dataclass(frozen=True)
class FigureSpec:
    """A [figure] once it is read."""

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
        """All the settings that it names."""
        return (*self.x, *self.y, *self.series, *self.panels)


def parse_figure(figure: Mapping[str, Any]) -> FigureSpec:
    """A sweep's [figure], refused in one sentence where no figure of its kind could be drawn."""
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
    if key == "value" and len({METRICS[name].timed for name in names}) != 1:
        raise SettingError(f"figure.value needs metrics of one unit, got {value!r}")
    return tuple(names)
