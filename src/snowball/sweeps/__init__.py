"""Sweeps: grids of experiments, run into one folder and resumed where they stopped."""
