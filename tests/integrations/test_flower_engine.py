"""The simulator's clients, trained over Flower."""

from functools import partial

import pytest

from snowball.sim.engine import Serial
from snowball.sim.experiment import load
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate

pytest.importorskip("flwr", reason="flwr is not installed: make test-flower has an environment for it")

SMALL = ["rounds=2", "data.clients=10", "cohort=6", "data.examples=300", "training.epochs=1", "defense.clusters=3"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_records_are_the_same_as_in_one_process() -> None:
    from snowball.sim.flower import Simulated

    federation = Federation.of(load("demo", ["defense.name=snowball", *SMALL]))
    runs = [list(simulate(federation, engine)) for engine in (Serial, partial(Simulated, workers=2))]
    for record in (record for run in runs for record in run):
        del record["seconds"]
    assert runs[0] == runs[1]
