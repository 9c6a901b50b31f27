"""A Flower app whose strategy is guarded."""
