"""Reports on runs, sweeps and audits: tables, prose, and one HTML page that opens offline."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from snowball.report.audit.summary import Audit
from snowball.report.export.write import write_exports
from snowball.report.prose import write_headline, write_prose
from snowball.report.runs import HEADERS, Row, build_rows, find_runs, format_rows
from snowball.report.sweeps import Sweep, read_sweeps
from snowball.report.tables import Cell, SweepTable, build_sweep_table
from snowball.report.web.audit_page import write_audit
from snowball.report.web.page import write_html

__all__ = [
    "HEADERS",
    "Audit",
    "Cell",
    "Row",
    "Sweep",
    "SweepTable",
    "build_rows",
    "build_sweep_table",
    "find_runs",
    "format_rows",
    "read_sweeps",
    "write_audit",
    "write_exports",
    "write_headline",
    "write_html",
    "write_prose",
    "write_report",
]


def write_report(paths: str | Path | Iterable[str | Path], html: str | Path) -> Path:
    """Write one self-contained HTML page on the runs and sweeps in these folders and return its path; `-` prints it.

    Runs and sweeps that cannot be read are named on the page. Without any readable run, a `RunError` is raised.
    """
    folders = [paths] if isinstance(paths, str | Path) else list(paths)
    sweeps, faults = read_sweeps(folders)
    write_html(find_runs(folders, faults), html, sweeps, faults)
    return Path(html)


class CallablePackage(ModuleType):
    """Lets users write `snowball.report("runs", "report.html")` although `snowball.report` is this package."""

    def __call__(self, paths: str | Path | Iterable[str | Path], html: str | Path) -> Path:
        """Write a report; see `write_report`."""
        return write_report(paths, html)


sys.modules[__name__].__class__ = CallablePackage
