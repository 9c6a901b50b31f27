"""Benchmarks that justify the default settings."""
