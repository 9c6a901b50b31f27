"""The benchmark of elections: its rows, and that it measures what it names."""

import numpy as np
import pytest

from benchmarks.inputs.synthetic import SCALE, make_factors, make_layers, make_updates
from benchmarks.measuring.timing import make_case, time_fastest
from benchmarks.speed.elections import count_agreement, format_cases, read_real_layers, run
from snowball.defenses import DEFENSES

NAMES = [
    "bottom-up k50 d3360",
    "bottom-up k200 d20000",
    "top-down k50 vae",
    "top-down k50 vae-span",
    "top-down k50 distance",
    "top-down k50 vae two threads",
    "gram k100 d10000000",
    "elections k1000 d100000",
    "snowball-plus k50 d464160",
]
PAPER_CNN = {"conv1.weight": (32, 1, 5, 5), "fc2.weight": (10, 256)}
WITHOUT_REFERENCE = NAMES[-3:]


def test_rows_have_the_shapes_and_scale_of_a_round() -> None:
    layers = make_layers(50, PAPER_CNN)
    assert {name: tuple(layer.shape) for name, layer in layers.items()} == {
        "conv1.weight": (50, 32, 1, 5, 5),
        "fc2.weight": (50, 10, 256),
    }
    updates = make_updates(layers)
    assert updates.values.shape == (50, 3360)
    assert SCALE / 2 < updates.values.std().item() < SCALE * 2
    assert updates.values[:, 0].tolist() == layers["conv1.weight"][:, 0, 0, 0, 0].tolist()


def test_the_real_round_is_one_of_the_papers_cnn() -> None:
    layers = read_real_layers()
    assert {name: tuple(layer.shape[1:]) for name, layer in layers.items()} == PAPER_CNN
    assert 0.005 < make_updates(layers).values.std().item() < 0.05


def test_rows_are_the_same_each_time() -> None:
    first, second = make_layers(10, PAPER_CNN), make_layers(10, PAPER_CNN)
    assert all(first[name].equal(second[name]) for name in PAPER_CNN)


def test_one_row_in_five_is_infected_and_moved_alike() -> None:
    factors = make_factors(50)
    assert (factors[:40, -1] == 0).all()
    assert len(set(factors[40:, -1].tolist())) == 1
    assert factors[40, -1] > 0
    rows = make_updates(make_layers(50, PAPER_CNN)).values.numpy()
    offset = rows[40:].mean(0) - rows[:40].mean(0)
    among_honest = rows[:10].mean(0) - rows[10:40].mean(0)
    assert np.linalg.norm(offset) > 2 * np.linalg.norm(among_honest)


def test_a_case_divides_the_reference_by_ours() -> None:
    assert make_case("x", 2.0, 6.0, agree=1)["ratio"] == 3
    assert make_case("x", 2.0, None)["ratio"] is None
    assert count_agreement([1, 2, 3], [2, 3, 4]) == {"agree": 2, "of": 3}


def test_the_fastest_run_prepares_each_time() -> None:
    prepared: list[int] = []

    def prepare() -> int:
        prepared.append(len(prepared))
        return prepared[-1]

    seconds, result = time_fastest(lambda number: number, prepare, 3)
    assert prepared == [0, 1, 2]
    assert seconds >= 0
    assert result in prepared


def test_the_table_has_a_line_a_case() -> None:
    lines = format_cases([make_case("a", 0.5, 1.0, agree=3), make_case("b", 0.5, None)]).splitlines()
    assert len(lines) == 3
    assert "agree 3" in lines[1]


@pytest.mark.slow
def test_the_quick_run_reports_every_case() -> None:
    result = run(quick=True)
    assert {"cpu", "cores", "python", "torch", "scikit-learn"} <= set(result["machine"])
    cases = {case["name"]: case for case in result["cases"]}
    assert list(cases) == [*NAMES, *(f"{name} k50 d45500" for name in DEFENSES)]
    for name in DEFENSES:
        case = cases.pop(f"{name} k50 d45500")
        assert case["times_fedavg"] == pytest.approx(1 / case["ratio"])
    for name, case in cases.items():
        assert case["seconds"] > 0
        if name in WITHOUT_REFERENCE:
            assert case["reference_seconds"] is case["ratio"] is None
            assert case["peak_mib"] is None or case["peak_mib"] > 0
        else:
            assert case["ratio"] == pytest.approx(case["reference_seconds"] / case["seconds"])
            assert 0 <= case["agree"] <= case["of"]
    for name in NAMES[:2]:
        assert cases[name]["agree"] == cases[name]["of"]
        assert cases[name]["totals_difference"] < 1e-9
    assert set(cases["gram k100 d10000000"]["after_gram_seconds"]) == {"1000000", "10000"}
    assert cases["snowball-plus k50 d464160"]["charges"] == 2
    assert cases["snowball-plus k50 d464160"]["beside_fedavg"] > 1
