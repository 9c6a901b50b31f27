"""Weights & Biases, https://wandb.ai."""

import os

from snowball.errors import MissingExtra
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import Summary
from snowball.trackers.base import identify_run, select_numbers


class WandB:
    """Write Weights & Biases' files into the run's folder; nothing is sent unless WANDB_MODE=online says so."""

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingExtra("the tracker wandb needs Weights & Biases: pip install 'wandb>=0.19'") from error
        self.wandb = wandb

    def start(self, folder: RunFolder) -> None:
        """Begin or continue the run of this id, with the run's settings as its configuration."""
        self.run = self.wandb.init(
            project=os.environ.get("WANDB_PROJECT", "snowball"),
            id=identify_run(folder),
            resume="allow",
            name=folder.path.name,
            dir=folder.path,
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=folder.run.get("settings"),
            settings=self.wandb.Settings(console="off", silent=True),
        )

    def log(self, record: RoundRecord) -> None:
        """Log a round's numbers, with the round as step."""
        self.run.log(select_numbers(record), step=record["round"])

    def finish(self, summary: Summary | None) -> None:
        """Add the summary and close the run, as failed if it stopped early."""
        if summary:
            self.run.summary.update(summary.plain())
        self.run.finish(exit_code=0 if summary else 1)
