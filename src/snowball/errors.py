"""Errors that a user can fix.

SnowballError           one sentence; the command line prints it and exits with 2
├── SettingError        a setting is misspelt, out of range, or contradicts another
├── UpdateError         client updates do not fit together
├── DataError           a data set is missing, incomplete or corrupt
├── RunError            a run's folder cannot be used as asked
└── MissingExtra        an optional dependency is not installed
"""

MAX_SENTENCE_CHARS = 1000
"""Longer sentences are cut in their middle: what is wrong comes first, and what to do last."""


class SnowballError(Exception):
    """A fault the user can fix, said in one sentence: on one line, printable, and at most `MAX_SENTENCE_CHARS` long.

    Files and clients choose parts of a sentence, and it ends up in terminals, logs, audits and reports.
    """

    def __init__(self, sentence: object = "") -> None:
        super().__init__(bound_sentence(str(sentence)))


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


def bound_sentence(text: str) -> str:
    """Return a text on one line, without control characters and at most `MAX_SENTENCE_CHARS` long."""
    return cut_middle(escape_characters(cut_middle(text)))


def escape_characters(text: str) -> str:
    """Replace control, invisible and broken characters by their escapes, such as \\x1b."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def cut_middle(text: str) -> str:
    """Return a text with its middle replaced by an ellipsis if it is longer than `MAX_SENTENCE_CHARS`."""
    half = MAX_SENTENCE_CHARS // 2
    return text if len(text) <= MAX_SENTENCE_CHARS else f"{text[: half - 1]}…{text[-half:]}"


def describe_error(error: Exception) -> str:
    """Return the kind of an error and the first line of what it says."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
