"""Address and environment of a Ray cluster."""

from socket import create_connection

from snowball.errors import RunError

CONNECT_SECONDS = 10.0

RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise Ray warns about it
    "OMP_NUM_THREADS": "1",
}
"""Environment variables of Ray's processes."""


def require_cluster(address: str, given: str) -> None:
    """Refuse an address at which no cluster answers; `given` says how the user set it. Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "//" in host:
        return  # Ray knows more forms of addresses than host:port
    try:
        create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"{given} is not a Ray cluster: {error}") from error
