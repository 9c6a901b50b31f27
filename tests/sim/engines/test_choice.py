import sys
from subprocess import run
from typing import Any

import pytest

from snowball.errors import SettingError
from snowball.sim.engines.choice import ENGINE_MAKERS, Device, EngineName, choose_engine
from snowball.sim.engines.processes import make_process_engine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.vmap import VmapEngine

SERIAL, PROCESSES, VMAP = EngineName.serial, EngineName.processes, EngineName.vmap


def choose(*arguments: Any) -> tuple[Any, dict[str, Any]]:
    engine: Any = choose_engine(*arguments)
    return engine.func, engine.keywords


def test_every_engine_can_be_made() -> None:
    assert set(ENGINE_MAKERS) == set(EngineName)


def test_a_gpu_trains_many_clients_at_once_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert choose(None, Device.cuda) == (VmapEngine, {"device": "cuda", "chunk": None})
    assert choose(VMAP, Device.cuda, None, 7) == (VmapEngine, {"device": "cuda", "chunk": 7})
    assert choose(SERIAL, Device.cuda) == (SerialEngine, {"device": "cuda"})
    for name in (PROCESSES, EngineName.flower):
        with pytest.raises(SettingError, match=r"^--device cuda trains in one process"):
            choose_engine(name, Device.cuda)


def test_a_cpu_trains_many_clients_at_once_where_it_is_asked_to() -> None:
    assert choose(None, Device.cpu, 3) == (make_process_engine, {"workers": 3})
    assert choose(VMAP, Device.cpu, None, 3) == (VmapEngine, {"device": "cpu", "chunk": 3})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((VMAP, Device.cpu, 2), "--workers 2 needs --engine processes, not vmap"),
        ((SERIAL, Device.cpu, 2), "--workers 2 needs --engine processes, not serial"),
        ((SERIAL, Device.cpu, None, 4), "--chunk 4 needs --engine vmap, not serial"),
        ((None, Device.cpu, None, 4), "--chunk 4 needs --engine vmap, not processes"),
    ],
)
def test_options_of_another_engine_are_refused(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        choose_engine(*arguments)
    assert str(caught.value) == sentence


def test_workers_are_on_their_way_before_this_process_imports_torch() -> None:
    program = """
import sys
import snowball.sim.engines.choice as engines

def start_forkserver():
    assert "torch" not in sys.modules
    print("started")

engines.start_forkserver = start_forkserver
engines.choose_engine()
assert "torch" in sys.modules
"""
    assert run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "started\n"
