"""What runs and audits amount to: a table, a summary in words, and one page that opens offline."""

from snowball.report.audit import Audit
from snowball.report.audit_page import write_audit
from snowball.report.page import write_html
from snowball.report.story import headline, story
from snowball.report.table import HEADERS, Row, find_runs, markdown, table

__all__ = [
    "HEADERS",
    "Audit",
    "Row",
    "find_runs",
    "headline",
    "markdown",
    "story",
    "table",
    "write_audit",
    "write_html",
]
