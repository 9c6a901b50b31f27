"""Engines: ways to train a round's cohort that differ in speed alone."""
