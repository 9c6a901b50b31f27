"""Runs benchmarks in separate processes."""

import os
import subprocess
import sys
from collections.abc import Mapping

from benchmarks.files import ROOT


def run_module(module: str, *arguments: str, environment: Mapping[str, str] = os.environ) -> str:
    """Run a module of this package in a new process, and return its output."""
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    environment = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, text=True).stdout
