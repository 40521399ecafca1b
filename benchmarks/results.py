"""Results files, one per benchmark, with machine, versions, settings and all rounds."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.frame import RESULTS, Measured, Result

__all__ = ["about", "machine", "read", "write"]

_NAMED = (
    "treekit", "numpy", "numba", "scikit-learn", "ydf", "lightgbm", "xgboost", "onnxruntime",
    "skl2onnx", "m2cgen", "tl2cgen", "treelite", "pandas", "imodels",
)  # fmt: skip


def about(settings: dict[str, Any], rounds: int, limit: float) -> dict[str, Any]:
    """Return the facts needed to repeat a run."""
    now = dt.datetime.now(dt.UTC)
    return {
        "date": now.isoformat(timespec="minutes"),
        "machine": machine(),
        "versions": versions(),
        "settings": settings,
        "rounds": rounds,
        "limit": limit,
    }


def machine() -> dict[str, Any]:
    """Return processor, cores, memory and kernel, without names of hosts or folders."""
    cpu = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        own = dict(
            (part.strip() for part in line.split(":", 1))
            for line in facts.read_text().split("\n\n")[0].splitlines()
            if ":" in line
        )
        named = {"family": own.get("cpu family"), "model": own.get("model")}
        cpu = own.get("model name", cpu) + "".join(f", {k} {v}" for k, v in named.items() if v)
    found: dict[str, Any] = {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory GB"] = round(total / 2**30, 1)
    return found


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed libraries."""
    from treekit import __version__

    found = {"Python": platform.python_version(), "treekit": __version__}
    for name in _NAMED[1:]:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write(result: Result, folder: Path = RESULTS) -> Path:
    """Store a result and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = {
        case: {
            side: {"failed": own.failed} if own.failed else {"rounds": _short(own.rounds)}
            for side, own in sides.items()
        }
        for case, sides in result.cases.items()
    }
    path = folder / f"{result.name}.json"
    path.write_text(json.dumps({**result.about, "cases": cases}, indent=1) + "\n")
    return path


def _short(rounds: list[dict[str, float]]) -> list[dict[str, float]]:
    """Round figures to six digits, more than their precision."""
    return [{key: float(f"{value:.6g}") for key, value in one.items()} for one in rounds]


def read(name: str, folder: Path = RESULTS) -> Result | None:
    """Load a stored result; None if there is none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    cases = {
        case: {
            side: Measured(own.get("rounds", []), own.get("failed", ""))
            for side, own in sides.items()
        }
        for case, sides in stored.pop("cases").items()
    }
    return Result(name, cases, stored)
