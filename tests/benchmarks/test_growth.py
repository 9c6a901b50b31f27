"""The benchmark of growth: its points, the exponents of its series, and its figure."""

from xml.etree import ElementTree

import pytest

import growth
import growth_figure

CASES = [
    {"name": f"{series} {size}{part}", "size": size, "seconds": size**exponent / 1e4}
    for series, part, exponent in (("clients", " train", 1), ("clients", " defense", 2), ("parameters", "", 0.5))
    for size in (10, 100, 1000)
]


def test_the_exponent_of_a_power_is_found() -> None:
    measured = growth.exponents(CASES)
    assert measured == pytest.approx({"clients train": 1, "clients defense": 2, "parameters": 0.5})


def test_a_point_is_measured() -> None:
    (case,) = growth.parameters(1000)
    assert (case["name"], case["size"]) == ("parameters 1000", 1000)
    assert case["seconds"] > 0


def test_a_figure_has_every_point_and_the_exponents() -> None:
    lines = {"seconds": growth_figure.series(CASES, "clients {} defense")}
    drawn = ElementTree.fromstring(f"<svg>{growth_figure.panel('clients', lines, 0)}</svg>")
    places = [(float(point.get("cx", 0)), float(point.get("cy", 0))) for point in drawn.iter("circle")]
    assert len(places) == 3
    assert places == sorted(places, key=lambda place: (place[0], -place[1]))
    assert "exponent 2.00" in "".join(drawn.itertext())
