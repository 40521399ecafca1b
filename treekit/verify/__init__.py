"""Verification that artifacts equal their model, bit for bit, at every split and every leaf.

>>> report = treekit.verify(model, ["out/adult.c", "out/adult.onnx"])
>>> report.equal
True
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.errors import VerificationError
from treekit.model.model import Model, as_model, hash_model
from treekit.verify.answers import expected
from treekit.verify.coverage import Coverage, measure_coverage
from treekit.verify.probes import Probes, compute_deadline, make_probes, make_rule_rows
from treekit.verify.report import ArtifactResult, Difference, Report, Untried, write_certificate
from treekit.verify.run_artifact import (
    ReferenceRows,
    RuntimeChoice,
    choose_runtimes,
    concatenate_references,
    run_artifact,
)
from treekit.verify.table_rows import verify_table
from treekit.verify.tree_equivalence import compare_paths, make_lowered_tables

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
_UNCONFIRMED = "not proved: a path differs from the model's as read, but no prediction differs"
_CONSTRUCTION_SHARE = 0.4
"""Largest share of the time budget for constructing rows."""


def verify(
    model: Any,
    artifacts: str | Path | Sequence[str | Path],
    *,
    random_rows: int = 2000,
    seed: int = 0,
    max_rows: int = 500_000,
    budget: float = 1800.0,
    runtimes: Collection[str] = (),
    without: Collection[str] = (),
    templates: str | Path = "",
    certificate: str | Path | None = None,
    on: Any = None,
    cluster: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run artifacts on rows that reach every part of `model`, and compare every bit.

    Where the trees can be read back from a file, they are also compared with the
    model's on every path, so that rows only confirm the result.

    Artifacts are executed: verify only files that you trust.

    Parameters
    ----------
    model : Model or fitted treekit estimator
    artifacts : str, Path, or sequence of these
        Files that `treekit.export` returned: .onnx, .c (its .h in the same folder, listed or
        not), .py, .rules.txt, .mjs, .java, .rs, .go, of another language whose profile has a
        [verify] section, or of a plugin's exporter that brings a runner (.sql).
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
        Runtimes to use (``"gcc"``, ``"openvino"``), or ``"all"``; ``"module:function"`` is a
        function for ONNX files: it takes a path, and returns ``run(names, feeds)``, which
        returns the outputs of these names.  ``"all"`` leaves out openvino and reference (the
        reference evaluator of onnx).  By default each
        artifact runs on the first runtime of its kind that this machine has; ``untried`` of
        the report names the others.
    without : collection of str
        Runtimes to exclude.
    templates : str or Path
        Folder of additional languages, as in `treekit.export`.
    certificate : str or Path, optional
        JSON file to write the result to.
    on : table, optional
        Table whose rows are compared as well, all of them, without a time limit.  With
        `cluster`: a Parquet file, a folder, a pattern such as ``rows/*.parquet``, or a URL.
    cluster : distributed.Client or str, optional
        Cluster whose workers run the artifacts on the files of `on`; see `treekit.train`.
    progress : callable, optional
        ``progress(done, total)`` after each file of `on`.

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
    if cluster is not None and on is None:
        raise VerificationError("cluster runs artifacts on the rows of a table; give on=, too")
    given = [artifacts] if isinstance(artifacts, str | Path) else artifacts
    paths = [Path(artifact) for artifact in given]
    paths = [path for path in paths if path.suffix != ".h" or path.with_suffix(".c") not in paths]
    if not paths:
        raise VerificationError("no artifacts to verify; pass the files written by treekit.export")
    if not budget > 0:
        raise VerificationError(f"budget must be a positive number of seconds, got {budget}")
    end = time.monotonic() + budget
    choose = partial(choose_runtimes, wanted=runtimes, without=without, templates=templates)
    chosen = choose(paths)
    until = compute_deadline(end, _CONSTRUCTION_SHARE)
    probes = make_probes(model, random_rows, seed, max_rows, until)
    coverage = measure_coverage(model, probes)
    rows = np.concatenate([probes.rows, probes.refused])
    reference = ReferenceRows(rows, expected(model, rows, len(probes.refused)))
    faces = None
    if any(one.runner.has_rule_bounds for one in chosen):
        faces = _make_boundary_rows(model, max_rows, probes.rows, np.random.default_rng(seed))
    lowering = ""
    if time.monotonic() > end:
        lowering = _OUT_OF_TIME
    elif model.missing != "fractional":  # such models are not lowered
        lowering = compare_paths(model, make_lowered_tables(model)).summary
    name = ""
    on_artifacts: tuple[ArtifactResult, ...] = ()
    if on is not None:
        name = str(on) if isinstance(on, (str, Path)) else "the table"
        on_artifacts = verify_table(model, chosen, choose, on, cluster, progress)
    used = {runtime.name: runtime for choice in chosen for runtime in choice.runtimes}
    report = Report(
        artifacts=tuple(_run_artifacts(model, chosen, reference, faces, end)),
        coverage=coverage,
        model_sha256=hash_model(model),
        probes={
            "rows": len(rows),
            "refused": len(probes.refused),
            "random": random_rows,
            "seed": seed,
            "max_rows": max_rows,
        },
        versions={
            "treekit": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            **{name: runtime.get_version() for name, runtime in used.items()},
        },
        lowering=lowering,
        untried=tuple(untried for one in chosen for untried in one.untried),
        on=name,
        on_artifacts=on_artifacts,
    )
    if certificate is not None:
        write_certificate(report, Path(certificate))
    return report


def _make_boundary_rows(
    model: Model, max_rows: int, probed_rows: npt.NDArray[np.float64], rng: np.random.Generator
) -> ReferenceRows:
    """Make rows at the bounds of every rule, for artifacts whose rules have their own bounds."""
    rows, probed, total = make_rule_rows(model, max_rows, probed_rows, rng)
    note = f"bounds probed for {probed:,} of {total:,} rules; raise max_rows to probe all"
    return ReferenceRows(rows, expected(model, rows, 0), note if probed < total else "")


def _run_artifacts(
    model: Model,
    chosen: Sequence[RuntimeChoice],
    reference: ReferenceRows,
    faces: ReferenceRows | None,
    end: float,
) -> Iterator[ArtifactResult]:
    """Run every artifact on its runtimes until `end`, each within its share of the time left."""
    runs = sum(len(choice.runtimes) for choice in chosen)
    for choice in chosen:
        path, runner = choice.path, choice.runner
        yield from choice.list_failures()
        rows = [reference]
        if runner.has_rule_bounds and faces is not None:
            rows.insert(0, faces)
        summary, shown, fresh = "", np.zeros((0, 0)), False
        if runner.compare_structure is not None:
            summary = _OUT_OF_TIME
            if time.monotonic() < end:
                structure = runner.compare_structure(path, model)
                summary, shown, fresh = structure.summary, structure.rows, structure.fresh
        if len(shown):  # try to confirm the difference
            rows.insert(0, ReferenceRows(shown, expected(model, shown, 0)))
        joined = concatenate_references(rows)
        for runtime in choice.runtimes:
            deadline = compute_deadline(end, 1 / runs)
            result = run_artifact(path, runner, runtime, model.schema, joined, deadline, fresh)
            unconfirmed = len(shown) and result.equal
            yield replace(result, structure=_UNCONFIRMED if unconfirmed else summary)
            runs -= 1
