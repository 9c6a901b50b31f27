"""The benchmark of loading: its fields, and that it measures what it names."""

from benchmarks.speed.loading import draw_owners, measure_set


def test_a_set_is_loaded_and_dealt_out() -> None:
    case = measure_set("mnist-sample")
    assert set(case) == {"name", "samples", "bytes", "seconds", "peak", "partition", "clients", "partition_seconds"}
    assert (case["samples"], case["bytes"]) == (14_000, 14_000 * (28 * 28 + 8))
    assert (case["partition"], case["clients"]) == ("dirichlet-plain", 200)
    assert case["seconds"] > 0 < case["partition_seconds"]


def test_every_made_up_client_has_a_sample() -> None:
    groups = draw_owners(50, 200)
    assert len(groups) == 200
    assert groups.bincount().min() >= 1
    assert groups.tolist() != sorted(groups.tolist())
