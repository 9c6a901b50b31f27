"""Errors that a user can fix.

SnowballError           one sentence; the command line prints it and exits with 2
├── SettingError        a setting is misspelt, out of range, or contradicts another
├── UpdateError         client updates do not fit together
├── DataError           a data set is missing, incomplete or corrupt
├── RunError            a run's folder cannot be used as asked
└── MissingExtra        an optional dependency is not installed
"""


class SnowballError(Exception):
    """A fault the user can fix, said in one sentence."""


class SettingError(SnowballError):
    """A setting is misspelt, out of range, or contradicts another."""


class UpdateError(SnowballError):
    """Client updates do not fit together."""


class DataError(SnowballError):
    """A data set is missing, incomplete or corrupt."""


class RunError(SnowballError):
    """A run's folder cannot be used as asked."""


class MissingExtra(SnowballError):  # noqa: N818
    """An optional dependency is not installed."""


def describe_error(error: Exception) -> str:
    """Return the kind of an error and the first line of what it says."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
