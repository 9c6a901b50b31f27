"""What a grid's file holds: blocks of axes, and how a report shows what comes of them."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator

from snowball.errors import SettingError
from snowball.registry import suggest_name, suggest_or_list
from snowball.settings import Section, Settings, flat, sentence


class Block(Section):
    """One product of a grid: presets or files, what is set in all of them, and what is varied."""

    preset: list[str]
    set: Settings = Field(default_factory=dict)
    axes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("preset", mode="before")
    @classmethod
    def listed(cls, preset: Any) -> Any:
        """One name is a list of one."""
        return [preset] if isinstance(preset, str) else preset

    @field_validator("set", "axes", mode="before")
    @classmethod
    def by_paths(cls, settings: Any) -> Any:
        """A path without quotation marks is a table in a table; it means the same."""
        return flat(settings) if isinstance(settings, Mapping) else settings

    def size(self) -> int:
        """How many runs there are in it."""
        return len(self.preset) * prod(map(len, self.axes.values()))


class TableSettings(Section):
    """How a report shows a sweep: paths of settings, and names of metrics."""

    rows: list[str] = Field(min_length=1)
    columns: list[str]
    values: list[str] = Field(min_length=1)


class GridFile(Section):
    """All of a file.

    Attributes:
        published: the published numbers that stand beside, by a key of the report's.
        first: the defenses whose runs take long; they are played first, so that nothing long is left alone at the end.
        table: how a report shows the sweep.
        figure: what it draws of it.
        grid: the blocks.
    """

    published: str | None = None
    first: list[str] = Field(default_factory=list)
    table: TableSettings | None = None
    figure: Settings | None = None
    grid: list[Settings] = Field(min_length=1)

    def blocks(self) -> list[Block]:
        """The blocks, checked but for what their runs will say of them."""
        return [block_of(f"block {number}", block) for number, block in enumerate(self.grid, start=1)]

    def paths(self, known: Mapping[str, Any]) -> list[str]:
        """The settings, of those known, that table and figure name."""
        table = [*self.table.rows, *self.table.columns] if self.table else []
        for path in table:
            if path not in known:
                raise SettingError(f"[table] names {path}, which no run has{suggest_name(path, known)}")
        return [*table, *(text for text in texts(self.figure) if text in known)]


Part = TypeVar("Part", bound=Section)


def parse(model: type[Part], settings: Settings, place: str = "") -> Part:
    """A part of a grid's file, checked."""
    for name in settings:
        if name not in model.model_fields:
            raise SettingError(f"{name} is not known in {place or 'a grid'}{suggest_or_list(name, model.model_fields)}")
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        raise SettingError(sentence(error, place)) from error


def block_of(place: str, settings: Settings) -> Block:
    """A block, with axes that can be varied over."""
    block = parse(Block, settings, place)
    for path, values in {"preset": block.preset, **block.axes}.items():
        check_axis(place, path, values)
    for path in block.axes:
        if path in block.set:
            raise SettingError(f"{place} both sets and varies {path}")
    return block


def check_axis(place: str, path: str, values: Any) -> None:
    """Refuse what cannot be varied over."""
    if not isinstance(values, list):
        raise SettingError(f"{place} varies {path} over {values!r}, which is no list")
    if not values:
        raise SettingError(f"{place} varies {path} over nothing")
    for number, value in enumerate(values):
        if not isinstance(value, str | int | float):
            raise SettingError(f"{place} varies {path} over {value!r}, which is no number, text, true or false")
        if value in values[:number]:
            raise SettingError(f"{place} has {path} = {value!r} twice")


def texts(value: Any) -> Iterator[str]:
    """All texts in a value of TOML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from texts(entry)
