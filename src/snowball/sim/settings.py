"""Sections of settings in which something is chosen by name, and changes over them."""

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from pydantic import AfterValidator, model_validator

from snowball.defenses.settings import Section, Settings, Table, complete, own_fields, require
from snowball.errors import SettingError


class Choice(Section, extra="allow"):
    """A section in which one setting chooses from a table, and further settings belong to what it chooses."""

    chooser: ClassVar[str]  # e.g. "defense.name"
    table: ClassVar[Table]

    @model_validator(mode="before")
    @classmethod
    def resolve(cls, values: Any) -> Any:
        """Check the settings of what was chosen, and fill in those that are not given."""
        section, key = cls.chooser.split(".")
        name = values.get(key, cls.model_fields[key].default) if isinstance(values, dict) else None
        if not isinstance(name, str):
            return values  # a fault that pydantic words well
        chosen = cls.table[require(cls.chooser, name, cls.table)]
        own = {setting: value for setting, value in values.items() if setting not in cls.model_fields}
        return values | complete(section, name, chosen, own, cls.table, cls.model_fields)

    @property
    def own(self) -> Settings:
        """The settings of what was chosen."""
        return dict(self.__pydantic_extra__ or {})


def known(path: str, table: Collection[str]) -> AfterValidator:
    """The check of a setting that names something."""
    return AfterValidator(lambda name: require(path, name, table))


def override(settings: Settings, assignments: Iterable[str], choices: Mapping[str, type[Choice]]) -> Settings:
    """Settings with assignments such as `defense.name=fedavg` over them."""
    return layer(settings, map(parse_assignment, assignments), choices)


def layer(settings: Settings, changes: Iterable[tuple[str, Any]], choices: Mapping[str, type[Choice]]) -> Settings:
    """Settings with changes over them, each a path such as `defense.name` and a value.

    A changed choice drops what belonged to the former one and is unknown to the new.
    """
    result: Settings = json.loads(json.dumps(settings, default=str))
    for path, value in changes:
        *sections, key = path.split(".")
        place = result
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise SettingError(f"{path} cannot be set: {section} is a setting, not a section")
        if path in choices:
            former = place.get(key, choices[path].model_fields[key].default)
            drop_former(place, choices[path].table, former, value)
        place[key] = value
    return result


def flat(settings: Mapping[str, Any], prefix: str = "") -> Settings:
    """Settings by their whole paths, e.g. `defense.name`."""
    result: Settings = {}
    for name, value in settings.items():
        result |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return result


def parse_assignment(assignment: str) -> tuple[str, Any]:
    """The path and the value of `a.b=c`; c is a TOML value, or else a string."""
    path, equals, text = assignment.partition("=")
    if not (equals and all(part.strip() for part in path.split("."))):
        raise SettingError(f"a setting is given as a.b=c, got {assignment!r}")
    try:
        values = tomllib.loads(f"value = {text}")
    except ValueError:  # no TOML, or a number of thousands of digits
        return path.strip(), text.strip()
    return path.strip(), values["value"] if len(values) == 1 else text


def drop_former(place: Settings, table: Table, former: Any, chosen: Any) -> None:
    """Forget the settings of the former choice that the new one does not have."""
    if all(isinstance(name, str) and name in table for name in (former, chosen)):
        for setting in set(own_fields(table[former])) - set(own_fields(table[chosen])):
            place.pop(setting, None)
