"""Costs of a call: CPU seconds over all threads, wall seconds and peak memory."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

__all__ = ["Cost", "measured", "peak", "reset_peak"]

T = TypeVar("T")


class Cost(NamedTuple):
    """CPU and wall seconds, and peak megabytes above the memory before the call (None: unknown)."""

    cpu: float
    wall: float
    memory: float | None

    def figures(self) -> dict[str, float]:
        """Return the costs as figures of an entry."""
        own = {"cpu": self.cpu, "wall": self.wall}
        return own if self.memory is None else own | {"memory": self.memory}


def measured(call: Callable[[], T]) -> tuple[T, Cost]:
    """Call a function and measure its cost.

    Freed memory is first returned to the system, and the kernel's record of the largest
    resident size is reset (proc(5): 5 written to clear_refs), so that data, imports and
    warm-up do not count.
    """
    gc.collect()
    before = reset_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    highest = None if before is None else peak()
    rise = None if before is None or highest is None else max(highest - before, 0.0)
    return value, Cost(cpu, wall, rise)


def reset_peak(process: int | None = None) -> float | None:
    """Reset the peak of a process, by default this one, and return its resident megabytes.

    None if the system does not support it.
    """
    if not sys.platform.startswith("linux"):
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl not
    if trim is not None and process is None:
        trim(ctypes.c_size_t(0))
    try:
        Path("/proc", str(process or "self"), "clear_refs").write_text("5")
    except OSError:  # a container may forbid it
        return None
    return _resident("VmRSS", process)


def peak(process: int | None = None) -> float | None:
    """Return the largest resident megabytes since the reset; None if unknown."""
    return _resident("VmHWM", process) if sys.platform.startswith("linux") else None


def _resident(name: str, process: int | None) -> float | None:
    for line in Path("/proc", str(process or "self"), "status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return None
