"""The example app on Flower's real engines: SuperLink, SuperNodes and apps, each in a process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="Flower's engines need flwr >= 1.41: `make test-flower` has it")

from flower_processes import Laboratory, Process, wait_for_id

pytestmark = pytest.mark.slow

APP = Path(__file__).parents[3] / "examples" / "flower"
BACKDOOR, NAN, SLOW = 0, 1, 5


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    laboratory = Laboratory(tmp_path, APP)
    try:
        yield laboratory
    finally:
        laboratory.close()


def audit(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]


def last_accuracy(out: Path) -> dict[str, float]:
    last: dict[str, float] = json.loads((out / "accuracy.jsonl").read_text().splitlines()[-1])
    return last


def test_six_sites_one_of_them_backdoored_and_one_broken(laboratory: Laboratory, tmp_path: Path) -> None:
    """Multi-Krum tolerates one of the five valid replies and averages three."""
    laboratory.start_superlink("--insecure")
    nodes = [laboratory.start_supernode(client, 6, "--insecure") for client in range(6)]
    ids = [wait_for_id(node) for node in nodes]
    out = tmp_path / "out"
    run = laboratory.run(out, rounds=2, backdoor=str(BACKDOOR), nan=str(NAN))
    assert run.wait() == 0, run.log.read_text()
    entries = audit(out)
    assert [(entry["round"], entry["outcome"]) for entry in entries] == [(1, "aggregated"), (2, "aggregated")]
    for entry in entries:
        assert sorted(entry["asked"]) == sorted(entry["answered"]) == sorted(ids)
        assert [(fault["client"], fault["reason"]) for fault in entry["dropped"]] == [(ids[NAN], "not-finite")]
        assert ids[BACKDOOR] in entry["left_out"]
        assert len(entry["averaged"]) == 3
        assert set(entry["averaged"]) <= {ids[client] for client in range(6) if client not in (BACKDOOR, NAN)}
    assert all(torch.isfinite(tensor).all() for tensor in load_file(out / "model.safetensors").values())
    assert last_accuracy(out)["main_accuracy"] > 0.7
    assert last_accuracy(out)["backdoor_accuracy"] < 0.2

    slow, again = nodes[SLOW], tmp_path / "again"
    before = len(slow.find_in_log("Start `flwr-clientapp`"))
    run = laboratory.run(again, rounds=1, backdoor="", nan=str(NAN), slow=str(SLOW), timeout=300.0)
    slow.wait_for_log("Start `flwr-clientapp`", before + 1)
    slow.kill()
    assert run.wait() == 0, run.log.read_text()
    (entry,) = audit(again)
    assert entry["outcome"] == "aggregated"
    assert ids[SLOW] in {*entry["silent"], *(fault["client"] for fault in entry["dropped"])}
    assert ids[SLOW] not in entry["averaged"]


def test_with_tls_and_keys_a_restarted_site_keeps_its_id(tmp_path: Path) -> None:
    keys, out = tmp_path / "keys", tmp_path / "out"
    subprocess.run([sys.executable, APP / "certificates.py", keys, "2"], check=True, timeout=60)
    laboratory = Laboratory(tmp_path, APP, keys)
    tls = (
        "--ssl-ca-certfile",
        keys / "ca.crt",
        "--ssl-certfile",
        keys / "server.pem",
        "--ssl-keyfile",
        keys / "server.key",
    )

    def join(client: int) -> Process:
        key = ("--auth-supernode-private-key", keys / f"supernode-{client}")
        return laboratory.start_supernode(client, 2, "--root-certificates", keys / "ca.crt", *key)

    def one_round() -> None:
        settings = {"nodes": 2, "defense": "none", "backdoor": "", "nan": "", "examples": 100}
        run = laboratory.run(out, rounds=1, **settings)
        assert run.wait() == 0, run.log.read_text()

    try:
        laboratory.start_superlink(*tls, "--enable-supernode-auth")
        for client in range(2):
            register = laboratory.start("register", "flwr", "supernode", "register", keys / f"supernode-{client}.pub")
            assert register.wait() == 0, register.log.read_text()
        nodes = [join(client) for client in range(2)]
        ids = [wait_for_id(node) for node in nodes]
        one_round()
        nodes[0].stop()
        assert wait_for_id(join(0)) == ids[0]
        one_round()
        first, second = audit(out)
        assert (first["round"], second["round"]) == (1, 2)
        assert sorted(first["averaged"]) == sorted(second["averaged"]) == sorted(ids)
    finally:
        laboratory.close()


def test_the_app_runs_on_the_simulation_engine(laboratory: Laboratory, tmp_path: Path) -> None:
    laboratory.start_superlink("--insecure", "--simulation")
    settings = {"nodes": 12, "defense": "snowball", "backdoor": "0,1", "nan": "2", "examples": 100}
    run = laboratory.run(tmp_path / "out", "num-supernodes=12 client-resources-num-cpus=1", rounds=1, **settings)
    assert run.wait() == 0, run.log.read_text()
    (entry,) = audit(tmp_path / "out")
    assert (len(entry["asked"]), len(entry["answered"])) == (12, 12)
    assert [fault["reason"] for fault in entry["dropped"]] == ["not-finite"]
    assert entry["outcome"] == "aggregated"
