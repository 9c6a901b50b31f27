"""The dashboard and the alert rules use what the exporter has, and the page on alerts lists all of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from snowball.guard.alerts.events import KINDS, RESULTS
from snowball.guard.alerts.metrics import FEDERATION, METRICS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
RULES = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
VALUES = {"outcome": ["aggregated", "kept"], "kind": KINDS, "result": RESULTS, FEDERATION: ["$federation"]}

QUERIES = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(each["expr"] for each in DASHBOARD["annotations"]["list"]),
    *re.findall(r"^ +expr: (?:>-\n)?((?:.+\n)+?) +labels:", RULES, re.MULTILINE),
]


def test_every_rule_and_panel_has_a_query() -> None:
    assert len(DASHBOARD["panels"]) == 11
    assert len(QUERIES) == 11 + 1 + RULES.count("- alert: ")


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_uses_what_the_exporter_has(query: str) -> None:
    names = re.findall(r"snowball_\w+", query)
    assert names
    assert set(names) <= set(METRICS)
    for name, matchers in re.findall(r"(snowball_\w+)\{([^}]*)\}", query):
        for label, value in re.findall(r'(\w+)\s*(?:=~|!=|=)\s*"([^"]*)"', matchers):
            assert label in (FEDERATION, *METRICS[name].labels)
            assert value in VALUES[label]
    for listed in re.findall(r"(?:by|without) \((\w+)\)", query):
        assert any(listed in METRICS[name].labels for name in names)


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    assert set(re.findall(r"snowball_\w+", shown)) == set(METRICS)


def test_the_dashboard_asks_for_its_data_source_and_its_panels_do_not_overlap() -> None:
    datasource, federation = DASHBOARD["templating"]["list"]
    assert (datasource["type"], datasource["query"]) == ("datasource", "prometheus")
    assert re.findall(r"snowball_\w+", federation["definition"]) == ["snowball_round"]
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {"${datasource}"}
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_page_lists_every_event_result_and_metric_with_its_meaning() -> None:
    for name, meaning in {**KINDS, **RESULTS}.items():
        assert f"| `{name}` | {meaning} |\n" in PAGE
    for name, info in METRICS.items():
        labels = ", ".join(f"`{label}`" for label in info.labels)
        assert f"| `{name}` | {info.type} | {labels} | {info.meaning} |\n".replace("|  |", "| |") in PAGE
    assert set(re.findall(r"`(snowball_\w+)`", PAGE)) == set(METRICS)
