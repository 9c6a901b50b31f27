"""A guard in front of a real federation: it validates replies, lets a defense judge them, and writes an audit.

Integrations hold one `Guard` per federation. No client, hostile or broken, can make it raise.
"""

from snowball.guard.audit_log import AuditLog
from snowball.guard.guard import Guard, Judgement
from snowball.guard.model_history import restore_model
from snowball.guard.reply import Reply
from snowball.records.audit import REASONS, AuditEntry
from snowball.server import Dropped

__all__ = ["REASONS", "AuditEntry", "AuditLog", "Dropped", "Guard", "Judgement", "Reply", "restore_model"]
