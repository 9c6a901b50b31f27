"""Builds listeners from their names and plain settings, as they come from TOML, JSON or an NVFlare job."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from snowball.errors import SettingError
from snowball.guard.alerts.events import Listener
from snowball.guard.alerts.prometheus import PrometheusEndpoint, PrometheusFile
from snowball.guard.alerts.webhook import Webhook
from snowball.registry import Registry, require_dataclass
from snowball.settings import Settings, complete_settings, require_known

EXPECTED = 'a function, the name of a listener, or a dict such as {"webhook": {"url": "$WEBHOOK"}}'

Choice = Listener | str | Mapping[str, Mapping[str, Any]]
"""How an operator chooses a listener: a function, a name, or names with settings."""

Chosen = Listener | tuple[str, Settings]
"""A listener, or the name of one with its complete settings."""


def require_listener(name: str, found: Any) -> Any:
    """Refuse a class that is not a dataclass: its fields are its settings."""
    return require_dataclass(name, found) if isinstance(found, type) else found


LISTENERS: Registry[Callable[..., Any]] = Registry(
    "snowball.listeners",
    {"prometheus-file": PrometheusFile, "prometheus-endpoint": PrometheusEndpoint, "webhook": Webhook},
    required_attributes=("__call__",),
    adapt=require_listener,
)


def build_listeners(given: Choice | Iterable[Choice] | None) -> tuple[Listener, ...]:
    """Build listeners; ports and files are opened here."""
    return tuple(make_listener(*each) if isinstance(each, tuple) else each for each in check_listeners(given))


def check_listeners(given: Choice | Iterable[Choice] | None) -> list[Chosen]:
    """Check what an operator passes as listeners, without building them; it may run on another machine."""
    if given is None:
        return []
    single = isinstance(given, str | Mapping) or callable(given) or not isinstance(given, Iterable)
    choices: Iterable[Any] = [given] if single else given  # type: ignore[assignment]
    return [chosen for each in choices for chosen in check_listener(each)]


def check_listener(given: Any) -> Iterator[Chosen]:
    """Yield one listener, or as many as a mapping has."""
    if isinstance(given, str):
        yield complete_listener(given, {})
    elif isinstance(given, Mapping):
        for name, settings in given.items():
            yield complete_listener(str(name), settings)
    elif callable(given) and not isinstance(given, type):
        yield given
    else:
        raise SettingError(f"a listener is {EXPECTED}, got {getattr(given, '__name__', type(given).__name__)}")


def complete_listener(name: str, settings: Any) -> tuple[str, Settings]:
    """Return the name and the complete settings of a listener."""
    chosen = LISTENERS[require_known("listeners", name, LISTENERS)]
    path = f"listeners.{name}"
    if not isinstance(settings, Mapping):
        raise SettingError(f"{path} must be a dict of settings, got {type(settings).__name__}")
    return name, complete_settings(path, name, chosen, dict(settings), {})


def make_listener(name: str, settings: Settings) -> Listener:
    """Make a listener from complete settings; those of a function are its further arguments."""
    chosen = LISTENERS[name]
    listener: Listener = chosen(**settings) if isinstance(chosen, type) else partial(chosen, **settings)
    return listener
