"""Proving artifacts equal to their model, bit for bit, at every split and every leaf.

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
from treekit.model.model import Model, model_of
from treekit.verify.answers import expected
from treekit.verify.coverage import Coverage, measure
from treekit.verify.probes import Budget, Probes, make_probes
from treekit.verify.report import (
    ArtifactResult,
    Difference,
    Report,
    Untried,
    model_sha256,
    write_certificate,
)
from treekit.verify.rule_boundaries import rule_rows
from treekit.verify.run_artifact import Chosen, Questions, choose, run_artifact
from treekit.verify.tree_equivalence import Structure, lowered, proved

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

_NO_TIME = "not tried within the budget of time: raise it"
_CONSTRUCTION = 0.4
"""The share of a budget that goes to the construction of rows at most."""


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

    Where verify can read the trees back from a file, it compares them with the
    model's on every path as well, so that rows only confirm.

    Artifacts are executed: verify only files that you trust to run.

    Parameters
    ----------
    model : Model or fitted treekit estimator
    artifacts : sequence of str or Path
        Files ending in .onnx, .c (its .h beside it), .py, .sql or .rules.txt, or of a
        language: .mjs, .java, .rs, .go, or one whose profile says how to verify.
    random_rows : int
        Rows drawn around the thresholds, besides the constructed ones.
    seed : int
        Of the free choices in the rows.
    max_rows : int
        Bound of constructed rows; if it is too low for the model the coverage
        says what was left out.
    budget : float
        Seconds that all of it may take, about; the report says what was left
        out to keep within them.
    runtimes : collection of str
        What to run artifacts with (``"gcc"``, ``"clang"``), or ``"all"``.  By
        default each artifact runs on the first runtime of its kind that this
        machine has; the report names the others.
    without : collection of str
        Runtimes not to use.
    templates : str or Path
        A folder of languages besides those that are known, as `treekit.export` takes it.
    certificate : str or Path, optional
        Where to write the outcome as JSON.

    Raises
    ------
    VerificationError
        If no artifact is given, or one is absent or of a kind that verify
        cannot run, or a runtime is unknown.  An artifact that fails to run is
        not an error but a result.
    TypeError
        If there is no model in what is given as one.
    """
    model = model_of(model)
    paths = [Path(artifact) for artifact in artifacts]
    if not paths:
        raise VerificationError(
            "there is no artifact to verify; give the files that treekit.export wrote"
        )
    time_left = Budget(budget)
    chosen = choose(paths, runtimes, without, templates)
    probes = make_probes(model, random_rows, seed, max_rows, time_left.until(_CONSTRUCTION))
    coverage = measure(model, probes)
    rows = np.concatenate([probes.rows, probes.refused])
    questions = Questions(rows, expected(model, rows, len(probes.refused)))
    faces = _faces(model, chosen, max_rows, probes.rows, np.random.default_rng(seed))
    lowering = _lowering(model) if time_left.left else _NO_TIME
    report = Report(
        artifacts=tuple(_results(model, chosen, questions, faces, time_left)),
        coverage=coverage,
        model_sha256=model_sha256(model),
        probes={
            "rows": len(rows),
            "refused": len(probes.refused),
            "random": random_rows,
            "seed": seed,
            "max_rows": max_rows,
        },
        versions=_versions(chosen),
        lowering=lowering,
        untried=tuple(untried for one in chosen for untried in one.untried),
    )
    if certificate is not None:
        write_certificate(report, Path(certificate))
    return report


def _results(
    model: Model,
    chosen: Sequence[Chosen],
    questions: Questions,
    faces: Questions | None,
    time_left: Budget,
) -> Iterator[ArtifactResult]:
    """Run every artifact on all that was chosen for it; each gets its part of the time."""
    runs = sum(len(one.runtimes) for one in chosen)
    for one in chosen:
        if one.lacking:
            error = f"{one.path.name!r} cannot be run here: {one.lacking}"
            yield ArtifactResult(str(one.path), one.runner.kind, {}, error=error)
        asked = questions
        if one.runner.states_rules and faces is not None:
            asked = questions.behind(faces)
        structure = _structure(one, model, time_left)
        if structure is not None and len(structure.rows):  # let the artifact show it
            asked = asked.behind(Questions(structure.rows, expected(model, structure.rows, 0)))
        for runtime in one.runtimes:
            deadline = time_left.until(1 / runs)
            result = run_artifact(one.path, one.runner, runtime, model.schema, asked, deadline)
            yield replace(result, structure=_said_of(structure, result))
            runs -= 1


def _structure(one: Chosen, model: Model, time_left: Budget) -> Structure | None:
    """What an artifact's trees say, if it can be read and there is time."""
    if one.runner.structure is None:
        return None
    if not time_left.left:
        return Structure(False, _NO_TIME)
    return one.runner.structure(one.path, model)


def _said_of(structure: Structure | None, result: ArtifactResult) -> str:
    """What was proved; where the trees part from the model's but no answer does, that too."""
    if structure is None:
        return ""
    if len(structure.rows) and result.equal:
        return "not proved: read as verify reads it, a path leads elsewhere, but no answer shows it"
    return structure.words


def _faces(
    model: Model,
    chosen: Sequence[Chosen],
    max_rows: int,
    probed_rows: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> Questions | None:
    """Rows at the bounds of every rule, for artifacts that state each rule's own."""
    if not any(one.runner.states_rules for one in chosen):
        return None
    rows, probed, total = rule_rows(model, max_rows, probed_rows, rng)
    note = (
        ""
        if probed == total
        else (f"rows at the bounds of {probed:,} of {total:,} rules; raise max_rows for all")
    )
    return Questions(rows, expected(model, rows, 0), note)


def _lowering(model: Model) -> str:
    """Whether lowered trees are the model's; where rows divide none are lowered."""
    return "" if model.missing == "fractional" else proved(model, lowered(model)).words


def _versions(chosen: Sequence[Chosen]) -> dict[str, str]:
    versions = {
        "treekit": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    for one in chosen:
        for runtime in one.runtimes:
            if runtime.name not in versions:
                versions[runtime.name] = runtime.version()
    return versions
