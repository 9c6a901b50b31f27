"""The rounds as a table, for spreadsheets and data frames."""

import csv
from io import StringIO
from pathlib import Path

from snowball.records.files import write_bytes
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import Summary
from snowball.trackers.base import select_numbers


class CSV:
    """Write rounds.csv into the run's folder: one line per round, one column per number."""

    path: Path
    rows: list[dict[str, float]]

    def start(self, folder: RunFolder) -> None:
        """Write the rounds that a resumed run has, or an empty file."""
        self.path, self.rows = folder.path / "rounds.csv", []
        self._write()
        for record in folder.read_rounds():
            self.log(record)

    def log(self, record: RoundRecord) -> None:
        """Write the file with one more line; a number that earlier rounds lack is a new column."""
        self.rows.append({"round": record["round"], **select_numbers(record)})
        self._write()

    def finish(self, summary: Summary | None) -> None:
        """Do nothing: the file is complete after every round."""

    def _write(self) -> None:
        columns = list(dict.fromkeys(name for row in self.rows for name in row)) or ["round"]
        text = StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        write_bytes(self.path, text.getvalue().encode())
