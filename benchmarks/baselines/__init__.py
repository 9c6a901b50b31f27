"""Baselines for the speed measurements: the same work, done by code that shares nothing with the package."""
