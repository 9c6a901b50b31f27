"""The example app on Flower's real engines: SuperLink, SuperNodes and apps, each in a process."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="Flower's engines need flwr >= 1.41: `make test-flower` has it")

from flower_processes import Laboratory, Process, wait_for_id
from readme_commands import find_command

pytestmark = pytest.mark.slow

APP = Path(__file__).parents[3] / "examples" / "flower"
README = APP / "README.md"
SITES = 8
NAMES = {f"site-{site}" for site in range(1, SITES + 1)}
HOSTILE = "site-6"


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    laboratory = Laboratory(tmp_path, APP)
    try:
        yield laboratory
    finally:
        laboratory.close()


def read_names(out: Path) -> dict[str, str]:
    names: dict[str, str] = tomllib.loads((out / "names.toml").read_text())["sites"]
    return names


def read_audit(out: Path) -> list[dict[str, Any]]:
    """Return the rounds, with sites by name."""
    names = read_names(out)
    entries = [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]
    for entry in entries:
        for part in ("asked", "answered", "silent", "left_out", "suspects", "averaged"):
            entry[part] = {names.get(client, client) for client in entry[part]}
        entry["dropped"] = {names.get(fault["client"], fault["client"]): fault["reason"] for fault in entry["dropped"]}
    return entries


def last_accuracy(out: Path) -> dict[str, float]:
    last: dict[str, float] = json.loads((out / "accuracy.jsonl").read_text().splitlines()[-1])
    return last


def test_the_simulation_of_the_readme_leaves_the_hostile_site_out(laboratory: Laboratory, tmp_path: Path) -> None:
    laboratory.start_superlink("--insecure", "--simulation")
    command = find_command(README, "flwr run examples/flower local")
    out, size = tmp_path / "out", command[command.index("--federation-config") + 1]
    run = laboratory.run(out, size, rounds=3)
    assert run.wait() == 0, run.log.read_text()
    entries = read_audit(out)
    assert set(read_names(out).values()) == NAMES
    assert [(entry["round"], entry["outcome"], entry["defense"]) for entry in entries] == [
        (number, "aggregated", "snowball-plus") for number in (1, 2, 3)
    ]
    for entry in entries:
        assert entry["asked"] == entry["answered"] == NAMES
        assert (entry["suspects"], entry["averaged"]) == ({HOSTILE}, NAMES - {HOSTILE})
    assert last_accuracy(out)["main_accuracy"] > 0.8
    assert last_accuracy(out)["backdoor_accuracy"] < 0.05


def test_sites_of_the_readme_send_nan_and_die(laboratory: Laboratory, tmp_path: Path) -> None:
    laboratory.start_superlink("--insecure")
    nodes = [laboratory.start_supernode(site, SITES, "--insecure") for site in range(SITES)]
    for node in nodes:
        wait_for_id(node)
    out, again = tmp_path / "out", tmp_path / "again"
    run = laboratory.run(out, rounds=1, hostile="2", behaviour="nan")
    assert run.wait() == 0, run.log.read_text()
    (entry,) = read_audit(out)
    assert entry["asked"] == entry["answered"] == NAMES
    assert entry["dropped"] == {"site-2": "not-finite"}
    assert "site-2" not in entry["averaged"]
    assert all(torch.isfinite(tensor).all() for tensor in load_file(out / "model.safetensors").values())

    victim = nodes[4]
    before = len(victim.find_in_log("Start `flwr-clientapp`"))
    run = laboratory.run(again, rounds=1, hostile="", timeout=300.0)
    victim.wait_for_log("Start `flwr-clientapp`", before + 2)  # the first tells its name
    victim.kill()
    assert run.wait() == 0, run.log.read_text()
    (entry,) = read_audit(again)
    assert entry["outcome"] == "aggregated"
    assert "site-5" in {*entry["silent"], *entry["dropped"]}
    assert "site-5" not in entry["averaged"]


def test_with_tls_and_keys_a_restarted_site_keeps_its_id(tmp_path: Path) -> None:
    keys, out = tmp_path / "keys", tmp_path / "out"
    subprocess.run([sys.executable, APP / "certificates.py", keys, "2"], check=True, timeout=60)
    laboratory = Laboratory(tmp_path, APP, keys)
    tls = [word.replace("keys/", f"{keys}/") for word in find_command(README, "flower-superlink --host")[5:]]

    def join(client: int) -> Process:
        key = ("--auth-supernode-private-key", keys / f"supernode-{client}")
        return laboratory.start_supernode(client, 2, "--root-certificates", keys / "ca.crt", *key)

    def one_round() -> None:
        run = laboratory.run(out, rounds=1, defense="fedavg", hostile="", sizes="100,100")
        assert run.wait() == 0, run.log.read_text()

    try:
        laboratory.start_superlink(*tls)
        for client in range(2):
            register = laboratory.start("register", "flwr", "supernode", "register", keys / f"supernode-{client}.pub")
            assert register.wait() == 0, register.log.read_text()
        nodes = [join(client) for client in range(2)]
        ids = [wait_for_id(node) for node in nodes]
        one_round()
        nodes[0].stop()
        assert wait_for_id(join(0)) == ids[0]
        one_round()
        first, second = read_audit(out)
        assert (first["round"], second["round"]) == (1, 2)
        assert first["averaged"] == second["averaged"] == {"site-1", "site-2"}
        assert read_names(out) == {ids[0]: "site-1", ids[1]: "site-2"}
    finally:
        laboratory.close()
