"""Flower app of the simulator: any SuperNode trains any client, and the server runs the experiment."""

from functools import partial
from logging import getLogger
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from snowball.errors import SettingError
from snowball.sim.engines.flower import GridEngine, client_app
from snowball.sim.presets import load_experiment
from snowball.sim.run import run_experiment

__all__ = ["client_app", "server_app"]

logger = getLogger("flwr")

server_app = ServerApp()


@server_app.main()
def run_app(grid: Grid, context: Context) -> None:
    """Run the experiment that the app's settings `preset`, `set` and `out` describe."""
    preset, out = (str(context.run_config.get(name, "")) for name in ("preset", "out"))
    if not (preset and out):
        raise SettingError(f"the app needs a preset and a folder, got preset = {preset!r}, out = {out!r}")
    experiment = load_experiment(preset, str(context.run_config.get("set", "")).split())
    for record in run_experiment(experiment, Path(out).expanduser(), partial(GridEngine, grid=grid), resume=True):
        logger.info("round %d of %d is in %s", record["round"], experiment.rounds, out)
