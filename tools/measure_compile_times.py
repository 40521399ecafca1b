"""Measure how long kernels take to compile, for `_USUAL_SECONDS` of `treekit.kernels.compile`.

Run in the project's folder, on a quiet machine: python tools/measure_compile_times.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from numba.core import event

from treekit.kernels.compile import CompilationReport
from treekit.warm_up import KINDS, train_example

CASES: dict[str, dict[str, Any]] = {
    "gini": {"target": "dear", "pruner": "cost_complexity"},
    "gini, numbers": {"target": "dear", "levels": False},
    "c45": {"target": "dear", "algorithm": "c45"},
    "c45, numbers": {"target": "dear", "algorithm": "c45", "levels": False},
    "surrogates": {"target": "dear", "missing": "surrogate"},
    "absolute error": {"target": "price", "criterion": "absolute_error"},
    "random": {"target": "dear", "splitter": "random"},
    "oblique": {"target": "dear", "splitter": "oblique"},
    "oblique, numbers": {"target": "dear", "splitter": "oblique", "levels": False},
}


class Recorder(CompilationReport):
    """Listener that prints the seconds of each kernel that no other kernel calls."""

    def on_end(self, ended: event.Event) -> None:
        """Print the seconds of an outermost kernel that ended."""
        before = self.spent_seconds
        super().on_end(ended)
        if (seconds := self.spent_seconds - before) > 0.3:
            name = ended.data["dispatcher"].py_func.__name__
            print(f"  {name:<32} {seconds:6.1f}")


def measure(case: str) -> None:
    """Print the seconds of a case in this process."""
    with event.install_listener("numba:compile", Recorder()):
        if case in CASES:
            train_example(**CASES[case])
        else:
            KINDS[case]()


def main() -> None:
    """Measure each case in a process with an empty cache."""
    if sys.argv[1:]:
        measure(sys.argv[1])
        return
    for case in [*CASES, "use"]:
        print(case, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            settings = {"NUMBA_CACHE_DIR": folder, "TREEKIT_MACHINE_CODE": "0"}
            command = [sys.executable, __file__, case]
            subprocess.run(command, check=True, env=os.environ | settings)  # noqa: S603


if __name__ == "__main__":
    main()
