"""What runs, sweeps and audits amount to: tables, a summary in words, and one page that opens offline."""

from snowball.report.audit import Audit
from snowball.report.export.write import write_exports
from snowball.report.prose import headline, story
from snowball.report.runs import HEADERS, Row, find_runs, markdown, table
from snowball.report.sweeps import Sweep, read_sweeps
from snowball.report.tables import Cell, Grid, grid_of
from snowball.report.web.audit_page import write_audit
from snowball.report.web.page import write_html

__all__ = [
    "HEADERS",
    "Audit",
    "Cell",
    "Grid",
    "Row",
    "Sweep",
    "find_runs",
    "grid_of",
    "headline",
    "markdown",
    "read_sweeps",
    "story",
    "table",
    "write_audit",
    "write_exports",
    "write_html",
]
