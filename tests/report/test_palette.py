"""Every defense has one look on all pages and figures, and it can be seen."""

from itertools import combinations

import pytest

from snowball.defenses import BUILT_IN
from snowball.report.palette import BENIGN, INFECTED, LOOKS, OTHER_DASH, TONES, choose_look, write_palette_css


def contrast(one: str, other: str) -> float:
    """The ratio of luminance of two colours, as WCAG defines it."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_defense_of_the_package_has_its_own_look() -> None:
    assert set(LOOKS) == set(BUILT_IN)
    assert len(set(LOOKS.values())) == len(LOOKS)


def test_only_snowball_is_green_and_solid() -> None:
    assert [name for name, look in LOOKS.items() if look.tone == "green" or look.dash == "solid"] == ["snowball"]


def test_no_defense_has_the_colour_of_infected_or_benign_updates() -> None:
    assert not {BENIGN, INFECTED} & {look.tone for look in LOOKS.values()}


@pytest.mark.parametrize("tone", [look.tone for look in LOOKS.values()] + [INFECTED, BENIGN])
def test_lines_stand_out_from_light_and_dark_paper(tone: str) -> None:
    light, dark = TONES[tone]
    assert contrast(light, "#ffffff") >= 3
    assert contrast(dark, "#1b1e23") >= 3


def test_tones_differ() -> None:
    used = {look.tone for look in LOOKS.values()} | {INFECTED, BENIGN}
    for one, other in combinations(used, 2):
        pairs = zip(bytes.fromhex(TONES[one][0][1:]), bytes.fromhex(TONES[other][0][1:]), strict=True)
        assert sum(abs(part - own) for part, own in pairs) >= 60, (one, other)


def test_a_defense_from_elsewhere_has_a_colour_by_its_name_alone() -> None:
    looks = {name: choose_look(name) for name in ("package:Mine", "other", "\udcff", "")}
    assert looks == {name: choose_look(name) for name in looks}
    assert {look.dash for look in looks.values()} == {OTHER_DASH}
    assert not set(looks.values()) & set(LOOKS.values())


def test_a_name_with_other_settings_keeps_the_colour_of_its_defense() -> None:
    assert choose_look("krum, 0.3") == LOOKS["krum"]
    assert choose_look("snowball-like") != LOOKS["snowball"]


def test_the_page_gets_every_tone_for_both_themes() -> None:
    style = write_palette_css()
    for name, (light, dark) in TONES.items():
        assert style.count(f"--{name}:") == 2
        assert style.index(f"--{name}:{light};") < style.index(f"--{name}:{dark};", style.index("dark"))
