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
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from treekit._version import __version__
from treekit.errors import VerificationError
from treekit.model.model import Model, as_model, hash_model
from treekit.verify.answers import expected
from treekit.verify.coverage import Coverage
from treekit.verify.probes import Probes, make_probes, make_rule_rows
from treekit.verify.report import ArtifactResult, Difference, Report, Untried, write_certificate
from treekit.verify.run_artifact import (
    ReferenceRows,
    RuntimeChoice,
    choose_runtimes,
    concatenate_references,
    run_artifact,
)

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

_QUICK_ROWS = 2000


def verify(
    model: Any,
    artifacts: str | Path | Sequence[str | Path],
    *,
    random_rows: int = 2000,
    seed: int = 0,
    max_rows: int = 500_000,
    budget: float = 1800.0,
    quick: bool = False,
    runtimes: Collection[str] = (),
    without: Collection[str] = (),
    templates: str | Path = "",
    certificate: str | Path | None = None,
    on: Any = None,
    cluster: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run artifacts on rows that reach every part of `model`, and compare every bit.

    ONNX, C and Python files and rules are also compared, byte for byte, with a new export.

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
        Maximum number of constructed rows; if it is too low for the model, a sample of its
        splits gets rows, and the coverage shows what was left out.
    budget : float
        Approximate time limit in seconds for running artifacts; the report lists what was left
        out to meet it.
    quick : bool
        Construct and draw at most 2,000 rows each.
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
    if quick:
        random_rows, max_rows = min(random_rows, _QUICK_ROWS), min(max_rows, _QUICK_ROWS)
    probes = make_probes(model, random_rows, seed, max_rows)
    rows = np.concatenate([probes.rows, probes.refused])
    reference = ReferenceRows(rows, expected(model, rows, len(probes.refused)))
    make_bounds = cache(partial(_make_boundary_rows, model, max_rows, seed))
    name = ""
    on_artifacts: tuple[ArtifactResult, ...] = ()
    if on is not None:
        from treekit.verify.table_rows import verify_table

        name = str(on) if isinstance(on, (str, Path)) else "the table"
        on_artifacts = verify_table(model, chosen, choose, on, cluster, progress)
    used = {runtime.name: runtime for choice in chosen for runtime in choice.runtimes}
    report = Report(
        artifacts=tuple(_run_artifacts(model, chosen, reference, make_bounds, end)),
        coverage=probes.coverage,
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
        untried=tuple(untried for one in chosen for untried in one.untried),
        on=name,
        on_artifacts=on_artifacts,
    )
    if certificate is not None:
        write_certificate(report, Path(certificate))
    return report


def _make_boundary_rows(model: Model, max_rows: int, seed: int) -> ReferenceRows:
    """Make rows at the bounds of every rule, for artifacts whose rules have their own bounds."""
    rows, probed, total = make_rule_rows(model, max_rows, np.random.default_rng(seed))
    note = f"rows at the bounds of {probed:,} of {total:,} rules; raise max_rows for all"
    return ReferenceRows(rows, expected(model, rows, 0), note if probed < total else "")


def _run_artifacts(
    model: Model,
    chosen: Sequence[RuntimeChoice],
    reference: ReferenceRows,
    make_bounds: Callable[[], ReferenceRows],
    end: float,
) -> Iterator[ArtifactResult]:
    """Run every artifact on its runtimes until `end`, each within its share of the time left.

    Rules that are read back as the model's own need no rows at the bounds of each rule.
    """
    runs = sum(len(choice.runtimes) for choice in chosen)
    for choice in chosen:
        path, runner = choice.path, choice.runner
        yield from choice.list_failures()
        fresh = None
        if runner.is_fresh is not None and time.monotonic() < end:
            fresh = runner.is_fresh(path, model)
        joined = reference
        if runner.has_rule_bounds and not fresh:
            joined = concatenate_references([make_bounds(), reference])
        for runtime in choice.runtimes:
            deadline = _compute_deadline(end, 1 / runs)
            result = run_artifact(
                path, runner, runtime, model.schema, joined, deadline, fresh is True
            )
            yield replace(result, fresh=fresh)
            runs -= 1


def _compute_deadline(end: float, share: float) -> float:
    """Return the time at which a share of the time left until `end` is used up; may be infinite."""
    now = time.monotonic()
    return now + share * max(end - now, 0.0)
