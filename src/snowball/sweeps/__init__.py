"""Sweeps: grids of experiments, run into one folder and resumed after an interruption."""
