"""Flower: a guard in front of the strategy you have. Needs flwr 1.41 or later and its message API.

`Guarded(strategy)` holds any strategy and hands it the replies that may be averaged, and no others. `GuardedFedAvg` is
FedAvg whose aggregate is the defense's own: for those that clip, add noise or take medians instead of electing.

Both take a `Guard`, or its settings, and `state`, a file that is read at the start, if it is there, and written after
every round, so that a server that starts anew goes on with the guard's round, seed and memory. Clients cannot raise.
"""

from snowball.errors import MissingExtra

try:
    from snowball.integrations.flower.strategies import Guarded, GuardedFedAvg
except ImportError as error:
    raise MissingExtra(
        f"Flower's strategies need flwr 1.41 or later, {error}: pip install 'snowball-fl[flower]'"
    ) from error

__all__ = ["Guarded", "GuardedFedAvg"]
