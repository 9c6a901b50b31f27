"""Make the trained weights that the package ships as `model.start`: FedAvg without an attack, on honest clients alone.

    python scripts/make_starts.py

Fashion-MNIST is read from $SNOWBALL_DATA or the user's cache. On another kind of processor the last digits differ.
"""

from functools import partial
from pathlib import Path

from snowball.models.start import ENDING, pack_start
from snowball.sim.engines.processes import ProcessEngine, count_cores
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.presets import load_experiment

STARTS = Path(__file__).parents[1] / "src" / "snowball" / "models" / "starts"
PRESETS = {"mnist-cnn-quarter": "demo", "fashion-mnist-cnn-quarter": "cpu/fashion-mnist"}
SETTINGS = {"seed": 1000, "rounds": 40, "attack.name": "none", "defense.name": "fedavg"}
LIMIT = 200_000  # bytes; the files are part of every installation


def train(experiment: Experiment) -> tuple[bytes, float]:
    """The content of a start's file after all rounds of an experiment, and its main accuracy."""
    federation = Federation.build(experiment)
    state = build_first_state(federation)
    *_, last = simulate(federation, partial(ProcessEngine, workers=count_cores()), state)
    model = federation.build_model()
    for parameter, tensor in zip(model.parameters(), federation.layout.split(state.base).values(), strict=True):
        parameter.data.copy_(tensor)
    return pack_start(model), last["main_accuracy"] or 0.0


def main() -> None:
    """Make the starts, and refuse to ship large ones."""
    for name, preset in PRESETS.items():
        content, accuracy = train(load_experiment(preset, SETTINGS))
        if len(content) > LIMIT:
            raise SystemExit(f"{name} has {len(content)} bytes, the limit is {LIMIT}")
        (STARTS / f"{name}{ENDING}").write_bytes(content)
        print(f"{name}: main accuracy {accuracy:.4f}, {len(content)} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
