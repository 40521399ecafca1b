"""Measurements in a fresh process, so that sides do not affect each other.

The child process gets a function's name and arguments as JSON and writes the result as
JSON. Its environment is the same except for OpenMP: waiting threads do not spin, as
spinning would count as CPU time.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Failed", "ask"]

ROOT = Path(__file__).resolve().parents[1]
PASSIVE = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}


class Failed(Exception):  # noqa: N818 - an outcome of a peer, not a mistake of ours
    """A measurement without figures; the text is the reason."""


def ask(
    function: Callable[..., dict[str, float]],
    *arguments: Any,
    apart: bool,
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Call a module's `function` with JSON-like arguments; raise `Failed` if it fails.

    Parameters
    ----------
    apart : bool
        Run in a separate process, or in this one (toy size).
    limit : float
        Maximum wall seconds of that process.
    environment : mapping, optional
        Additional environment variables of the process.
    """
    if not apart:
        return function(*arguments)
    name = f"{function.__module__}:{function.__qualname__}"
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "benchmarks.apart", name, str(answer)]
        given = {**os.environ, **PASSIVE, **(environment or {})}
        given["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        try:
            done = subprocess.run(
                command, input=json.dumps(arguments), env=given, timeout=limit,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(f"more than {limit:.0f} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"]
            raise Failed(lines[-1])
        return json.loads(answer.read_text())


def main() -> None:
    """Run the child process."""
    name, answer = sys.argv[1:]
    module, function = name.split(":")
    call = getattr(importlib.import_module(module), function)
    Path(answer).write_text(json.dumps(call(*json.load(sys.stdin))))


if __name__ == "__main__":
    main()
