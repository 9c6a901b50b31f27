"""Where a Ray cluster is, and whether anybody answers there."""

from socket import create_connection

from snowball.errors import RunError

PATIENCE = 10.0
"""Seconds for a cluster to answer."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # which Ray warns of otherwise
    "OMP_NUM_THREADS": "1",
}
"""What Ray's processes are to have in their environment."""


def require_cluster(address: str, given: str) -> None:
    """Refuse the address of a cluster where nobody answers, which was `given` so: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "//" in host:
        return  # in another form, which is Ray's to read
    try:
        create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"{given} is no Ray cluster: {error}") from error
