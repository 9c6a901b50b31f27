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
