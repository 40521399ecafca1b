"""Proving artifacts equal to their model, bit for bit, at every split and every leaf.

>>> report = treekit.verify(model, ["out/adult.c", "out/adult.onnx"])
>>> report.equal
True
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.model.ensemble import Model
from treekit.model.given import model_of
from treekit.verify.answers import Answers, differing, expected, said
from treekit.verify.bounds import rule_rows
from treekit.verify.certificate import file_sha256, model_sha256, write_certificate
from treekit.verify.coverage import Coverage, measure
from treekit.verify.probes import Probes, make_probes
from treekit.verify.report import ArtifactResult, Difference, Report
from treekit.verify.runners import Runner, runner_of
from treekit.verify.unseen import cells_of

__all__ = ["ArtifactResult", "Coverage", "Difference", "Probes", "Report", "make_probes", "verify"]


def verify(
    model: Any,
    artifacts: Sequence[str | Path],
    *,
    random_rows: int = 2000,
    seed: int = 0,
    max_rows: int = 500_000,
    certificate: str | Path | None = None,
) -> Report:
    """Run artifacts on rows that reach every part of `model`, and compare every bit.

    Artifacts are executed: verify only files that you trust to run.

    Parameters
    ----------
    model : Model or fitted treekit estimator
    artifacts : sequence of str or Path
        Files ending in .onnx, .c (its .h beside it), .py or .rules.txt.
    random_rows : int
        Rows drawn around the thresholds, besides the constructed ones.
    seed : int
        Of the free choices in the rows.
    max_rows : int
        Bound of constructed rows; if it is too low for the model the coverage
        says what was left out.
    certificate : str or Path, optional
        Where to write the outcome as JSON.

    Raises
    ------
    VerificationError
        If no artifact is given, or one is absent or of a kind that verify
        cannot run.  An artifact that fails to run is not an error but a result.
    TypeError
        If there is no model in what is given as one.
    """
    model = model_of(model)
    paths = [Path(artifact) for artifact in artifacts]
    if not paths:
        raise VerificationError(
            "there is no artifact to verify; give the files that treekit.export wrote"
        )
    runners = [runner_of(path) for path in paths]
    for path in paths:
        if not path.is_file():
            raise VerificationError(f"there is no file {str(path)!r} to verify")
    probes = make_probes(model, random_rows, seed, max_rows)
    rows = np.concatenate([probes.rows, probes.refused])
    wanted = expected(model, rows, len(probes.refused))
    faces = _faces(model, runners, max_rows, probes.rows, np.random.default_rng(seed))
    report = Report(
        artifacts=tuple(
            _result(path, runner, model.schema, rows, wanted, faces)
            for path, runner in zip(paths, runners, strict=True)
        ),
        coverage=measure(model, probes),
        model_sha256=model_sha256(model),
        probes={
            "rows": len(rows),
            "refused": len(probes.refused),
            "random": random_rows,
            "seed": seed,
            "max_rows": max_rows,
        },
        versions=_versions(runners),
    )
    if certificate is not None:
        write_certificate(report, Path(certificate))
    return report


@dataclass(frozen=True)
class _Faces:
    """Rows at the bounds of every rule, for artifacts that state each rule's own."""

    rows: npt.NDArray[np.float64]
    wanted: Answers
    note: str


def _faces(
    model: Model,
    runners: Sequence[Runner],
    max_rows: int,
    probed_rows: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> _Faces | None:
    if not any(runner.states_rules for runner in runners):
        return None
    rows, probed, total = rule_rows(model, max_rows, probed_rows, rng)
    note = (
        ""
        if probed == total
        else (f"rows at the bounds of {probed:,} of {total:,} rules; raise max_rows for all")
    )
    return _Faces(rows, expected(model, rows, 0), note)


def _versions(runners: Sequence[Runner]) -> dict[str, str]:
    versions = {
        "treekit": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    for runner in runners:
        try:
            name, version = runner.version()
        except VerificationError:  # no compiler: its artifacts say so
            continue
        versions[name] = version
    return versions


def _result(
    path: Path,
    runner: Runner,
    schema: Schema,
    rows: npt.NDArray[np.float64],
    wanted: Answers,
    faces: _Faces | None,
) -> ArtifactResult:
    """Run one artifact in every way it can be called."""
    digests = {file.name: file_sha256(file) for file in runner.files(path) if file.is_file()}
    note = ""
    if runner.states_rules and faces is not None:
        rows = np.concatenate([faces.rows, rows])
        wanted = Answers(
            np.concatenate([faces.wanted.label, wanted.label]),
            np.concatenate([faces.wanted.number, wanted.number]),
        )
        note = faces.note
    wrong: set[int] = set()
    first: Difference | None = None
    compared = 0
    try:
        for how, given in runner.run(path, schema, rows):
            n = len(given.label)
            compared = max(compared, n)
            part = Answers(wanted.label[:n], wanted.number[:n])
            found = differing(part, given)
            if len(found) and first is None:
                first = _difference(schema, rows, part, given, int(found[0]), how)
            wrong.update(found.tolist())
    except VerificationError as error:
        return ArtifactResult(str(path), runner.kind, digests, error=str(error))
    return ArtifactResult(str(path), runner.kind, digests, compared, len(wrong), first, note=note)


def _difference(
    schema: Schema,
    rows: npt.NDArray[np.float64],
    wanted: Answers,
    given: Answers,
    row: int,
    how: str,
) -> Difference:
    cells = dict(zip(schema.names, cells_of(schema, rows[row]), strict=True))
    return Difference(how, cells, said(schema, wanted, row), said(schema, given, row))
