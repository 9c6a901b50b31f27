"""What runs amount to: a table, a summary in words, and one page that opens offline."""

from snowball.report.page import write_html
from snowball.report.story import headline, story
from snowball.report.table import HEADERS, Row, find_runs, markdown, table

__all__ = ["HEADERS", "Row", "find_runs", "headline", "markdown", "story", "table", "write_html"]
