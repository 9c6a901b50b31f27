"""Inputs of benchmarks: captured rounds, and synthetic rows and samples."""
