"""Executors of a sweep's runs: processes on this machine, or tasks on a Ray cluster."""
