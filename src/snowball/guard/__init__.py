"""What stands in front of a real federation: it sanitises what clients send, lets a defense judge it, and keeps books.

Integrations hold a `Guard`, one a federation. No client, hostile or broken, can make it raise.
"""

from snowball.guard.audit_log import AuditLog
from snowball.guard.guard import Guard, Judgement
from snowball.guard.reply import Reply
from snowball.records.audit import REASONS, Entry
from snowball.server import Dropped

__all__ = ["REASONS", "AuditLog", "Dropped", "Entry", "Guard", "Judgement", "Reply"]
