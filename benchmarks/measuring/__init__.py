"""Measures time, memory and arithmetic, and describes the machine."""
