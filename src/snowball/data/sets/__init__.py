"""Loaders of data sets, one per file."""
