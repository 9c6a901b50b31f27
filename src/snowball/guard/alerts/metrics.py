"""Numbers about a federation's rounds for Prometheus, https://prometheus.io, with a bounded number of series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from snowball.guard.alerts.events import KINDS, MAX_ID_CHARS, RESULTS, Event, classify_asked
from snowball.records.audit import JudgedRound
from snowball.records.text import escape_text

if TYPE_CHECKING:
    from prometheus_client.core import Metric

OTHER_SITES = "(other)"
"""The label of all sites beyond the bound."""

ANSWERED = ("elected", "not_needed", "suspect", "probation", "unjudged")
"""The results of clients whose reply was valid."""

FEDERATION = "federation"
"""The label that every series has; it tells federations on one host apart."""


@dataclass(frozen=True)
class MetricInfo:
    """What is known about a metric: its type, its meaning and its labels besides `federation`."""

    type: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()


METRICS = {
    "snowball_rounds_total": MetricInfo("counter", "Judged rounds, aggregated or kept", ("outcome",)),
    "snowball_events_total": MetricInfo("counter", "Events by kind", ("kind",)),
    "snowball_site_rounds_total": MetricInfo("counter", "Rounds of a site by their result for it", ("site", "result")),
    "snowball_clients": MetricInfo("gauge", "Clients of the last round by its result for them", ("result",)),
    "snowball_round": MetricInfo("gauge", "Number of the last round"),
    "snowball_round_time_seconds": MetricInfo("gauge", "Unix time at which the last round was judged"),
    "snowball_judging_seconds": MetricInfo("gauge", "Seconds that the guard took to judge the last round"),
    "snowball_turnout_ratio": MetricInfo("gauge", "Valid replies of the last round per client asked"),
    "snowball_clarity_ratio": MetricInfo("gauge", "Strongest evidence of the last round, as a share of the bound"),
}
"""The metrics by name."""

Samples = dict[str, dict[tuple[str, ...], float]]
"""Values by metric and labels."""


class RoundMetrics:
    """Counts over the rounds, and the numbers of the last one; a collector of prometheus-client.

    Attributes:
        federation: the value of the label `federation`.
        max_sites: sites beyond this number share one label.
    """

    def __init__(self, federation: str, max_sites: int) -> None:
        self.federation, self.max_sites = escape_text(federation, MAX_ID_CHARS), max_sites
        self.sites: set[str] = set()
        self.samples: Samples = {name: {} for name in METRICS}
        self.samples["snowball_rounds_total"] = {("aggregated",): 0, ("kept",): 0}
        self.samples["snowball_events_total"] = {(kind,): 0 for kind in KINDS}
        self.families = tuple(self._build_families())

    def count(self, event: Event) -> None:
        """Count an event, and the clients of a round."""
        self.samples["snowball_events_total"][event.kind,] += 1
        if event.kind == "round":
            results = classify_asked(event.entry)
            self.samples["snowball_rounds_total"][event.entry["outcome"],] += 1
            self._count_sites(results)
            for name, value in measure_round(event.entry, results).items():
                self.samples[name] = {} if value is None else {(): value}
            counts = list(results.values())
            self.samples["snowball_clients"] = {(result,): counts.count(result) for result in RESULTS}
        self.families = tuple(self._build_families())

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; safe while another thread counts."""
        return self.families

    def _count_sites(self, results: dict[str, str]) -> None:
        counts = self.samples["snowball_site_rounds_total"]
        for client, result in results.items():
            site = self._find_label(client)
            counts.update({(site, each): 0 for each in RESULTS if (site, each) not in counts})
            counts[site, result] += 1

    def _find_label(self, client: str) -> str:
        site = escape_text(client, MAX_ID_CHARS)
        if site not in self.sites and len(self.sites) >= self.max_sites:
            return OTHER_SITES
        self.sites.add(site)
        return site

    def _build_families(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        makers = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for name, info in METRICS.items():
            family = makers[info.type](name, info.meaning, labels=(FEDERATION, *info.labels))
            for labels, value in self.samples[name].items():
                family.add_metric((self.federation, *labels), value)
            yield family


def measure_round(entry: JudgedRound, results: dict[str, str]) -> dict[str, float | None]:
    """Return the numbers of a round by metric; None for what is not known."""
    return {
        "snowball_round": entry["round"],
        "snowball_round_time_seconds": datetime.fromisoformat(entry["time"]).timestamp(),
        "snowball_judging_seconds": entry["seconds"],
        "snowball_turnout_ratio": measure_turnout(entry, results),
        "snowball_clarity_ratio": entry["clarity"],
    }


def measure_turnout(entry: JudgedRound, results: dict[str, str]) -> float | None:
    """Return the share of clients with a valid reply among those asked, without those whom a person denies."""
    denied = {decision["client"] for decision in entry["decisions"] if decision["rule"] == "deny"}
    expected = set(entry["asked"] or ()) - denied
    return sum(results.get(client) in ANSWERED for client in expected) / len(expected) if expected else None
