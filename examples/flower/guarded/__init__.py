"""A Flower app with a guarded strategy."""
