"""The benchmark of growth: its points, the exponents of its series, and its figure."""

import pytest

from benchmarks.speed import growth
from benchmarks.tables import growth_figure
from snowball.report.export.matplotlib import render_figure

CASES = [
    {"name": f"{series} {size}{part}", "size": size, "seconds": size**exponent / 1e4}
    for series, part, exponent in (("clients", " train", 1), ("clients", " defense", 2), ("parameters", "", 0.5))
    for size in (10, 100, 1000)
]


def test_the_exponent_of_a_power_is_found() -> None:
    measured = growth.fit_exponents(CASES)
    assert measured == pytest.approx({"clients train": 1, "clients defense": 2, "parameters": 0.5})


def test_a_point_is_measured() -> None:
    (case,) = growth.measure_parameters(1000)
    assert (case["name"], case["size"]) == ("parameters 1000", 1000)
    assert case["seconds"] > 0


def test_a_figure_has_every_point_and_the_exponents() -> None:
    drawn = growth_figure.make_figure(CASES)
    clients, parameters = drawn.panels
    assert [series.name for series in clients.series] == ["training, exponent 1.00", "elections, exponent 2.00"]
    assert [(point.x, point.y) for point in parameters.series[0].points] == [
        (size, size**0.5 / 1e4) for size in (10, 100, 1000)
    ]
    assert b"exponent 2.00" in render_figure(drawn)


def test_one_series_can_be_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "run_alone", lambda series, size: [{"name": f"{series} {size}", "seconds": 1.0}])
    kept = [{"name": "clients 50", "seconds": 9.0}, {"name": "rounds 50", "seconds": 9.0}]
    assert growth.measure_series("rounds", kept, "clients") == kept[1:]
    assert growth.measure_series("clients", kept, "clients")[0] == {"name": "clients 50", "seconds": 1.0}
    assert growth.measure_series("rounds", [], None) == [{"name": "rounds 500", "seconds": 1.0}]
