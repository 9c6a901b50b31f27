"""Benchmarks of speed and memory, and of how both grow."""
