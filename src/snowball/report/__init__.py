"""What runs, sweeps and audits amount to: tables, a summary in words, and one page that opens offline."""

from snowball.report.audit import Audit
from snowball.report.audit_page import write_audit
from snowball.report.exports import write_exports
from snowball.report.grids import Cell, Grid, grid_of
from snowball.report.page import write_html
from snowball.report.story import headline, story
from snowball.report.sweeps import Sweep, read_sweeps
from snowball.report.table import HEADERS, Row, find_runs, markdown, table

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
