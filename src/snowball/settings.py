"""Things from plain settings, such as TOML, JSON and an NVFlare job hold: strictly, faults said in one sentence."""

import inspect
import json
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PydanticUserError,
    ValidationError,
    create_model,
    model_validator,
)

from snowball.errors import SettingError
from snowball.registry import suggest_name, suggest_or_list

Settings = dict[str, Any]
"""Settings as TOML and JSON know them."""

Table = Mapping[str, Callable[..., Any]]
"""Things that can be chosen by name, each with settings of its own."""

Fields = dict[str, tuple[Any, Any]]
"""Type and default of each setting; `...` where there is no default."""

TOLD = "malicious"
"""The field of a defense that no setting fills: only the simulator knows who is malicious."""


class Section(BaseModel):
    """Settings that refuse what they do not know and convert nothing silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def own_fields(chosen: Callable[..., Any]) -> Fields:
    """What can be set: all fields of a dataclass, the arguments of a function that have a default."""
    try:
        hints = get_type_hints(chosen)
        if is_dataclass(chosen):
            return {each.name: (hints[each.name], default_of(each)) for each in fields(chosen) if each.name != TOLD}
        parameters = inspect.signature(chosen).parameters.values()
        return {each.name: (hints[each.name], each.default) for each in parameters if each.default is not each.empty}
    except (KeyError, NameError, TypeError) as error:
        raise SettingError(f"{chosen.__module__}:{chosen.__name__} has a setting without a type: {error}") from error


def holds_parts(kind: Any) -> bool:
    """Whether a field of this type holds things that are chosen by name: it is a tuple of some protocol."""
    part, *more = get_args(kind) or (None,)
    return get_origin(kind) is tuple and more == [...] and getattr(part, "_is_protocol", False)


def default_of(field: Field[Any]) -> Any:
    """The default of a dataclass's field; `...` where there is none."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ... if field.default is MISSING else field.default


def complete(
    path: str, called: str, chosen: Callable[..., Any], own: Settings, table: Table, siblings: Iterable[str] = ()
) -> Settings:
    """The settings of what was chosen from a table, all of them and of the right types; `called` is its name there."""
    expected = own_fields(chosen)
    for name in own:
        if name not in expected:
            near = suggest_name(name, [*expected, *siblings])
            raise SettingError(f"{path}.{name} is not a setting of {called}{near}")
    inner = {name: default for name, (kind, default) in expected.items() if is_dataclass(kind)}
    parts = {name: default for name, (kind, default) in expected.items() if holds_parts(kind)}
    flat = {name: field for name, field in expected.items() if name not in {**inner, **parts}}
    try:
        model = create_model(chosen.__name__, __base__=Section, **flat)  # type: ignore[call-overload]
        given = json.dumps({name: value for name, value in own.items() if name in flat}, default=str)
        values = model.model_validate_json(given)  # JSON, where a tuple is written as a list
    except ValidationError as error:
        raise SettingError(sentence(error, path)) from error
    except PydanticUserError as error:  # e.g. a field of another library's type
        raise SettingError(
            f"{called} has a field that no setting can fill: {error.message.partition('. ')[0]}"
        ) from error
    grouped = {name: regroup(f"{path}.{name}", default, own.get(name, {})) for name, default in inner.items()}
    chosen_parts = {
        name: [complete_part(f"{path}.{name}", part, table) for part in as_list(own.get(name, default))]
        for name, default in parts.items()
    }
    return {name: getattr(values, name) for name in flat} | grouped | chosen_parts


def regroup(path: str, default: Any, own: Any) -> Any:
    """A group of settings inside a choice's own, e.g. `defense.vae`, with some of them changed."""
    if not isinstance(own, dict):
        raise SettingError(f"{path} = {own!r} is a group of settings, such as {path}.{fields(default)[0].name}")
    return type(default)(**complete(path, path, type(default), asdict(default) | own, {}))


def as_list(parts: Any) -> Sequence[Any]:
    """Parts as they are given; anything else is one that will be refused."""
    return parts if isinstance(parts, list | tuple) else [parts]


def complete_part(path: str, part: Any, table: Table) -> Settings:
    """One of several things chosen from the same table: its name, a section with its name, or the thing itself."""
    if type(part) in table.values():
        part = {"name": next(name for name, make in table.items() if make is type(part)), **asdict(part)}
    section = {"name": part} if isinstance(part, str) else part
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        raise SettingError(f"{path} is a list of names, or of sections that have a name, got {part!r}")
    name = require(path, section["name"], table)
    own = {setting: value for setting, value in section.items() if setting != "name"}
    return {"name": name, **complete(path, name, table[name], own, table)}


def require(path: str, name: str, table: Collection[str]) -> str:
    """Refuse a name that is not in the table."""
    if name not in table:
        raise SettingError(f"{path} = {name!r} is not known{suggest_or_list(name, table)}")
    return name


def sentence(error: ValidationError, section: str = "") -> str:
    """The first fault that pydantic found, in words."""
    faults = error.errors()
    depth = 1 if section else 2  # what follows in a place is a branch of a type, e.g. of int | str
    place = faults[0]["loc"][:depth]
    name = ".".join(map(str, (section, *place) if section else place))
    if faults[0]["type"] == "missing" and len(faults[0]["loc"]) <= depth:
        return f"{name} is missing"
    if faults[0]["type"] == "extra_forbidden":
        return f"{name} is not a setting"
    messages = (fault["msg"].removeprefix("Input ") for fault in faults if fault["loc"][:depth] == place)
    reasons = dict.fromkeys("lacks an entry" if message == "Field required" else message for message in messages)
    return f"{name} = {json.dumps(faults[0]['input'], default=str)} {' or '.join(reasons)}"


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
