"""Agreement with byzfl, an independent library of the same rules.

It scores with one neighbour more than Krum's paper, and its Multi-Krum elects n - f: its f is our `tolerate` plus one.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from snowball.defenses import ARC, NNM, Before, Bucketing, Context, FedAvg, Mixing
from snowball.defenses.base import Defense
from snowball.defenses.bulyan import Bulyan
from snowball.defenses.caf import CAF
from snowball.defenses.centered_clipping import CenteredClipping
from snowball.defenses.krum import Krum
from snowball.defenses.median import Median
from snowball.defenses.multi_krum import MultiKrum
from snowball.defenses.trimmed_mean import TrimmedMean
from snowball.updates import Updates

MIXED_SIZES = [(1, 0), (5, 1), (11, 3), (20, 4), (41, 12), (50, 24)]
SIZES = [(5, 1), (11, 3), (20, 4), (41, 12)]
Rows = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def byzfl() -> Iterator[Any]:
    """Its aggregators alone: the package as a whole wants to train on images."""
    spec = find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("byzfl is not installed")
    package = ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["byzfl"] = package
    yield importlib.import_module("byzfl.aggregators.aggregators")
    for name in [name for name in sys.modules if name.partition(".")[0] == "byzfl"]:
        del sys.modules[name]


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


def random_rows(clients: int, dtype: Any, width: int = 300) -> Rows:
    rng = np.random.default_rng(clients)
    return (rng.standard_normal((clients, width)) * rng.uniform(0.5, 2, (clients, 1))).astype(dtype)


def assert_agree(defense: Defense, rows: Rows, expected: Rows) -> None:
    delta = defense(Updates.from_layers({"w": rows}), Context(round=1)).delta
    torch.testing.assert_close(delta, torch.from_numpy(np.asarray(expected, rows.dtype)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("clients", "f"), SIZES)
def test_krum(byzfl: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    assert_agree(Krum(f - 1), rows, byzfl.Krum(f)(rows))


@pytest.mark.parametrize(("clients", "f"), SIZES)
def test_multi_krum(byzfl: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    assert_agree(MultiKrum(f - 1, elect=clients - f), rows, byzfl.MultiKrum(f)(rows))


@pytest.mark.parametrize("clients", [1, 2, 5, 20, 41])
def test_median(byzfl: Any, clients: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    assert_agree(Median(), rows, byzfl.Median()(rows))


@pytest.mark.parametrize(("clients", "f"), [*SIZES, (2, 0), (20, 9)])
def test_trimmed_mean(byzfl: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    assert_agree(TrimmedMean(f), rows, byzfl.TrMean(f)(rows))


@pytest.mark.parametrize(("clients", "f"), [(7, 1), (11, 2), (20, 3), (41, 6)])
def test_bulyan_picks_what_krum_elects_of_the_remainder(byzfl: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    order = torch.as_tensor(Bulyan(f)(Updates.from_layers({"w": rows}), Context(round=1)).facts["order"])
    left = rows
    for place in range(clients - 2 * f - 2):  # of what is left later byzfl elects nobody: fewer than 2f + 3
        best = byzfl.Krum(f + 1)(left)
        np.testing.assert_array_equal(rows[int((order == place).nonzero())], best)
        left = left[(left != best).any(1)]
    assert len(left) == 2 * f + 2


@pytest.mark.parametrize(("clients", "f"), [(7, 1), (13, 2), (20, 3), (41, 6)])
def test_bulyan_averages_what_lies_near_the_median(byzfl: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    elected = Bulyan(f)(Updates.from_layers({"w": rows}), Context(round=1)).elected.numpy()
    assert_agree(Bulyan(f), rows, byzfl.Meamed(2 * f)(rows[elected]))


@pytest.mark.parametrize(("iterations", "bound"), [(1, 100.0), (1, 12.0), (5, 3.0)])
def test_centered_clipping(byzfl: Any, iterations: int, bound: float, dtype: Any) -> None:
    theirs, state = byzfl.CenteredClipping(L=iterations, tau=bound), None
    for round in range(1, 4):
        rows = random_rows(10 + round, dtype)
        context = Context(round=round, state=state)
        verdict = CenteredClipping(bound, iterations)(Updates.from_layers({"w": rows}), context)
        torch.testing.assert_close(verdict.delta, torch.from_numpy(theirs(rows)), rtol=0, atol=1e-6)
        state = verdict.state


@pytest.mark.parametrize(("clients", "f"), [(5, 1), (11, 3), (20, 4), (41, 3)])
def test_caf_with_enough_steps_of_the_power_method(byzfl: Any, clients: int, f: int) -> None:
    source = inspect.getsource(byzfl.CAF)
    assert "max_iters=1)" in source
    exec(source.replace("max_iters=1)", "max_iters=1000)"), exact := dict(vars(byzfl)))
    rows = random_rows(clients, np.float64, width=12)
    assert_agree(CAF(f), rows, exact["CAF"](f)(rows))


@pytest.fixture
def mixings(byzfl: Any) -> Any:
    return importlib.import_module("byzfl.aggregators.preaggregators")


def assert_mix_alike(mixing: Mixing, rows: Rows, expected: Rows) -> None:
    mixed = mixing(Updates.from_layers({"w": rows}), Context(round=1)).updates.values
    torch.testing.assert_close(mixed, torch.from_numpy(np.asarray(expected, rows.dtype)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("clients", "f"), MIXED_SIZES[1:])
def test_nearest_neighbour_mixing(mixings: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    assert_mix_alike(NNM(f), rows, mixings.NNM(f)(rows))


@pytest.mark.parametrize(("clients", "f"), MIXED_SIZES)
def test_adaptive_clipping(mixings: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    assert_mix_alike(ARC(f), rows, mixings.ARC(f)(rows.copy()))  # which it clips in place


@pytest.mark.parametrize(("clients", "size"), [(1, 2), (5, 2), (12, 3), (41, 4)])
def test_bucketing(mixings: Any, clients: int, size: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(clients, dtype)
    owners = Bucketing(size)(Updates.from_layers({"w": rows}), Context(round=1)).owners
    monkeypatch.setattr(np.random, "permutation", lambda values: values[owners.argsort(stable=True).numpy()])
    assert_mix_alike(Bucketing(size), rows, mixings.Bucketing(size)(rows))


@pytest.mark.parametrize(("clients", "f"), SIZES)
def test_rules_behind_two_mixings(byzfl: Any, mixings: Any, clients: int, f: int, dtype: Any) -> None:
    rows = random_rows(clients, dtype)
    mixed = mixings.NNM(f)(mixings.ARC(f)(rows.copy()))
    for defense, rule in ((TrimmedMean(f), byzfl.TrMean(f)), (Krum(f - 1), byzfl.Krum(f)), (FedAvg(), byzfl.Average())):
        assert_agree(Before(defense, (ARC(f), NNM(f))), rows, rule(mixed))
