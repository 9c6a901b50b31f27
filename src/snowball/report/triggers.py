"""Images and texts of the attackers' triggers, from the runs' records; nothing in a record is trusted."""

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from snowball.records.run import RunFolder
from snowball.report.data import Fact
from snowball.report.prose import join_names
from snowball.report.runs import ABSENT, group_distinct

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_PICTURE_CHARS, MAX_PICTURE_PIXELS = 1 << 18, 256
"""The most characters of a picture, and pixels of its width or height: a small file may unpack to a huge picture."""

PICTURE_PIXELS, PART_PIXELS = 160, 96
"""The most pixels that a picture, and a part of one, are enlarged to: two fit side by side on a phone."""

MAX_ENTRIES = 50
"""The most parts of a trigger, and words of a text, that are shown."""


@dataclass(frozen=True)
class Picture:
    """An image of the page: a data URL and its size in pixels."""

    title: str
    address: str
    width: int
    height: int


@dataclass(frozen=True)
class Quote:
    """A text of the page: pairs of a word and whether it belongs to the trigger."""

    title: str
    words: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class TriggerFigure:
    """One trigger on one sample: pictures, with parts if it has any, or texts."""

    name: str
    caption: str
    runs: Fact
    pictures: tuple[Picture, ...] = ()
    parts: tuple[Picture, ...] = ()
    texts: tuple[Quote, ...] = ()


def build_trigger_figures(folders: Sequence[RunFolder]) -> list[TriggerFigure]:
    """Build one figure per distinct trigger that the runs record."""
    triggers = group_distinct(folders, lambda run: run.get("trigger"))
    shown = (_build_figure(record, runs) for record, runs in triggers if isinstance(record, dict))
    return [figure for figure in shown if figure.pictures or figure.texts]


def _build_figure(record: dict[str, Any], runs: list[str]) -> TriggerFigure:
    image, text = _read_object(record.get("picture")), _read_object(record.get("text"))
    pictures = _build_pictures([("clean", image.get("clean")), ("stamped", image.get("stamped"))], PICTURE_PIXELS)
    parts = [(f"part {number}", part) for number, part in enumerate(_read_list(image.get("parts")), 1)]
    return TriggerFigure(
        name=_read_text(record.get("name")),
        caption=_write_caption(record, image),
        runs=Fact(join_names(runs), ", ".join(runs)),
        pictures=pictures if len(pictures) == 2 else (),
        parts=_build_pictures(parts, PART_PIXELS),
        texts=_build_quotes(text) if _read_list(text.get("stamped")) else (),
    )


def _build_pictures(entries: Iterable[tuple[str, Any]], room: int) -> tuple[Picture, ...]:
    made = (build_picture(title, content, room) for title, content in entries)
    return tuple(each for each in made if each)


def build_picture(title: str, content: Any, room: int) -> Picture | None:
    """Turn a base64 PNG into an image enlarged by a whole number; None if it is not a PNG of an allowed size."""
    if not isinstance(content, str) or len(content) > MAX_PICTURE_CHARS:
        return None
    try:
        file = base64.b64decode(content, validate=True)
        width, height = struct.unpack(">II", file[16:24])  # from the header, which comes first
    except (ValueError, struct.error):
        return None
    if not file.startswith(SIGNATURE) or not (0 < width <= MAX_PICTURE_PIXELS and 0 < height <= MAX_PICTURE_PIXELS):
        return None
    times = max(1, room // max(width, height))
    address = f"data:image/png;base64,{base64.b64encode(file).decode()}"
    return Picture(title, address, times * width, times * height)


def _build_quotes(text: dict[str, Any]) -> tuple[Quote, ...]:
    clean, stamped, changed = (_read_list(text.get(name)) for name in ("clean", "stamped", "changed"))
    return (
        Quote("clean", tuple((_read_text(word), False) for word in clean)),
        Quote("stamped", tuple((_read_text(word), index in changed) for index, word in enumerate(stamped))),
    )


def _write_caption(record: dict[str, Any], image: dict[str, Any]) -> str:
    summary = _read_text(record.get("summary") or "")
    label, target, changed = (
        _format_integer(each) for each in (record.get("label"), record.get("target"), image.get("changed"))
    )
    return "".join(
        (
            summary and f"{summary[0].upper()}{summary[1:]}. ",
            f"A sample of {_read_text(record.get('data'))}",
            label and f", class {label}",
            target and f", which the attackers want to be taken for class {target}",
            changed and f"; {changed} of its pixels change",
            "; attackers may share out its parts." if _read_list(image.get("parts")) else ".",
        )
    )


def _format_integer(value: Any) -> str:
    return f"{value}" if isinstance(value, int) and not isinstance(value, bool) else ""


def _read_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_list(value: Any) -> list[Any]:
    return value[:MAX_ENTRIES] if isinstance(value, list) else []


def _read_text(value: Any) -> str:
    return value if isinstance(value, str) else ABSENT
