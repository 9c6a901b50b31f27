"""Alerts and metrics: a guard tells its listeners about every round and about what somebody should look at.

A listener is any function that takes an `Event`. Ready ones write metrics for Prometheus and call a webhook.
"""

from snowball.guard.alerts.build import LISTENERS, Choice, build_listeners, check_listeners
from snowball.guard.alerts.dispatch import Alerts, log_event
from snowball.guard.alerts.events import ALERTS, KINDS, Event, Listener
from snowball.guard.alerts.prometheus import PrometheusEndpoint, PrometheusFile
from snowball.guard.alerts.webhook import Webhook

__all__ = [
    "ALERTS",
    "KINDS",
    "LISTENERS",
    "Alerts",
    "Choice",
    "Event",
    "Listener",
    "PrometheusEndpoint",
    "PrometheusFile",
    "Webhook",
    "build_listeners",
    "check_listeners",
    "log_event",
]
