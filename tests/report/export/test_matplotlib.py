import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.colors import to_hex
from sweeps_made import AXES, make_sweep

from snowball.errors import MissingExtra, RunError, SettingError
from snowball.report import write_exports
from snowball.report.export.matplotlib import DRAWERS, choose_looks, draw_figure, render_figure, write_static_figures
from snowball.report.figure_spec import KINDS
from snowball.report.figures import CODE_LABELS, Figure, Panel, Point, Series, build_figures
from snowball.report.palette import LOOKS as PALETTE
from snowball.report.sweeps import Sweep, read_sweeps


def points(*numbers: float | None) -> tuple[Point, ...]:
    return tuple(Point(x, y, None if y is None else y / 10) for x, y in enumerate(numbers, start=1))


def bars(**numbers: float) -> Panel:
    return Panel("", (Series("", tuple(Point(name, y, 0.01) for name, y in numbers.items())),))


def made(kind: str, **changes: Any) -> Figure:
    """A small figure of a kind."""
    panel = Panel("mnist", (Series("fedavg", points(0.5, None, 0.9)), Series("snowball", points(0.1, 0.2, 0.3))))
    panels = (bars(fedavg=0.1, snowball=0.5),) if kind == "bars" else (panel,)
    plain = Figure(kind, "A title", "across", "up", "what is measured", "%", panels)
    return replace(plain, **changes)


def sweep_of(folder: Path, **manifest: Any) -> Sweep:
    make_sweep(folder, **manifest)
    ((sweep,), _) = read_sweeps([folder])
    return sweep


def words(svg: bytes) -> list[str]:
    """The texts of a picture, which stand in comments beside their outlines."""
    return [text.strip() for text in re.findall(r"<!-- (.*?) -->", svg.decode())]


def test_every_kind_of_figure_has_its_drawer() -> None:
    assert set(DRAWERS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_the_same_bytes_each_time_and_says_what_it_shows(kind: str) -> None:
    svg = render_figure(made(kind))
    assert render_figure(made(kind)) == svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert b"<dc:date>" not in svg
    assert b"A title" in svg
    assert {"across", "up"} & set(words(svg))
    png = render_figure(made(kind), "png")
    assert png.startswith(b"\x89PNG")
    assert render_figure(made(kind), "png") == png


def test_another_process_draws_the_same_bytes_without_any_window(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]
from test_matplotlib import made, render_figure
from pathlib import Path
Path({str(tmp_path / "other.svg")!r}).write_bytes(render_figure(made("lines")))
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONHASHSEED": "77"})
    assert (tmp_path / "other.svg").read_bytes() == render_figure(made("lines"))


def test_the_users_own_taste_changes_nothing() -> None:
    plain = render_figure(made("curves"))
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "none"}):
        assert render_figure(made("curves")) == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_a_figure_that_differs_is_another_picture() -> None:
    assert render_figure(made("lines")) != render_figure(made("lines", panels=(bars(fedavg=0.2, snowball=0.5),)))


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_neither_formulas_nor_markup(kind: str) -> None:
    hostile = r"$\frac{$ <script>alert(1)</script> --> \x00" + "\x00\x1b\u2028\ud800 日本 ${}" + "x" * 500
    series = Series(hostile, (Point(hostile, 0.5), Point(f"{hostile}2", 0.2)))
    if kind in ("curves", "distances", "scatter"):
        series = Series(hostile, points(0.5, 0.2))
    panels = (Panel(hostile, (series, replace(series, name=f"other {hostile}"))),)
    figure = made(kind, title=hostile, x=hostile, y=hostile, value=hostile, panels=panels)
    root = ElementTree.fromstring(render_figure(figure))
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert render_figure(figure, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [0.0, 1e-300, 1e100])
def test_extreme_numbers_are_drawn(kind: str, number: float) -> None:
    panel = Panel("", (Series("a", points(number, number)), Series("b", points(1.0, number))))
    for unit in ("%", "s", "rounds") if number <= 1 else ("s", "rounds"):
        assert render_figure(made(kind, panels=(panel,), unit=unit))


def test_a_single_round_is_a_mark() -> None:
    (axes,) = draw_figure(made("curves", panels=(Panel("", (Series("a", points(0.5)),)),))).axes
    assert axes.lines[0].get_marker() != ""


def test_points_without_a_number_are_not_drawn() -> None:
    (axes,) = draw_figure(made("curves")).axes
    assert axes.lines[0].get_xdata().tolist() == [1, 3]
    assert axes.lines[1].get_ydata().tolist() == [0.1, 0.2, 0.3]


def test_cells_of_a_heat_map_stand_at_their_names() -> None:
    rows = (Series("32", (Point(1, 0.25), Point(2, 0.5))), Series("64", (Point(2, 0.75),)))
    axes, legend = draw_figure(made("heat", panels=(Panel("", rows),))).axes
    assert [label.get_text() for label in legend.get_yticklabels()][-1] == "100%"
    cells = {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts}
    assert cells == {(0, 0): "25.0", (1, 0): "50.0", (0, 1): "–", (1, 1): "75.0"}  # noqa: RUF001
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["32", "64"]
    assert axes.get_ylim() == (-0.5, 1.5)  # the lowest row below


def test_panels_of_different_bars_keep_their_own_names() -> None:
    panels = (bars(fedavg=0.1, krum=0.2), bars(krum=0.2, snowball=0.3))
    first, second = draw_figure(made("bars", panels=panels)).axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["fedavg", "krum"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["krum", "snowball"]


def test_logarithmic_bars_have_one_scale_in_all_panels() -> None:
    panels = (bars(fedavg=0.03, snowball=8.0), bars(fedavg=0.21, snowball=0.22))
    for axes in draw_figure(made("bars", panels=panels, unit="s", logarithmic=("y",))).axes:
        assert axes.get_xlim()[0] == pytest.approx(0.01)
        assert axes.get_xlim()[1] > 10


def test_bars_show_their_numbers() -> None:
    (axes,) = draw_figure(made("bars")).axes
    assert [text.get_text() for text in axes.texts] == ["10.0%", "50.0%"]
    assert [bar.get_width() for bar in axes.patches] == [0.1, 0.5]


def test_series_look_alike_in_all_panels_and_unlike_each_other() -> None:
    names = [f"defense {number}" for number in range(15)]
    panels = [Panel("", tuple(Series(name, points(0.5)) for name in order)) for order in (names, names[::-1])]
    looks = choose_looks(made("curves", panels=tuple(panels)))
    assert list(looks) == names
    assert len({(look["color"], look["linestyle"], look["marker"]) for look in looks.values()}) == 15
    many = made("curves", panels=(Panel("", tuple(Series(str(number), points(0.5)) for number in range(50))),))
    assert len(choose_looks(many)) == 50


def test_a_defense_looks_the_same_in_every_figure() -> None:
    """Whatever else is in the figure; the page takes its colours from the same palette."""
    alone = choose_looks(made("curves", panels=(Panel("", (Series("krum", points(0.5)),)),)))
    among = choose_looks(made("curves", panels=(Panel("", tuple(Series(name, points(0.5)) for name in PALETTE)),)))
    assert alone["krum"] == among["krum"]
    assert (among["snowball"]["color"], among["snowball"]["linestyle"]) == ("#009e73", "-")
    assert [name for name, look in among.items() if look["linestyle"] == "-"] == ["snowball"]
    figure = made("bars", panels=(bars(krum=0.1, snowball=0.5),), defenses=True)
    assert to_hex(draw_figure(figure).axes[0].patches[1].get_facecolor()) == "#009e73"


def test_a_line_between_settings_of_one_defense_keeps_its_colour() -> None:
    panel = Panel("", tuple(Series(f"krum, {share}", points(0.5)) for share in (0.1, 0.3)))
    first, second = choose_looks(made("lines", panels=(panel,))).values()
    assert first["color"] == second["color"]
    assert first["marker"] != second["marker"]


@pytest.mark.parametrize(("count", "inches"), [(1, 3.3), (2, 3.3), (3, 7.0), (4, 3.3), (7, 7.0)])
def test_matplotlib_are_as_wide_as_a_column_or_a_page(count: int, inches: float) -> None:
    drawing = draw_figure(made("curves", panels=made("curves").panels * count))
    assert drawing.get_size_inches()[0] == inches
    assert len(drawing.axes) == count


@pytest.mark.parametrize("kind", ["curves", "distances"])
def test_panels_side_by_side_show_the_same_rounds_and_numbers(kind: str) -> None:
    panels = (Panel("", (Series("a", points(0.5, 0.6)),)), Panel("", (Series("a", points(0.1, 0.2, 0.3)),)))
    first, second = draw_figure(made(kind, panels=panels)).axes
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())


def test_panels_that_share_an_axis_show_all_their_numbers() -> None:
    panels = (Panel("", (Series("a", points(0.5, 0.6)),)), Panel("", (Series("a", points(0.1, 0.9)),)))
    for axes in draw_figure(made("curves", panels=panels)).axes:
        low, high = axes.get_ylim()
        assert (low, high) == (pytest.approx(0.05, abs=0.1), pytest.approx(0.95, abs=0.1))
        assert low < 0.09
        assert high > 0.99


@pytest.mark.parametrize("kind", ["lines", "bars", "curves"])
@pytest.mark.parametrize("last", [2.5, 2000.0])
def test_logarithmic_axes_have_plain_figures(kind: str, last: float) -> None:
    panel = bars(fast=1.5, slow=last) if kind == "bars" else Panel("", (Series("a", points(1.5, last)),))
    texts = words(render_figure(made(kind, panels=(panel,), unit="s", logarithmic=("y",))))
    assert {"2"} <= set(texts) if last == 2.5 else {"10", "1000"} <= set(texts)
    assert not [text for text in texts if "$" in text]


def test_the_longest_words_for_codes_are_shown_whole() -> None:
    title = f"round 100, fashion-mnist, vae-updates: {max(CODE_LABELS.values(), key=len)}"
    (axes,) = draw_figure(made("scatter", panels=(Panel(title, made("scatter").panels[0].series),))).axes
    assert " ".join(axes.get_title().split()) == title


def test_long_titles_are_broken_between_words() -> None:
    panels = tuple(Panel("backdoor accuracy, mnist-sample", made("curves").panels[0].series) for _ in range(2))
    assert [axes.get_title() for axes in draw_figure(made("curves", panels=panels)).axes] == [
        "backdoor accuracy,\nmnist-sample"
    ] * 2


def test_a_picture_says_what_is_not_finished() -> None:
    assert "(7 of the runs are not finished)" in words(render_figure(made("lines", unfinished=7)))


def test_the_figures_of_sweeps_become_files(tmp_path: Path) -> None:
    sweeps = [
        sweep_of(tmp_path / "a", name="cpu/curves", figure={"kind": "curves"}),
        sweep_of(tmp_path / "b", name="cpu/plain"),
        sweep_of(tmp_path / "c", name="cpu/curves", figure={"kind": "bars"}),
    ]
    figures = build_figures(sweeps)
    files = write_static_figures(sweeps, figures, tmp_path / "new" / "pictures", "png")
    assert [file.name for file in files] == ["cpu-curves.png", "cpu-curves-2.png"]
    assert sorted(file.name for file in (tmp_path / "new" / "pictures").iterdir()) == sorted(f.name for f in files)
    assert files[0].read_bytes() != files[1].read_bytes()
    assert set(AXES["defense.name"]) <= set(words(write_static_figures(sweeps, figures, tmp_path)[0].read_bytes()))


def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    sweep = replace(sweep_of(tmp_path / "a", figure={"kind": "bars"}), name="../../etc/pass\x00wd")
    (file,) = write_static_figures([sweep], build_figures([sweep]), tmp_path / "pictures")
    assert file == tmp_path / "pictures" / "------etc-pass-wd.svg"
    assert file.is_file()


def test_a_picture_is_called_as_the_tables_of_its_sweep(tmp_path: Path) -> None:
    sweeps = [
        sweep_of(tmp_path / "a", name="x.y"),
        sweep_of(tmp_path / "b", name="x/y", figure={"kind": "bars"}),
        replace(sweep_of(tmp_path / "c", figure={"kind": "bars"}), name="long" * 100),
    ]
    files = write_static_figures(sweeps, build_figures(sweeps), tmp_path / "out")
    assert [file.stem for file in files] == ["x-y-2", "long" * 25]
    assert {file.stem for file in write_exports(sweeps, tmp_path / "out")} == {"x-y", *(file.stem for file in files)}


def test_one_figure_that_cannot_be_drawn_is_a_sentence_and_the_others_are_drawn(tmp_path: Path) -> None:
    sweeps = [
        sweep_of(tmp_path / "a", name="cpu/pie", figure={"kind": "pie"}),
        sweep_of(tmp_path / "b", name="cpu/bars", figure={"kind": "bars"}),
    ]
    faults: list[str] = []
    files = write_static_figures(sweeps, build_figures(sweeps, faults), tmp_path / "pictures")
    assert [file.name for file in files] == ["cpu-bars.svg"]
    assert len(faults) == 1
    assert faults[0].startswith("the figure of cpu/pie cannot be drawn: figure.kind is one of lines")


def test_bad_kinds_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="pictures are svg or png files, got 'gif'"):
        write_static_figures([], [], tmp_path, "gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file cannot be used: File exists"):
        write_static_figures([], [], tmp_path / "file")


def test_without_matplotlib_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "snowball.report.export.matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pictures need matplotlib: pip install 'matplotlib>=3\.9'"):
        import snowball.report.export.matplotlib  # noqa: F401


def test_nothing_but_pictures_needs_matplotlib() -> None:
    program = (
        "import sys, snowball.cli, snowball.report, snowball.report.figures; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
