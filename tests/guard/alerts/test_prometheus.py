import builtins
import runpy
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from snowball.errors import MissingExtra, RunError, SettingError
from snowball.guard.alerts import Alerts, PrometheusEndpoint, PrometheusFile
from snowball.guard.alerts.events import KINDS, RESULTS
from snowball.guard.alerts.metrics import METRICS, OTHER_SITES
from snowball.guard.alerts.prometheus import make_registry

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
make_entry, make_event, accuse, drop = (SHARED[name] for name in ("make_entry", "make_event", "accuse", "drop"))

Values = dict[tuple[Any, ...], float]


def parse(text: str) -> dict[str, Values]:
    """Return the samples of a text by name and by the values of labels, in the order of the labels' names."""
    found: dict[str, Values] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "federation")
            assert labels not in found.setdefault(sample.name, {})
            found[sample.name][labels] = sample.value
    return found


def report(listener: Any, *entries: Any) -> None:
    alerts = Alerts([listener])
    for entry in entries:
        alerts.report_round(entry)


def test_the_file_has_the_counts_of_all_rounds_and_the_numbers_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "snowball.prom"
    report(
        PrometheusFile(path),
        accuse(1, ["m"], ["a", "b"], asked=["m", "a", "b"], clarity=1.5),
        accuse(2, ["m"], ["a"], asked=["m", "a", "b", "c"], clarity=1.5, silent=["c"], dropped=[drop("b")]),
        make_entry(3, outcome="kept", reason="nobody is elected", asked=["m", "a"], silent=["m"], answered=["a"]),
    )
    found = parse(path.read_text(encoding="utf-8"))
    assert found["snowball_rounds_total"] == {("aggregated",): 2, ("kept",): 1}
    assert found["snowball_events_total"][("round",)] == 3
    assert found["snowball_events_total"][("kept",)] == 1
    sites = found["snowball_site_rounds_total"]
    assert (sites["suspect", "m"], sites["silent", "m"], sites["elected", "m"]) == (2, 1, 0)
    assert (sites["elected", "a"], sites["unjudged", "a"]) == (2, 1)
    assert (sites["elected", "b"], sites["malformed", "b"], sites["silent", "c"]) == (1, 1, 1)
    assert found["snowball_clients"] == dict.fromkeys([(result,) for result in RESULTS], 0) | {
        ("silent",): 1,
        ("unjudged",): 1,
    }
    assert found["snowball_round"] == {(): 3}
    assert found["snowball_round_time_seconds"] == {(): 1767225600}
    assert found["snowball_turnout_ratio"] == {(): 0.5}
    assert found["snowball_judging_seconds"] == {(): 0.25}
    assert "snowball_clarity_ratio" not in found


def test_the_turnout_counts_valid_replies_of_those_who_may_reply(tmp_path: Path) -> None:
    path = tmp_path / "snowball.prom"
    deny = {"client": "x", "rule": "deny", "reason": "", "by": "", "until": None}
    entry = accuse(1, ["m"], ["a"], asked=["a", "b", "c", "m", "x"], dropped=[drop("b"), drop("x", "denied")])
    report(PrometheusFile(path), entry | {"silent": ["c"], "decisions": [deny]})
    assert parse(path.read_text(encoding="utf-8"))["snowball_turnout_ratio"] == {(): 0.5}


def test_a_turnout_that_is_not_known_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "snowball.prom"
    report(PrometheusFile(path), accuse(1, [], ["a"], asked=["a"], clarity=0.5), accuse(2, [], ["a"]))
    found = parse(path.read_text(encoding="utf-8"))
    assert "snowball_turnout_ratio" not in found
    assert "snowball_clarity_ratio" not in found


def test_only_what_is_documented_is_written_and_counts_start_at_zero(tmp_path: Path) -> None:
    PrometheusFile(tmp_path / "snowball.prom")
    text = (tmp_path / "snowball.prom").read_text(encoding="utf-8")
    types = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")}
    assert types == {name: info.type for name, info in METRICS.items()}
    found = parse(text)
    assert found["snowball_events_total"] == {(kind,): 0 for kind in KINDS}
    assert found["snowball_rounds_total"] == {("aggregated",): 0, ("kept",): 0}


def test_two_federations_have_series_of_their_own(tmp_path: Path) -> None:
    report(PrometheusFile(tmp_path / "a.prom", federation='north "7"'), accuse(1, ["m"], ["a"]))
    (family, *_) = text_string_to_metric_families((tmp_path / "a.prom").read_text(encoding="utf-8"))
    assert {sample.labels["federation"] for sample in family.samples} == {'north "7"'}


@given(st.lists(st.text(max_size=5), unique=True, max_size=12))
def test_any_names_give_text_that_can_be_parsed_with_a_bounded_number_of_series(clients: list[str]) -> None:
    metrics, registry = make_registry("", max_sites=4)
    for number in range(2):
        metrics.count(make_event("round", number + 1, answered=clients, elected=clients))
    sites = parse(generate_latest(registry).decode()).get("snowball_site_rounds_total", {})
    labels = {site for _, site in sites}
    assert len(labels - {OTHER_SITES}) <= 4
    assert sum(sites.values()) == 2 * len(clients)


@pytest.mark.parametrize("client", ["\ud800", 'a"b\\c\nd', "x" * 10**6, '{site="b"} 1\n', "‮⁦", ""])
def test_hostile_names_cannot_break_the_file(client: str, tmp_path: Path) -> None:
    path = tmp_path / "snowball.prom"
    report(PrometheusFile(path), accuse(1, [client], ["a"]))
    sites = parse(path.read_text(encoding="utf-8"))["snowball_site_rounds_total"]
    assert len({site for _, site in sites}) == 2
    assert path.stat().st_size < 10**5


def test_a_file_that_cannot_be_written_later_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    listener = PrometheusFile(folder / "a.prom")
    (folder / "a.prom").unlink()
    folder.rmdir()
    report(listener, make_entry())
    assert "the listener PrometheusFile failed: " in caplog.text
    folder.mkdir()
    report(listener, make_entry(2))
    assert parse((folder / "a.prom").read_text(encoding="utf-8"))["snowball_round"] == {(): 2}


def test_a_file_that_nobody_reads_or_can_write_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"must end in \.prom"):
        PrometheusFile(tmp_path / "metrics.txt")
    with pytest.raises(RunError, match="cannot be used"):
        PrometheusFile(tmp_path / "missing" / "a.prom")
    with pytest.raises(SettingError, match="max_sites = 0 must be at least 1"):
        PrometheusFile(tmp_path / "a.prom", max_sites=0)


def fetch(endpoint: PrometheusEndpoint, query: str = "") -> str:
    address = f"http://127.0.0.1:{endpoint.server.server_port}/metrics{query}"
    with urllib.request.urlopen(address, timeout=10) as response:
        text: str = response.read().decode()
    return text


def test_the_endpoint_serves_what_the_file_has(tmp_path: Path) -> None:
    endpoint = PrometheusEndpoint(0)
    try:
        assert parse(fetch(endpoint))["snowball_rounds_total"] == {("aggregated",): 0, ("kept",): 0}
        entries = [accuse(number, ["m"], ["a"], asked=["a", "m"]) for number in (1, 2)]
        report(endpoint, *entries)
        report(PrometheusFile(tmp_path / "a.prom"), *entries)
        assert fetch(endpoint) == (tmp_path / "a.prom").read_text(encoding="utf-8")
        assert fetch(endpoint, "?name[]=unknown") == ""
    finally:
        endpoint.close()


def test_a_port_that_is_taken_or_cannot_be_is_refused_at_once() -> None:
    endpoint = PrometheusEndpoint(0)
    try:
        with pytest.raises(SettingError, match=r"port \d+ at '127.0.0.1' cannot be opened: Address already in use"):
            PrometheusEndpoint(endpoint.server.server_port)
    finally:
        endpoint.close()
    with pytest.raises(SettingError, match="port = 65536 must be between"):
        PrometheusEndpoint(65536)
    with pytest.raises(SettingError, match="cannot be opened"):
        PrometheusEndpoint(0, address="256.0.0.1")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for make in (lambda: PrometheusFile(tmp_path / "a.prom"), lambda: PrometheusEndpoint(0)):
        with pytest.raises(MissingExtra, match="pip install 'prometheus-client>="):
            make()
