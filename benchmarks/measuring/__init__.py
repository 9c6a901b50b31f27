"""Clocks, memory, arithmetic, and what a benchmark ran on."""
