"""Verification that artifacts equal their model, bit for bit, at every split and every leaf.

>>> report = treekit.verify(model, ["out/adult.c", "out/adult.onnx"])
>>> report.equal
True
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.errors import VerificationError
from treekit.model.model import Model, as_model
from treekit.verify.answers import expected
from treekit.verify.coverage import Coverage, measure_coverage
from treekit.verify.probes import Probes, TimeBudget, make_probes
from treekit.verify.report import (
    ArtifactResult,
    Difference,
    Report,
    Untried,
    hash_model,
    write_certificate,
)
from treekit.verify.run_artifact import ReferenceRows, RuntimeChoice, choose_runtimes, run_artifact
from treekit.verify.targeted_search import make_rule_rows
from treekit.verify.tree_equivalence import StructureComparison, compare_paths, make_lowered_tables

__all__ = [
    "ArtifactResult",
    "Coverage",
    "Difference",
    "Probes",
    "Report",
    "Untried",
    "make_probes",
    "verify",
]

_OUT_OF_TIME = "not tried within the time budget; raise budget"
_CONSTRUCTION_SHARE = 0.4
"""Largest share of the time budget for constructing rows."""


def verify(
    model: Any,
    artifacts: Sequence[str | Path],
    *,
    random_rows: int = 2000,
    seed: int = 0,
    max_rows: int = 500_000,
    budget: float = 1800.0,
    runtimes: Collection[str] = (),
    without: Collection[str] = (),
    templates: str | Path = "",
    certificate: str | Path | None = None,
) -> Report:
    """Run artifacts on rows that reach every part of `model`, and compare every bit.

    Where the trees can be read back from a file, they are also compared with the
    model's on every path, so that rows only confirm the result.

    Artifacts are executed: verify only files that you trust.

    Parameters
    ----------
    model : Model or fitted treekit estimator
    artifacts : sequence of str or Path
        Files ending in .onnx, .c (with its .h in the same folder), .py, .sql or .rules.txt, or
        of a language: .mjs, .java, .rs, .go, or one whose profile has a [verify] section.
    random_rows : int
        Number of rows drawn around the thresholds, in addition to the constructed ones.
    seed : int
        Seed of the random choices in the rows.
    max_rows : int
        Maximum number of constructed rows; if it is too low for the model, the
        coverage lists what was left out.
    budget : float
        Approximate time limit in seconds; the report lists what was left out to
        meet it.
    runtimes : collection of str
        Runtimes to use (``"gcc"``, ``"clang"``), or ``"all"``.  By default each
        artifact runs on the first runtime of its kind that this machine has; the
        report names the others.
    without : collection of str
        Runtimes to exclude.
    templates : str or Path
        Folder of additional languages, as in `treekit.export`.
    certificate : str or Path, optional
        JSON file to write the result to.

    Raises
    ------
    VerificationError
        If no artifact is given, or a file does not exist or is of a kind that
        cannot be run, or a runtime is unknown.  An artifact that fails to run is
        a result, not an error.
    TypeError
        If `model` is neither a Model nor a fitted estimator.
    """
    model = as_model(model)
    paths = [Path(artifact) for artifact in artifacts]
    if not paths:
        raise VerificationError("no artifacts to verify; pass the files written by treekit.export")
    time_left = TimeBudget(budget)
    chosen = choose_runtimes(paths, runtimes, without, templates)
    probes = make_probes(
        model, random_rows, seed, max_rows, time_left.compute_deadline(_CONSTRUCTION_SHARE)
    )
    coverage = measure_coverage(model, probes)
    rows = np.concatenate([probes.rows, probes.refused])
    questions = ReferenceRows(rows, expected(model, rows, len(probes.refused)))
    faces = _make_boundary_rows(model, chosen, max_rows, probes.rows, np.random.default_rng(seed))
    lowering = _verify_lowering(model) if time_left.seconds_left else _OUT_OF_TIME
    report = Report(
        artifacts=tuple(_run_artifacts(model, chosen, questions, faces, time_left)),
        coverage=coverage,
        model_sha256=hash_model(model),
        probes={
            "rows": len(rows),
            "refused": len(probes.refused),
            "random": random_rows,
            "seed": seed,
            "max_rows": max_rows,
        },
        versions=_collect_versions(chosen),
        lowering=lowering,
        untried=tuple(untried for one in chosen for untried in one.untried),
    )
    if certificate is not None:
        write_certificate(report, Path(certificate))
    return report


def _run_artifacts(
    model: Model,
    chosen: Sequence[RuntimeChoice],
    questions: ReferenceRows,
    faces: ReferenceRows | None,
    time_left: TimeBudget,
) -> Iterator[ArtifactResult]:
    """Run every artifact on its runtimes, each within its share of the time."""
    runs = sum(len(choice.runtimes) for choice in chosen)
    for choice in chosen:
        if choice.why_unavailable:
            error = f"{choice.path.name!r} cannot be run here: {choice.why_unavailable}"
            yield ArtifactResult(str(choice.path), choice.runner.kind, {}, error=error)
        rows = questions
        if choice.runner.has_rule_bounds and faces is not None:
            rows = questions.prepend_rows(faces)
        structure = _compare_structure(choice, model, time_left)
        if structure is not None and len(structure.rows):  # try to confirm the difference
            rows = rows.prepend_rows(
                ReferenceRows(structure.rows, expected(model, structure.rows, 0))
            )
        for runtime in choice.runtimes:
            deadline = time_left.compute_deadline(1 / runs)
            result = run_artifact(choice.path, choice.runner, runtime, model.schema, rows, deadline)
            yield replace(result, structure=_describe_structure(structure, result))
            runs -= 1


def _compare_structure(
    choice: RuntimeChoice, model: Model, time_left: TimeBudget
) -> StructureComparison | None:
    """Compare an artifact's trees with the model's, if they can be read and there is time."""
    if choice.runner.compare_structure is None:
        return None
    if not time_left.seconds_left:
        return StructureComparison(False, _OUT_OF_TIME)
    return choice.runner.compare_structure(choice.path, model)


def _describe_structure(structure: StructureComparison | None, result: ArtifactResult) -> str:
    """Describe the structure comparison, also where no prediction confirms a difference."""
    if structure is None:
        return ""
    if len(structure.rows) and result.equal:
        return "not proved: a path differs from the model's as read, but no prediction differs"
    return structure.summary


def _make_boundary_rows(
    model: Model,
    chosen: Sequence[RuntimeChoice],
    max_rows: int,
    probed_rows: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> ReferenceRows | None:
    """Make rows at the bounds of every rule, for artifacts whose rules have their own bounds."""
    if not any(one.runner.has_rule_bounds for one in chosen):
        return None
    rows, probed, total = make_rule_rows(model, max_rows, probed_rows, rng)
    note = (
        ""
        if probed == total
        else (f"bounds probed for {probed:,} of {total:,} rules; raise max_rows to probe all")
    )
    return ReferenceRows(rows, expected(model, rows, 0), note)


def _verify_lowering(model: Model) -> str:
    """Compare lowered trees with the model's; models with fractional instances are not lowered."""
    return (
        ""
        if model.missing == "fractional"
        else compare_paths(model, make_lowered_tables(model)).summary
    )


def _collect_versions(chosen: Sequence[RuntimeChoice]) -> dict[str, str]:
    versions = {
        "treekit": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    for choice in chosen:
        for runtime in choice.runtimes:
            if runtime.name not in versions:
                versions[runtime.name] = runtime.get_version()
    return versions
