"""The simulator as an app for Flower: any SuperNode trains any client, and the server runs the experiment."""

from functools import partial
from logging import getLogger
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from snowball.errors import SettingError
from snowball.sim.engines.flower import OverGrid, client_app
from snowball.sim.presets import load
from snowball.sim.run import run

__all__ = ["client_app", "server_app"]

logger = getLogger("flwr")

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the app's settings name: `preset`, `set`, `out`."""
    preset, out = (str(context.run_config.get(name, "")) for name in ("preset", "out"))
    if not (preset and out):
        raise SettingError(f"the app's settings are to name a preset and a folder: preset = {preset!r}, out = {out!r}")
    experiment = load(preset, str(context.run_config.get("set", "")).split())
    for record in run(experiment, Path(out).expanduser(), partial(OverGrid, grid=grid), resume=True):
        logger.info("round %d of %d is in %s", record["round"], experiment.rounds, out)
