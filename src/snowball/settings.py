"""Strict parsing of plain settings, as they come from TOML, JSON or an NVFlare job. Every error is one sentence."""

import inspect
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from functools import lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
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
"""Plain settings, as TOML or JSON holds them."""

Table = Mapping[str, Callable[..., Any]]
"""Classes or functions that a setting chooses from by name; each has its own settings."""

Fields = dict[str, tuple[Any, Any]]
"""Type and default of each setting; `...` if it has no default."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""The integers that TOML promises to hold."""

MAX_TOML_BYTES = 1 << 22
"""Largest TOML file that is read: room for the names of a hundred thousand sites."""

MAX_KEY_PARTS = 16
"""Most parts of a dotted key such as `defense.vae.epochs`: the parser's time grows with their square."""

LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}""")
"""More than `MAX_KEY_PARTS` words joined by dots; it is searched for in linear time."""

MALICIOUS_FIELD = "malicious"
"""The field of a defense that only the simulator can fill, since only it knows who is malicious."""


class Section(BaseModel):
    """Settings that refuse unknown names and convert nothing silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def collect_fields(chosen: Callable[..., Any]) -> Fields:
    """Return the settings of a choice: the fields of a dataclass, or a function's parameters that have a default."""
    try:
        hints = get_type_hints(chosen)
        if is_dataclass(chosen):
            return {
                each.name: (hints[each.name], get_default(each))
                for each in fields(chosen)
                if each.name != MALICIOUS_FIELD
            }
        parameters = inspect.signature(chosen).parameters.values()
        return {each.name: (hints[each.name], each.default) for each in parameters if each.default is not each.empty}
    except (KeyError, NameError, TypeError) as error:
        raise SettingError(f"{chosen.__module__}:{chosen.__name__} has a setting without a type: {error}") from error


def holds_parts(kind: Any) -> bool:
    """Return whether a field of this type holds further choices: it is a tuple of a protocol."""
    part, *more = get_args(kind) or (None,)
    return get_origin(kind) is tuple and more == [...] and getattr(part, "_is_protocol", False)


def get_default(field: Field[Any]) -> Any:
    """Return the default of a dataclass's field, or `...`."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ... if field.default is MISSING else field.default


def complete_settings(
    path: str, called: str, chosen: Callable[..., Any], own: Settings, table: Table, siblings: Iterable[str] = ()
) -> Settings:
    """Check a choice's own settings and add the defaults; `called` is the choice's name in messages."""
    expected = collect_fields(chosen)
    for name in own:
        if name not in expected:
            near = suggest_name(name, [*expected, *siblings])
            raise SettingError(f"{path}.{name} is not a setting of {called}{near}")
    inner = {name: default for name, (kind, default) in expected.items() if is_dataclass(kind)}
    parts = {name: default for name, (kind, default) in expected.items() if holds_parts(kind)}
    try:
        model = build_section(chosen)
        given = json.dumps({name: value for name, value in own.items() if name in model.model_fields}, default=str)
        values = model.model_validate_json(given)  # in JSON a tuple is a list
    except ValidationError as error:
        raise SettingError(describe_fault(error, path)) from error
    except PydanticUserError as error:  # e.g. a field of another library's type
        raise SettingError(
            f"{called} has a field that no setting can fill: {error.message.partition('. ')[0]}"
        ) from error
    grouped = {name: complete_group(f"{path}.{name}", default, own.get(name, {})) for name, default in inner.items()}
    chosen_parts = {
        name: [complete_part(f"{path}.{name}", part, table) for part in ensure_list(own.get(name, default))]
        for name, default in parts.items()
    }
    return {name: getattr(values, name) for name in model.model_fields} | grouped | chosen_parts


@lru_cache(maxsize=256)
def build_section(chosen: Callable[..., Any]) -> type[Section]:
    """Build the model that checks a choice's settings, except groups and parts; this takes far longer than a check."""
    plain = {
        name: field
        for name, field in collect_fields(chosen).items()
        if not is_dataclass(field[0]) and not holds_parts(field[0])
    }
    section: type[Section] = create_model(chosen.__name__, __base__=Section, **plain)  # type: ignore[call-overload]
    return section


def complete_group(path: str, default: Any, own: Any) -> Any:
    """Complete a group inside a choice's settings, e.g. `defense.vae`."""
    if not isinstance(own, dict):
        raise SettingError(f"{path} = {own!r} is a group of settings, such as {path}.{fields(default)[0].name}")
    return type(default)(**complete_settings(path, path, type(default), asdict(default) | own, {}))


def ensure_list(parts: Any) -> Sequence[Any]:
    """Return a list or tuple as it is; wrap anything else in a list, whose content is checked later."""
    return parts if isinstance(parts, list | tuple) else [parts]


def complete_part(path: str, part: Any, table: Table) -> Settings:
    """Complete one of several choices from one table: its name, a section with its name, or an instance."""
    if type(part) in table.values():
        part = {"name": next(name for name, make in table.items() if make is type(part)), **asdict(part)}
    section = {"name": part} if isinstance(part, str) else part
    if not isinstance(section, dict) or not isinstance(section.get("name"), str):
        raise SettingError(f"{path} must be a list of names, or of sections with a name, got {part!r}")
    name = require_known(path, section["name"], table)
    own = {setting: value for setting, value in section.items() if setting != "name"}
    return {"name": name, **complete_settings(path, name, table[name], own, table)}


def require_known(path: str, name: str, table: Collection[str]) -> str:
    """Return the name if the table has it; else raise a `SettingError`."""
    if name not in table:
        raise SettingError(f"{path} = {name!r} is not known{suggest_or_list(name, table)}")
    return name


def describe_fault(error: ValidationError, section: str = "") -> str:
    """Describe the first fault that pydantic found."""
    faults = error.errors()
    depth = 1 if section else 2  # deeper levels are branches of a type, e.g. of int | str
    path = faults[0]["loc"][:depth]
    name = ".".join(map(str, (section, *path) if section else path))
    if faults[0]["type"] == "missing" and len(faults[0]["loc"]) <= depth:
        return f"{name} is missing"
    if faults[0]["type"] == "extra_forbidden":
        return f"{name} is not a setting"
    messages = (fault["msg"].removeprefix("Input ") for fault in faults if fault["loc"][:depth] == path)
    reasons = dict.fromkeys("lacks an entry" if message == "Field required" else message for message in messages)
    return f"{name} = {json.dumps(faults[0]['input'], default=str)} {' or '.join(reasons)}"


class Choice(Section, extra="allow"):
    """A section in which one setting chooses from a table; the other settings belong to the choice."""

    chooser: ClassVar[str]  # e.g. "defense.name"
    table: ClassVar[Table]

    @model_validator(mode="before")
    @classmethod
    def resolve(cls, values: Any) -> Any:
        """Check the choice's own settings, and fill in defaults."""
        section, key = cls.chooser.split(".")
        name = values.get(key, cls.model_fields[key].default) if isinstance(values, dict) else None
        if not isinstance(name, str):
            return values  # pydantic describes this fault well
        chosen = cls.table[require_known(cls.chooser, name, cls.table)]
        own = {setting: value for setting, value in values.items() if setting not in cls.model_fields}
        return values | complete_settings(section, name, chosen, own, cls.table, cls.model_fields)

    @property
    def own(self) -> Settings:
        """The choice's own settings."""
        return dict(self.__pydantic_extra__ or {})


def make_known_validator(path: str, table: Collection[str]) -> AfterValidator:
    """Make a pydantic validator for a setting that must be a name in a table."""
    return AfterValidator(lambda name: require_known(path, name, table))


def apply_assignments(settings: Settings, assignments: Iterable[str], choices: Mapping[str, type[Choice]]) -> Settings:
    """Apply assignments such as `defense.name=fedavg` to settings."""
    return apply_changes(settings, map(parse_assignment, assignments), choices)


def apply_changes(
    settings: Settings, changes: Iterable[tuple[str, Any]], choices: Mapping[str, type[Choice]]
) -> Settings:
    """Apply changes to settings, each a path such as `defense.name` and a value.

    A new choice drops the settings of the former one that it does not have.
    """
    result: Settings = json.loads(json.dumps(settings, default=str))
    for path, value in changes:
        *sections, key = path.split(".")
        target = result
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise SettingError(f"{path} cannot be set: {section} is a setting, not a section")
        if path in choices:
            former = target.get(key, choices[path].model_fields[key].default)
            drop_former(target, choices[path].table, former, value)
        target[key] = value
    return result


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> Settings:
    """Return nested settings by their full paths, e.g. `defense.name`."""
    result: Settings = {}
    for name, value in settings.items():
        result |= (
            flatten_settings(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return result


def parse_assignment(assignment: str) -> tuple[str, Any]:
    """Parse `a.b=c` into its path and value; a value that is not TOML is a string."""
    path, equals, text = assignment.partition("=")
    if not (equals and all(part.strip() for part in path.split("."))):
        raise SettingError(f"expected a setting as a.b=c, got {assignment!r}")
    try:
        values = tomllib.loads(f"value = {text}")
    except ValueError:  # not TOML, or a number of thousands of digits
        return path.strip(), text.strip()
    refuse_huge_integers(values, path.strip())
    return path.strip(), values["value"] if len(values) == 1 else text


def is_file(file: Path | Traversable) -> bool:
    """Return whether there is a file; the system may refuse the name, such as one of thousands of characters."""
    try:
        return file.is_file()
    except OSError:
        return False


def read_toml_text(file: Path | Traversable, source: str | Path) -> str:
    """Read the text of a TOML file; `source` names it in errors."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_TOML_BYTES + 1)
    except (OSError, ValueError) as error:  # a path may hold a null character
        raise SettingError(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MAX_TOML_BYTES:
        raise SettingError(f"{source} is not a TOML file of settings: it is larger than {MAX_TOML_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")  # some editors write a byte order mark
    except ValueError as error:
        raise SettingError(f"{source} is not a TOML file: {error}") from error


def parse_toml(text: str, source: str | Path) -> Settings:
    """Parse the text of a TOML file; refuse integers, keys and nesting beyond what any setting needs."""
    if found := LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise SettingError(f"{source} has a key of more than {MAX_KEY_PARTS} parts in line {line}")
    try:
        settings = tomllib.loads(text)
        refuse_huge_integers(settings, str(source))
    except ValueError as error:  # not TOML, or a decimal number of thousands of digits
        raise SettingError(f"{source} is not a TOML file: {error}") from error
    except RecursionError as error:
        raise SettingError(f"{source} is not a TOML file of settings: it is nested too deeply") from error
    return settings


def refuse_huge_integers(values: Any, where: str) -> None:
    """Refuse integers outside of 64 bits, at any depth: no setting needs them, and some cannot even be printed."""
    if isinstance(values, int) and not MIN_INTEGER <= values <= MAX_INTEGER:
        raise SettingError(f"{where} holds an integer of {values.bit_length()} bits; the most is 63")
    for entry in values.values() if isinstance(values, dict) else values if isinstance(values, list) else ():
        refuse_huge_integers(entry, where)


def drop_former(section: Settings, table: Table, former: Any, chosen: Any) -> None:
    """Drop the settings of the former choice that the new one does not have."""
    if all(isinstance(name, str) and name in table for name in (former, chosen)):
        for setting in set(collect_fields(table[former])) - set(collect_fields(table[chosen])):
            section.pop(setting, None)
