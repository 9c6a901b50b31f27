import runpy
from pathlib import Path
from typing import Any

import pytest

from snowball.errors import SettingError
from snowball.guard import Guard
from snowball.guard.alerts import LISTENERS, Event, PrometheusFile, Webhook, build_listeners, check_listeners

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))

OWN = """
from dataclasses import dataclass

heard = []

def note(event, prefix: str = ""):
    heard.append(prefix + event.kind)

@dataclass
class Pager:
    number: str

    def __call__(self, event):
        heard.append(self.number)

class Plain:
    def __call__(self, event):
        heard.append("plain")

@dataclass
class Deaf:
    number: str = ""
"""


def listen(event: Event) -> None:
    """Do nothing."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module with listeners."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"own_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    return name


def test_listeners_are_functions_or_names_with_settings_one_or_several(tmp_path: Path) -> None:
    chosen = {"webhook": {"url": "https://host/", "kinds": ["kept"]}, "prometheus-file": {"file": f"{tmp_path}/a.prom"}}
    hook, file = build_listeners(chosen)
    assert isinstance(hook, Webhook)
    assert (hook.url, hook.kinds, hook.retries) == ("https://host/", ("kept",), 3)
    assert isinstance(file, PrometheusFile)
    assert [type(each) for each in build_listeners([chosen])] == [Webhook, PrometheusFile]
    assert build_listeners([listen, hook]) == (listen, hook)
    assert build_listeners(listen) == (listen,)
    assert build_listeners(None) == build_listeners(()) == build_listeners({}) == ()


def test_nothing_is_opened_by_a_check(tmp_path: Path) -> None:
    check_listeners({"prometheus-file": {"file": f"{tmp_path}/a.prom"}, "webhook": {"url": "$NOT_SET_HERE"}})
    assert list(tmp_path.iterdir()) == []


def test_own_listeners_are_found_by_module_and_name(own: str) -> None:
    chosen = [f"{own}:note", {f"{own}:note": {"prefix": "a "}, f"{own}:Pager": {"number": "112"}}]
    for listener in build_listeners(chosen):
        listener(SHARED["make_event"]())
    assert runpy.run_module(own)["heard"] == []
    assert __import__(own).heard == ["kept", "a kept", "112"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("webhok", "listeners = 'webhok' is not known; did you mean 'webhook'?"),
        ({"webhook": {}}, "listeners.webhook.url is missing"),
        ("webhook", "listeners.webhook.url is missing"),
        ({"webhook": {"ulr": ""}}, "listeners.webhook.ulr is not a setting of webhook; did you mean 'url'?"),
        (
            {"webhook": {"url": "http://a/", "retries": "3"}},
            'listeners.webhook.retries = "3" should be a valid integer',
        ),
        ({"webhook": {"url": "http://a/", "kinds": ["keep"]}}, "listeners.webhook.kinds"),
        ({"webhook": "http://a/"}, "listeners.webhook must be a dict of settings, got str"),
        ({"prometheus-endpoint": {"port": True}}, "listeners.prometheus-endpoint.port = true"),
        (5, "a listener is a function, the name of a listener, or a dict"),
        ([None], "a listener is a function, the name of a listener, or a dict"),
        ([Webhook], "or a dict such as .*, got Webhook"),
    ],
)
def test_listeners_that_cannot_be_are_refused(given: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        Guard(listeners=given)


@pytest.mark.parametrize(("name", "reason"), [("Plain", "it is not a dataclass"), ("Deaf", "it has no __call__")])
def test_own_classes_that_cannot_listen_are_refused(own: str, name: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        build_listeners(f"{own}:{name}")


def test_every_listener_says_what_its_settings_mean() -> None:
    from snowball.setting_docs import describe_choice

    for listener in LISTENERS.values():
        assert all(setting.meaning for setting in describe_choice(listener))
