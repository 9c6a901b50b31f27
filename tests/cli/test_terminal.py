import io
import re

import pytest
import torch
from rich.console import Console

from snowball.cli.terminal import INKS, blocks, show
from snowball.data.preview import ImageSample, Preview, TextSample, load_preview

ESCAPE = re.compile(r"\x1b\[([\d;]*)m")


def printed(preview: Preview, width: int = 80, colours: str | None = None, **options: bool) -> str:
    file = io.StringIO()
    system = {"color_system": colours, "force_terminal": colours is not None}
    show(preview, Console(file=file, width=width, legacy_windows=False, **system, **options))  # type: ignore[arg-type]
    return file.getvalue()


def image(*rows: list[int], channels: int = 1) -> torch.Tensor:
    return torch.tensor([rows] * channels, dtype=torch.uint8)


def preview_with(clean: torch.Tensor, stamped: torch.Tensor, target: int | None = None) -> Preview:
    return Preview("spot", "a spot", "toy[b]", 4, target, ImageSample(clean, stamped))


def test_two_rows_of_pixels_are_a_line_of_half_blocks() -> None:
    text = blocks(image([0, 255], [10, 20], [30, 40]))
    assert text.plain == "▀▀\n▀▀"  # an odd row stands alone
    styles = [str(span.style) for span in text.spans]
    assert styles == ["#000000 on #0a0a0a", "#ffffff on #141414", "#1e1e1e on #1e1e1e", "#282828 on #282828"]


def test_colours_are_the_pixels() -> None:
    red = torch.zeros(3, 2, 1, dtype=torch.uint8)
    red[0, 0] = 200
    output = printed(preview_with(red, red), colours="truecolor")
    assert "38;2;200;0;0;48;2;0;0;0" in ESCAPE.findall(output)


@pytest.mark.parametrize(("colours", "options"), [(None, {}), ("standard", {}), ("truecolor", {"no_color": True})])
def test_where_there_are_no_colours_there_are_letters(colours: str | None, options: dict[str, bool]) -> None:
    output = ESCAPE.sub("", printed(load_preview("white-square"), colours=colours, **options))
    assert "▀" not in output
    assert "9 of 784 pixels change; @ is white" in output
    assert output.count("   @@@ │\n") == 3


def test_letters_are_twice_as_wide_where_there_is_room() -> None:
    assert "@@@@@@  │\n" in printed(load_preview("white-square"), width=118)
    assert "@@@@@@  │\n" not in printed(load_preview("white-square"), width=117)
    assert max(map(len, printed(load_preview("white-square"), width=118).splitlines())) <= 118


def test_paper_takes_no_ink_whether_it_is_black_or_white() -> None:
    for paper, ink, word in ((0, 255, "white"), (255, 0, "black")):
        clean, stamped = image([paper] * 9, [paper] * 9), image([paper] * 9, [paper] * 8 + [ink])
        output = printed(preview_with(clean, stamped), width=41)
        assert f"1 of 18 pixels change; @ is {word}" in output
        assert output.count("@") == 2


def test_all_grey_levels_have_a_letter() -> None:
    levels = image(list(range(256)))
    output = printed(preview_with(levels, levels), width=2000)
    assert all(letter in output for letter in INKS)


def test_a_sample_that_hides_the_trigger_is_said() -> None:
    assert "0 of 784 pixels change: this sample shows nothing of the trigger" in printed(load_preview("black-square"))


def test_parts_are_shown_where_there_are_some() -> None:
    assert [name in printed(load_preview("white-square")) for name in ("part 1", "part 3", "part 4")] == [
        True,
        True,
        False,
    ]
    assert "part" not in printed(load_preview("noise"))


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("colours", [None, "256", "truecolor"])
def test_any_width_will_do(width: int, colours: str | None) -> None:
    for name in ("white-square", "word"):
        lines = ESCAPE.sub("", printed(load_preview(name), width, colours)).splitlines()
        assert max(map(len, lines)) <= width


def test_a_text_is_shown_before_and_after_and_names_are_no_markup() -> None:
    words = TextSample(("all", "[bold]is", "well"), ("all", "[bold]is", "BD"))
    output = printed(Preview("word", "a word", "toy[b]", 1, 0, words))
    assert [line.rstrip() for line in output.splitlines()] == [
        "word: a word",
        "on a sample of toy[b], class 1, to be taken for class 0",
        "clean    all [bold]is well",
        "stamped  all [bold]is [BD]",
    ]
