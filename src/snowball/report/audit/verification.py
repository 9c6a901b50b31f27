"""Words for whether an audit is unchanged, and for what that does not prove."""

from snowball.records.audit_check import Verification


def write_verification(found: Verification) -> str:
    """Say whether an audit is unchanged, or what is wrong with the first line that does not fit."""
    if found.fault is not None:
        return f"{found.fault[0].upper()}{found.fault[1:]}."
    if not found.rounds:
        return "The audit has no rounds."
    count = f"All {found.rounds}" if found.chained == found.rounds else f"{found.chained} of {found.rounds}"
    return f"{count} rounds are unchanged since round {found.chained_from}{_name_signers(found)}."


def _name_signers(found: Verification) -> str:
    if not found.signers:
        return ""
    since = "" if found.signed == found.chained else f" since round {found.signed_from}"
    return f", signed{since} by the key {' or '.join(found.signers)}"


def list_limits(found: Verification, has_key: bool) -> list[str]:
    """Say what was not checked, or cannot be."""
    if found.fault is not None:
        return []
    earlier = found.rounds - found.chained
    forged = "changes by somebody who also made all later hashes again are not found"
    limits = {
        f"The {earlier} before that are of an earlier version, in which changes are not found.": earlier,
        f"They are not signed: {forged}.": found.rounds and not found.signed,
        f"They are signed from round {found.signed_from} on; without --key, {forged}.": found.signed and not has_key,
        "Without --state, lines that were cut off the end are not missed.": found.after is None,
        f"The guard's state remembers an earlier line; lines after that: {found.after}.": found.after,
        "An incomplete last line, as a crash leaves it, is not counted.": found.torn,
    }
    return [sentence for sentence, applies in limits.items() if applies]
