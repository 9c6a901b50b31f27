"""Executors of a sweep's runs: in processes on this machine, or as tasks on a Ray cluster."""
