"""Things from plain settings, such as TOML, JSON and an NVFlare job hold: strictly, faults said in one sentence."""

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from snowball.defenses import DEFENSES, Defense
from snowball.errors import SettingError
from snowball.tables import hint, suggestion

Settings = dict[str, Any]
"""Settings as TOML and JSON know them."""

Table = Mapping[str, Callable[..., Any]]
"""Things that can be chosen by name, each with settings of its own."""

Fields = dict[str, tuple[Any, Any]]
"""Type and default of each setting; `...` where there is no default."""

PARTS = tuple[Defense, ...]
"""The type of a field that holds other defenses, each chosen by name."""

TOLD = "malicious"
"""The field of a defense that no setting fills: only the simulator knows who is malicious."""


class Section(BaseModel):
    """Settings that refuse what they do not know and convert nothing silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def defense_of(path: str, name: str, own: Settings) -> Defense:
    """A defense by its name in the table, from those of its settings that are not the default."""
    return assemble(name, complete(path, name, DEFENSES[name], own, DEFENSES))


def assemble(name: str, own: Settings, malicious: Collection[str] = ()) -> Defense:
    """A defense of all of its settings, and the defenses that it is made of; only Ideal is told who is malicious."""
    make = DEFENSES[name]
    settings = dict(own)
    for field, (kind, _) in own_fields(make).items():
        if kind == PARTS:
            settings[field] = tuple(assemble(part.pop("name"), part, malicious) for part in map(dict, own[field]))
    told = {TOLD: malicious} if TOLD in inspect.signature(make).parameters else {}
    defense: Defense = make(**settings, **told)
    return defense


def own_fields(chosen: Callable[..., Any]) -> Fields:
    """What can be set: all fields of a dataclass, the arguments of a function that have a default."""
    if not is_dataclass(chosen):
        parameters = inspect.signature(chosen).parameters.values()
        hints = get_type_hints(chosen)
        return {each.name: (hints[each.name], each.default) for each in parameters if each.default is not each.empty}
    hints = get_type_hints(chosen)
    return {field.name: (hints[field.name], default_of(field)) for field in fields(chosen) if field.name != TOLD}


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
            near = suggestion(name, [*expected, *siblings])
            raise SettingError(f"{path}.{name} is not a setting of {called}{near}")
    inner = {name: default for name, (kind, default) in expected.items() if is_dataclass(kind)}
    parts = {name: default for name, (kind, default) in expected.items() if kind == PARTS}
    flat = {name: field for name, field in expected.items() if name not in {**inner, **parts}}
    model = create_model(chosen.__name__, __base__=Section, **flat)  # type: ignore[call-overload]
    try:
        given = json.dumps({name: value for name, value in own.items() if name in flat}, default=str)
        values = model.model_validate_json(given)  # JSON, where a tuple is written as a list
    except ValidationError as error:
        raise SettingError(sentence(error, path)) from error
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
        raise SettingError(f"{path} = {name!r} is not known{hint(name, table)}")
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
