"""MLflow, https://mlflow.org."""

import os
from time import time

from snowball.errors import MissingExtra
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import Summary
from snowball.settings import flatten_settings
from snowball.trackers.base import identify_run, select_numbers

TAG = "snowball.run"
"""The tag by which a resumed run is found again."""


class MLflow:
    """Log to MLflow: where MLFLOW_TRACKING_URI says, or on this machine as MLflow does by default."""

    def __init__(self) -> None:
        try:
            import mlflow
            from mlflow.entities import Metric, Param
        except ImportError as error:
            raise MissingExtra("the tracker mlflow needs MLflow: pip install 'mlflow>=3'") from error
        self.client, self.make_metric, self.make_param = mlflow.MlflowClient(), Metric, Param

    def start(self, folder: RunFolder) -> None:
        """Continue the run that has this one's tag, or create it with its settings as parameters."""
        name, tag = os.environ.get("MLFLOW_EXPERIMENT_NAME", "snowball"), identify_run(folder)
        known = self.client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self.client.create_experiment(name)
        found = self.client.search_runs([experiment], f"tags.`{TAG}` = '{tag}'", max_results=1)
        if found:
            self.run = found[0].info.run_id
            self.client.update_run(self.run, status="RUNNING")
            return
        self.run = self.client.create_run(experiment, run_name=folder.path.name, tags={TAG: tag}).info.run_id
        settings = flatten_settings(folder.run.get("settings", {}))
        self.client.log_batch(self.run, params=[self.make_param(key, str(value)) for key, value in settings.items()])
        for record in folder.read_rounds():
            self.log(record)

    def log(self, record: RoundRecord) -> None:
        """Log a round's numbers, with the round as step."""
        now, numbers = int(time() * 1000), select_numbers(record)
        metrics = [self.make_metric(name, value, now, record["round"]) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics=metrics)

    def finish(self, summary: Summary | None) -> None:
        """Mark the run as finished, or as killed if it stopped early."""
        self.client.set_terminated(self.run, "FINISHED" if summary else "KILLED")
