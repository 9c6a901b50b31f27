"""Writes the measured tables of the documentation: see pages.py."""

from benchmarks.tables.pages import main

main()
