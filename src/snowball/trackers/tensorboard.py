"""TensorBoard, https://www.tensorflow.org/tensorboard."""

import json

from snowball.errors import MissingExtra
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import Summary
from snowball.trackers.base import select_numbers


class TensorBoard:
    """Write event files into the run's folder tensorboard/, which `tensorboard --logdir` shows."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtra("the tracker tensorboard needs TensorBoard: pip install 'tensorboard>=2.18'") from error
        self.create_writer = SummaryWriter

    def start(self, folder: RunFolder) -> None:
        """Open an event file that replaces what the folder's earlier files say, and log the rounds so far."""
        self.writer = self.create_writer(str(folder.path / "tensorboard"), purge_step=1)
        self.writer.add_text("settings", f"```\n{json.dumps(folder.run.get('settings'), indent=2)}\n```", 0)
        for record in folder.read_rounds():
            self.log(record)

    def log(self, record: RoundRecord) -> None:
        """Log a round's numbers, with the round as step."""
        for name, value in select_numbers(record).items():
            self.writer.add_scalar(name.replace(".", "/"), value, record["round"])
        self.writer.flush()

    def finish(self, summary: Summary | None) -> None:
        """Close the event file."""
        self.writer.close()
