"""A simulation that trains its clients on SuperNodes, here all on the loopback address."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from snowball.sim.presets import load_experiment
from snowball.sim.run import run_experiment

pytest.importorskip("flwr", reason="Flower's engines need flwr >= 1.41: `make test-flower` has it")

from flower_processes import Laboratory, wait_for_id

PAGE = Path(__file__).parents[3] / "docs" / "scale-out.md"
SMALL = ["rounds=1", "data.clients=10", "cohort=5", "data.examples=100", "training.epochs=1"]


def records(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.slow
def test_a_supernode_that_is_killed_costs_time_and_no_record(tmp_path: Path) -> None:
    """The app is the documentation's, and its records equal those of one process."""
    app, out = tmp_path / "app", tmp_path / "out"
    app.mkdir()
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (app / "pyproject.toml").write_text(toml)
    laboratory = Laboratory(tmp_path, app)
    try:
        laboratory.start_superlink("--insecure")
        nodes = [laboratory.start_supernode(number, 2, "--insecure") for number in range(2)]
        for node in nodes:
            wait_for_id(node)
        flower = laboratory.run(out, preset="demo", set=" ".join(SMALL))
        nodes[1].wait_for_log("Start `flwr-clientapp`")
        nodes[1].kill()
        assert flower.wait() == 0, flower.log.read_text()
        assert flower.find_in_log("clients were lost with their SuperNode and are sent again")
    finally:
        laboratory.close()
    list(run_experiment(load_experiment("demo", SMALL), tmp_path / "serial"))
    assert records(out) == records(tmp_path / "serial")
