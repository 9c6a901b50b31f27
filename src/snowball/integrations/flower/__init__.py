"""Flower: a guard in front of any strategy. Needs flwr 1.41 or later and its message API.

`Guarded(strategy)` wraps a strategy and passes it only the replies that may be averaged. `GuardedFedAvg` is FedAvg with
the defense's own aggregate, for defenses that clip, add noise or take medians instead of electing.

Both take a `Guard` or its settings, and `state`: a file that is read at the start, if it exists, and written after
every round, so that a restarted server continues with the guard's round, seed and memory. Clients cannot make them
raise. `read_listeners` finds the guard's listeners in an app's configuration.
"""

from snowball.errors import MissingExtra

try:
    from snowball.integrations.flower.listeners import read_listeners
    from snowball.integrations.flower.strategies import Guarded, GuardedFedAvg
except ImportError as error:
    raise MissingExtra(
        f"Flower's strategies need flwr 1.41 or later, {error}: pip install 'flwr[simulation]>=1.41'"
    ) from error

__all__ = ["Guarded", "GuardedFedAvg", "read_listeners"]
