"""Checks of single values that a file holds; `snowball.records.files.conform` applies them to whole objects."""

import sys
from collections.abc import Callable
from typing import Any


def is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_between(value: Any, highest: float) -> bool:
    """Whether it is a number from zero to `highest`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= highest


def is_fraction(value: Any) -> bool:
    """Whether it is a number from zero to one, or None."""
    return value is None or is_between(value, 1)


def is_text(value: Any) -> bool:
    """Whether it is a string."""
    return isinstance(value, str)


def make_list_check(kind: type) -> Callable[[Any], bool]:
    """Return the check of a list whose entries are all of one type."""
    return lambda value: isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def make_dict_check(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of an object whose values all pass a check."""
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def make_optional_check(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of a value that may be None."""
    return lambda value: value is None or fits(value)
