"""The command `show trigger`: describes a trigger, and writes its images to a file."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import app

if TYPE_CHECKING:
    from snowball.data.preview import ImageSample, Preview, TextSample

PNG_PIXELS = 8
"""Width and height in the PNG file of one pixel of a sample."""

show_app = typer.Typer(help="Show a trigger.", no_args_is_help=True)
app.add_typer(show_app, name="show")


@show_app.command("trigger")
def show_trigger(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A trigger (see `snowball list triggers`).")],
    data: Annotated[str | None, typer.Option(help="Data set of the sample (default: a shipped one).")] = None,
    target: Annotated[int, typer.Option(min=0, help="Class that the attackers want; the sample is of another.")] = 1,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Image file (default: trigger-NAME.png).")] = None,
) -> None:
    """Show a sample with and without a trigger.

    A text is printed; an image is written to a PNG file.
    """
    from snowball.data.preview import TextSample, load_preview, render_sheet
    from snowball.records.files import write_bytes

    preview = load_preview(name, data, target)
    is_text = isinstance(preview.sample, TextSample)
    sheet = render_sheet(preview, PNG_PIXELS) if png or not is_text else b""  # refuses --png with a text
    typer.echo("\n".join(describe_preview(preview)))
    if sheet:
        file = png or Path(re.sub(r"[^\w@,.-]", "_", f"trigger-{name}.png"))
        write_bytes(file, sheet)
        typer.echo(f"The images without and with the trigger are in {file}.")


def describe_preview(preview: "Preview") -> Iterator[str]:
    """Describe a trigger and what it changes, in lines."""
    from snowball.data.preview import TextSample

    yield f"{preview.name}: {preview.summary}".removesuffix(": ")
    yield f"on a sample of {preview.data}: true class {preview.label}, attackers' target class {preview.target}"
    sample = preview.sample
    yield from describe_text(sample) if isinstance(sample, TextSample) else describe_image(sample)


def describe_text(sample: "TextSample") -> Iterator[str]:
    """Spell a text without and with the trigger, which is in brackets."""
    marked = [f"[{word}]" if index in sample.changed else word for index, word in enumerate(sample.stamped)]
    yield f"clean    {' '.join(sample.clean)}"
    yield f"stamped  {' '.join(marked)}"


def describe_image(sample: "ImageSample") -> Iterator[str]:
    """Say how many pixels of an image change, and where."""
    _, height, width = sample.clean.shape
    changed = (sample.clean != sample.stamped).any(0)  # (height, width)
    rows, columns = (changed.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    bounds = f", in rows {rows[0]} to {rows[-1]} and columns {columns[0]} to {columns[-1]}" if rows else ""
    yield f"{sample.changed} of {height}x{width} pixels change{bounds or ': no sample shows the trigger'}"
    if sample.parts:
        yield f"attackers may share out its {len(sample.parts)} parts"
