"""The format of a grid's file: blocks of axes, and how a report shows the results."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator

from snowball.errors import SettingError
from snowball.registry import suggest_name, suggest_or_list
from snowball.settings import Section, Settings, describe_fault, flatten_settings


class Block(Section):
    """One product of a grid: presets or files, the settings of all its runs, and the settings that vary."""

    preset: list[str]
    set: Settings = Field(default_factory=dict)
    axes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("preset", mode="before")
    @classmethod
    def wrap_name(cls, preset: Any) -> Any:
        """Turn one name into a list."""
        return [preset] if isinstance(preset, str) else preset

    @field_validator("set", "axes", mode="before")
    @classmethod
    def flatten_paths(cls, settings: Any) -> Any:
        """Accept a path without quotation marks, which TOML reads as nested tables."""
        return flatten_settings(settings) if isinstance(settings, Mapping) else settings

    def size(self) -> int:
        """Return the number of runs."""
        return len(self.preset) * prod(map(len, self.axes.values()))


class TableSettings(Section):
    """A report's table: rows and columns are paths of settings, values are names of metrics.

    Attributes:
        worst: a setting that varies within a cell, which then shows the worst of its values, such as `attack.target`.
    """

    rows: list[str] = Field(min_length=1)
    columns: list[str]
    values: list[str] = Field(min_length=1)
    worst: str | None = None

    @property
    def paths(self) -> list[str]:
        """All settings that it names."""
        return [*self.rows, *self.columns, *([self.worst] if self.worst else [])]


class GridFile(Section):
    """A whole file.

    Attributes:
        published: the report's key of the published numbers to compare with.
        first: defenses whose runs take long; they start first, so that no long run is left alone at the end.
        table: the report's table of the sweep.
        figure: the report's figure of the sweep.
        leaderboard: whether the report ranks the defenses, beside the runs of FedAvg and Ideal.
        peers: settings by defense. If given, they replace those of the presets: each defense is the same in all blocks.
        axes: settings that vary in all blocks, after those of the block.
        grid: the blocks.
    """

    published: str | None = None
    first: list[str] = Field(default_factory=list)
    table: TableSettings | None = None
    figure: Settings | None = None
    leaderboard: bool = False
    peers: dict[str, Settings] | None = None
    axes: dict[str, Any] = Field(default_factory=dict)
    grid: list[Settings] = Field(min_length=1)

    @field_validator("axes", mode="before")
    @classmethod
    def flatten_paths(cls, settings: Any) -> Any:
        """Accept a path without quotation marks, which TOML reads as nested tables."""
        return flatten_settings(settings) if isinstance(settings, Mapping) else settings

    def blocks(self) -> list[Block]:
        """Parse the blocks; their settings are checked when the runs are parsed."""
        return [parse_block(f"block {number}", block, self.axes) for number, block in enumerate(self.grid, start=1)]

    def paths(self, known: Mapping[str, Any]) -> list[str]:
        """Return the known settings that the table and the figure name."""
        table = self.table.paths if self.table else []
        if len(set(table)) < len(table):
            raise SettingError(f"[table] names {find_repeated(table)} twice")
        for path in table:
            if path not in known:
                raise SettingError(f"[table] names {path}, which no run has{suggest_name(path, known)}")
        return [*table, *(text for text in find_texts(self.figure) if text in known)]


def find_repeated(names: Sequence[str]) -> str:
    """Return the first name that is in a list twice."""
    return next(name for number, name in enumerate(names) if name in names[:number])


Part = TypeVar("Part", bound=Section)


def parse_section(model: type[Part], settings: Settings, section: str = "") -> Part:
    """Parse a section of a grid's file."""
    for name in settings:
        if name not in model.model_fields:
            raise SettingError(
                f"{name} is not known in {section or 'a grid'}{suggest_or_list(name, model.model_fields)}"
            )
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        raise SettingError(describe_fault(error, section)) from error


def parse_block(name: str, settings: Settings, shared: Settings) -> Block:
    """Parse a block, add the axes that all blocks share, and check all of its axes."""
    block = parse_section(Block, settings, name)
    for path in shared:
        if path in block.axes:
            raise SettingError(f"{name} varies {path}, which all blocks vary")
    block = block.model_copy(update={"axes": {**block.axes, **shared}})
    for path, values in {"preset": block.preset, **block.axes}.items():
        check_axis(name, path, values)
    for path in block.axes:
        if path in block.set:
            raise SettingError(f"{name} both sets and varies {path}")
    return block


def check_axis(block: str, path: str, values: Any) -> None:
    """Refuse an axis that is not a list of distinct plain values."""
    if not isinstance(values, list):
        raise SettingError(f"axis {path!r} of {block} must be a list, got {values!r}")
    if not values:
        raise SettingError(f"axis {path!r} of {block} is empty")
    for number, value in enumerate(values):
        if not isinstance(value, str | int | float):
            raise SettingError(f"axis {path!r} of {block} must hold numbers, strings or booleans, got {value!r}")
        if value in values[:number]:
            raise SettingError(f"axis {path!r} of {block} has {value!r} twice")


def find_texts(value: Any) -> Iterator[str]:
    """Yield all strings in a TOML value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from find_texts(entry)
