"""Judges defenses: see judge.py."""

import sys

from benchmarks.strength.judge import main

sys.exit(main())
