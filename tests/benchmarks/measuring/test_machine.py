"""The description of the machine, and measurements of memory."""

import time

import numpy as np
import pytest

from benchmarks.measuring.machine import STATUS, PeakMemory, describe_machine, measure_own_memory


def test_the_machine_is_described() -> None:
    facts = describe_machine()
    assert set(facts) == {"cpu", "cores", "python", "torch", "numpy", "scikit-learn"}
    assert all(facts.values())


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc, which this system does not have")
def test_peak_memory_sees_what_is_freed_again() -> None:
    with PeakMemory() as memory:
        block = np.ones(64 << 17)  # 64 MiB
        time.sleep(0.1)
        del block
    assert 55 < memory.growth["RssAnon"] < 120
    assert measure_own_memory()["VmRSS"] >= measure_own_memory()["RssAnon"] > 0


def test_peak_memory_watches_whatever_is_read() -> None:
    readings = iter([5.0, 9.0, 7.0])
    with PeakMemory(lambda: {"held": next(readings, 6.0)}, sample_seconds=0.01) as memory:
        time.sleep(0.1)
    assert memory.growth == {"held": 4}
    assert memory.peak == {"held": 9}
