import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small_run import SMALL_RUN, read_results

from snowball.sim.run import run_experiment


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of the small run if nothing stops it."""
    path = tmp_path_factory.mktemp("whole") / "run"
    list(run_experiment(SMALL_RUN, path))
    return read_results(path)
