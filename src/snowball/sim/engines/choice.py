"""Choice of the engine that trains a run's clients. Torch is imported only by the engine that is chosen."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from snowball.errors import SettingError
from snowball.sim.engines.forkserver import pause_collection, start_forkserver

if TYPE_CHECKING:
    from snowball.sim.engines.base import Engine
    from snowball.sim.federation import Federation


class EngineName(StrEnum):
    """Names of the engines: one client after the other, on all cores, stacked, or over Flower."""

    serial = "serial"
    processes = "processes"
    vmap = "vmap"
    flower = "flower"


class Device(StrEnum):
    """Devices that clients are trained on."""

    cpu = "cpu"
    cuda = "cuda"


def choose_engine(
    name: EngineName | None = None, device: Device = Device.cpu, workers: int | None = None, chunk: int | None = None
) -> "Callable[[Federation], Engine]":
    """Return what makes the named engine, or the fastest engine for the device."""
    if device is Device.cuda:
        require_gpu(name, workers)
    chosen = name or (EngineName.vmap if device is Device.cuda else EngineName.processes)
    if workers and chosen in (EngineName.serial, EngineName.vmap):
        raise SettingError(f"--workers {workers} needs --engine processes, not {chosen}")
    if chunk and chosen is not EngineName.vmap:
        raise SettingError(f"--chunk {chunk} needs --engine vmap, not {chosen}")
    with pause_collection():
        return ENGINE_MAKERS[chosen](device, workers, chunk)


def require_gpu(name: EngineName | None, workers: int | None) -> None:
    """Refuse options that exclude a GPU, and a machine without one."""
    import torch

    if name in (EngineName.processes, EngineName.flower) or workers:
        raise SettingError("--device cuda trains in one process: leave --engine and --workers out")
    if not torch.cuda.is_available():
        raise SettingError(f"--device cuda needs a GPU, and torch {torch.__version__} finds none")


def make_serial(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """Train one client after the other."""
    from snowball.sim.engines.serial import SerialEngine

    return partial(SerialEngine, device=device.value)


def make_processes(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """Train on all cores."""
    start_forkserver()  # it imports torch for the workers while this process imports its own
    from snowball.sim.engines.processes import count_cores, make_process_engine

    return partial(make_process_engine, workers=workers or count_cores())


def make_vmap(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """Train many clients at once."""
    from snowball.sim.engines.vmap import VmapEngine

    return partial(VmapEngine, device=device.value, chunk=chunk)


def make_flower(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """Train over Flower."""
    from snowball.sim.engines.flower import FlowerEngine
    from snowball.sim.engines.processes import count_cores

    return partial(FlowerEngine, workers=workers or count_cores())


ENGINE_MAKERS = {
    EngineName.serial: make_serial,
    EngineName.processes: make_processes,
    EngineName.vmap: make_vmap,
    EngineName.flower: make_flower,
}
