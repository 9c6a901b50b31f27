"""Which engine trains a run's clients. Torch is imported by those that are chosen, and not before."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from snowball.errors import SettingError
from snowball.sim.engines.forkserver import warm

if TYPE_CHECKING:
    from snowball.sim.engines.base import Engine
    from snowball.sim.federation import Federation


class EngineName(StrEnum):
    """How clients are trained: one after the other, on all cores, many at once, or over Flower."""

    serial = "serial"
    processes = "processes"
    vmap = "vmap"
    flower = "flower"


class Device(StrEnum):
    """What they are trained on."""

    cpu = "cpu"
    cuda = "cuda"


def choose(
    name: EngineName | None = None, device: Device = Device.cpu, workers: int | None = None, chunk: int | None = None
) -> "Callable[[Federation], Engine]":
    """The engine that was asked for, or the fastest one for the device."""
    if device is Device.cuda:
        require_gpu(name, workers)
    chosen = name or (EngineName.vmap if device is Device.cuda else EngineName.processes)
    if workers and chosen in (EngineName.serial, EngineName.vmap):
        raise SettingError(f"--workers {workers} needs --engine processes, not {chosen}")
    if chunk and chosen is not EngineName.vmap:
        raise SettingError(f"--chunk {chunk} needs --engine vmap, not {chosen}")
    return MAKERS[chosen](device, workers, chunk)


def require_gpu(name: EngineName | None, workers: int | None) -> None:
    """Refuse what cannot be trained on a GPU, or where there is none."""
    import torch

    if name in (EngineName.processes, EngineName.flower) or workers:
        raise SettingError("--device cuda trains in one process: leave --engine and --workers out")
    if not torch.cuda.is_available():
        raise SettingError(f"--device cuda needs a GPU that torch {torch.__version__} can use, and it finds none")


def serial(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """One client after the other."""
    from snowball.sim.engines.serial import Serial

    return partial(Serial, device=device.value)


def processes(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """On all cores."""
    warm()  # imports torch for the workers, while this process imports its own
    from snowball.sim.engines.processes import Processes, cores

    return partial(Processes, workers=workers or cores())


def vmap(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """Many at once."""
    from snowball.sim.engines.vmap import Stacked

    return partial(Stacked, device=device.value, chunk=chunk)


def flower(device: Device, workers: int | None, chunk: int | None) -> "Callable[[Federation], Engine]":
    """Over Flower."""
    from snowball.sim.engines.flower import Simulated
    from snowball.sim.engines.processes import cores

    return partial(Simulated, workers=workers or cores())


MAKERS = {
    EngineName.serial: serial,
    EngineName.processes: processes,
    EngineName.vmap: vmap,
    EngineName.flower: flower,
}
