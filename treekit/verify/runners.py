"""Every kind of artifact that verify runs."""

from __future__ import annotations

from pathlib import Path

from treekit.errors import VerificationError
from treekit.verify.read_c import structure_of_c
from treekit.verify.read_onnx import structure_of_onnx
from treekit.verify.read_python import structure_of_python
from treekit.verify.run_c import C_RUNTIMES, c_files
from treekit.verify.run_language import language_runners, why_no_runner
from treekit.verify.run_onnx import ONNX_RUNTIMES
from treekit.verify.run_python import PYTHON_RUNTIMES
from treekit.verify.run_rules import RULES_RUNTIMES
from treekit.verify.run_sql import SQL_RUNTIMES
from treekit.verify.runtime import Runner

__all__ = ["runner_of", "runners"]

_RUNNERS = (
    Runner("onnx", ".onnx", ONNX_RUNTIMES, structure=structure_of_onnx),
    Runner("c", ".c", C_RUNTIMES, c_files, structure=structure_of_c),
    Runner("python", ".py", PYTHON_RUNTIMES, structure=structure_of_python),
    Runner("sql", ".sql", SQL_RUNTIMES),
    Runner("rules", ".rules.txt", RULES_RUNTIMES, states_rules=True),
)


def runners(templates: str | Path = "") -> tuple[Runner, ...]:
    """Every kind of artifact that can be run, the languages of a folder of templates too."""
    return (*_RUNNERS, *language_runners(templates))


def runner_of(path: Path, templates: str | Path = "") -> Runner:
    """Find the runner by the ending of a file name; `templates` as for `runners`.

    Raises
    ------
    VerificationError
        If there is none, or the folder `templates` is absent.
    """
    known = runners(templates)
    for runner in known:
        if path.name.endswith(runner.suffix):
            return runner
    endings = ", ".join(dict.fromkeys(runner.suffix for runner in known))
    said = [f"it runs files that end in {endings}", *why_no_runner(path.name, templates)]
    raise VerificationError(f"verify cannot run {path.name!r}; {'; '.join(said)}")
