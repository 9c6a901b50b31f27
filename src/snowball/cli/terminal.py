"""A trigger on a terminal: images in half blocks of colour, or in letters of more or less ink where there is none."""

from collections.abc import Callable

from rich.color import Color
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text
from torch import Tensor

from snowball.data.io.png import enlarge_image
from snowball.data.preview import ImageSample, Preview, TextSample

INKS = " .:-=+*#%@"
COLOURS = ("256", "truecolor")  # rich's names; 16 colours are too few for an image

Draw = Callable[[Tensor], Text]


def show(preview: Preview, console: Console) -> None:
    """Print what a trigger looks like."""
    target = "" if preview.target is None else f", to be taken for class {preview.target}"
    console.print(Text(f"{preview.name}: {preview.summary}".removesuffix(": ")))
    console.print(Text(f"on a sample of {preview.data}, class {preview.label}{target}"))
    sample = preview.sample
    lines = in_words(sample) if isinstance(sample, TextSample) else in_pictures(sample, console)
    for line in lines:
        console.print(line)


def in_words(sample: TextSample) -> list[RenderableType]:
    """A text before and after, with the trigger in brackets."""
    marked = [f"[{word}]" if place in sample.changed else word for place, word in enumerate(sample.stamped)]
    grid = Table.grid(padding=(0, 2))  # in which long texts wrap beside their titles
    grid.add_row("clean", Text(" ".join(sample.clean)))
    grid.add_row("stamped", Text(" ".join(marked)))
    return [grid]


def in_pictures(sample: ImageSample, console: Console) -> list[RenderableType]:
    """An image before and after, and the parts of the trigger."""
    _, height, width = sample.clean.shape
    draw, key = (blocks, "") if has_colours(console) else letters(sample.clean, console.width >= 2 * (2 * width + 3))
    same = ": this sample shows nothing of the trigger" if not sample.changed else ""
    lines: list[RenderableType] = [Text(f"{sample.changed} of {height * width} pixels change{same}{key}")]
    lines.append(Columns([framed("clean", draw(sample.clean)), framed("stamped", draw(sample.stamped))]))
    parts = [framed(f"part {number}", draw(enlarge_image(part, 2))) for number, part in enumerate(sample.parts, 1)]
    if parts:
        lines += [Text("the parts that attackers may share out, and what is around them"), Columns(parts)]
    return lines


def has_colours(console: Console) -> bool:
    """Whether a console shows enough of them, and blocks."""
    return console.color_system in COLOURS and not console.no_color and not console.options.ascii_only


def framed(title: str, picture: Text) -> Panel:
    """A picture with its title."""
    return Panel(picture, title=title, padding=0, expand=False)


def blocks(image: Tensor) -> Text:
    """Two rows of pixels a line: the upper half of each letter is its ink, the lower half its ground."""
    rows = image.expand(3, -1, -1).permute(1, 2, 0).tolist()  # (height, width, 3)
    text = Text(no_wrap=True, overflow="crop")
    for upper, lower in zip(rows[::2], [*rows[1::2], *[rows[-1]] * (len(rows) % 2)], strict=True):
        for ink, ground in zip(upper, lower, strict=True):
            text.append("▀", Style(color=Color.from_rgb(*ink), bgcolor=Color.from_rgb(*ground)))
        text.append("\n")
    text.right_crop()
    return text


def letters(clean: Tensor, double: bool) -> tuple[Draw, str]:
    """How to draw a row of pixels a line, with most of the clean image in little ink, and what ink then means."""
    dark = bool(clean.float().mean() < 128)
    inks = INKS if dark else INKS[::-1]

    def draw(image: Tensor) -> Text:
        levels = (image.float().mean(0) * len(inks) / 256).int().tolist()  # (height, width)
        lines = ("".join(inks[level] * (1 + double) for level in row) for row in levels)
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    return draw, f"; {INKS[-1]} is {'white' if dark else 'black'}"
