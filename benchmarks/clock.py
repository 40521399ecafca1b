"""What a call costs: CPU seconds over all threads, wall seconds, and memory it held at its peak."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

__all__ = ["Cost", "measured"]

T = TypeVar("T")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Cost(NamedTuple):
    """CPU and wall seconds; megabytes above what the process held before (None: unknown)."""

    cpu: float
    wall: float
    memory: float | None

    def figures(self) -> dict[str, float]:
        """As figures of an entry."""
        own = {"cpu": self.cpu, "wall": self.wall}
        return own if self.memory is None else own | {"memory": self.memory}


def measured(call: Callable[[], T]) -> tuple[T, Cost]:
    """Call, and tell the cost.

    Freed memory is given back to the system first, and the kernel's record of
    the largest resident size is set back (proc(5): 5 written to clear_refs), so
    that neither data, nor imports, nor a warm-up counts: the rise is the call's own.
    """
    gc.collect()
    before = _start_of_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = None if before is None else _resident("VmHWM")
    rise = None if before is None or peak is None else max(peak - before, 0.0)
    return value, Cost(cpu, wall, rise)


def _start_of_memory() -> float | None:
    """Resident megabytes now, from where the peak counts; None where the kernel cannot tell."""
    if not sys.platform.startswith("linux"):
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl not
    if trim is not None:
        trim(ctypes.c_size_t(0))
    try:
        _CLEAR.write_text("5")
    except OSError:  # a container may forbid it
        return None
    return _resident("VmRSS")


def _resident(name: str) -> float | None:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return None
