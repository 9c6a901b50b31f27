"""Benchmarks of how well defenses hold."""
