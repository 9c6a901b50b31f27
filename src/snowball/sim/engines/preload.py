"""Imports what workers need, in the process that they are forked from."""

import gc

from snowball.sim.engines.forkserver import pause_collection

with pause_collection():
    import snowball.sim.engines.worker  # noqa: F401

gc.freeze()  # collections in a worker leave these objects alone, and so the memory that all workers share
