"""Prometheus, https://prometheus.io: metrics in a file for node_exporter, or at a port."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from snowball.errors import MissingExtra, SettingError
from snowball.guard.alerts.events import Event
from snowball.guard.alerts.metrics import RoundMetrics
from snowball.records.files import write_bytes

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SUFFIX = ".prom"
"""Ends the names of files that node_exporter reads."""

MAX_PORT = 65535


@dataclass(eq=False)
class PrometheusFile:
    """Writes the metrics to a file after every event, for the textfile collector of node_exporter.

    Attributes:
        file: its name ends in `.prom`.
        federation: the value of the label `federation`; two files on one host need two.
        max_sites: sites beyond this number share one label.
    """

    file: str | Path
    federation: str = ""
    max_sites: int = 500

    def __post_init__(self) -> None:
        if not str(self.file).endswith(SUFFIX):
            raise SettingError(f"file = {str(self.file)!r} must end in {SUFFIX}: node_exporter reads no other files")
        self.metrics, self.registry = make_registry(self.federation, self.max_sites)
        self.write()

    def __call__(self, event: Event) -> None:
        """Count an event and write the file."""
        self.metrics.count(event)
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        from prometheus_client import generate_latest

        write_bytes(Path(self.file), generate_latest(self.registry))


@dataclass(eq=False)
class PrometheusEndpoint:
    """Serves the metrics over HTTP at `/metrics`, from a thread of its own.

    Attributes:
        port: where Prometheus scrapes; 0 takes a free one, see `server.server_port`.
        address: the address to listen at; by default only this machine can reach it.
        federation: the value of the label `federation`.
        max_sites: sites beyond this number share one label.
    """

    port: int
    address: str = "127.0.0.1"
    federation: str = ""
    max_sites: int = 500

    def __post_init__(self) -> None:
        if not 0 <= self.port <= MAX_PORT:
            raise SettingError(f"port = {self.port} must be between 0 and {MAX_PORT}")
        self.metrics, registry = make_registry(self.federation, self.max_sites)
        from prometheus_client import start_http_server

        try:
            self.server, self.thread = start_http_server(self.port, self.address, registry)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SettingError(f"port {self.port} at {self.address!r} cannot be opened: {reason}") from error

    def __call__(self, event: Event) -> None:
        """Count an event."""
        self.metrics.count(event)

    def close(self) -> None:
        """Free the port."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def make_registry(federation: str, max_sites: int) -> "tuple[RoundMetrics, CollectorRegistry]":
    """Return metrics without rounds, and a registry of prometheus-client that has them."""
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise MissingExtra("Prometheus' metrics need its client: pip install 'prometheus-client>=0.20'") from error
    if max_sites < 1:
        raise SettingError(f"max_sites = {max_sites} must be at least 1")
    metrics, registry = RoundMetrics(federation, max_sites), CollectorRegistry()
    registry.register(metrics)
    return metrics, registry
