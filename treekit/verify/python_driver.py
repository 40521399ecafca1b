"""Runs a generated Python file on rows; started as ``python -I python_driver.py JOB``.

Uses the standard library only, as the generated file does.  JOB is a JSON
file with the artifact, the rows (doubles), the vocabularies, and the output path.
"""

from __future__ import annotations

import json
import math
import runpy
import sys
from array import array
from pathlib import Path
from typing import Any


def run_job(job_path: str) -> None:
    """Predict every row of a job: write labels as 64-bit integers, then numbers as doubles."""
    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    rows = array("d")
    rows.frombytes(Path(job["rows"]).read_bytes())
    artifact = runpy.run_path(job["artifact"])
    named = "FEATURES" not in artifact  # the form for readers: rows by column name, labels alone
    others = list(artifact.get("FEATURES", job["features"])) != job["features"]
    if others or ("predict_proba" in artifact) != (bool(job["classes"][0]) and not named):
        sys.exit(86)  # `_MISMATCH_CODE` of `treekit.verify.run_python`
    labels, numbers = array("q"), array("d")
    codes = [
        {(type(label), label): code for code, label in enumerate(classes)}
        for classes in job["classes"]
    ]
    width = len(job["levels"])
    for number in range(len(rows) // width):
        row = rows[number * width : (number + 1) * width]
        cells = [_decode_cell(x, job["levels"][f], number + f) for f, x in enumerate(row)]
        row_labels, answer = (
            _predict_named_row(
                artifact["predict"], dict(zip(job["features"], cells, strict=True)), codes
            )
            if named
            else _predict_row(artifact, cells, codes, job["values"])
        )
        labels.extend(row_labels)
        numbers.extend(answer)
    Path(job["answers"]).write_bytes(labels.tobytes() + numbers.tobytes())


def _decode_cell(x: float, texts: tuple[list[str] | None, str], turn: int) -> Any:
    """Convert a number or a code to a cell; missing cells alternate between None and NaN."""
    levels, unseen = texts
    if x != x:
        return None if turn % 2 else math.nan
    if levels is None:
        return x
    return levels[int(x)] if 0 <= x < len(levels) and x == int(x) else unseen


def _predict_named_row(
    predict: Any, row: dict[str, Any], codes: list[dict[Any, int]]
) -> tuple[list[int], list[float]]:
    """Return the class number of a row, or 0 and its number."""
    given = predict(row)
    if not codes[0]:
        return [0], [given]
    return [codes[0].get((type(given), given), -2)], []


def _predict_row(
    artifact: dict[str, Any], cells: list[Any], codes: list[dict[Any, int]], values: int
) -> tuple[list[int], list[float]]:
    """Return class numbers and probabilities, or 0 and numbers; negative as in `answers`."""
    n = len(codes)
    try:
        given = artifact["predict"](cells)
    except ValueError:
        return [_classify_refusal(artifact, cells, codes)] * n, [0.0] * values
    given = given if n > 1 else [given]
    if not codes[0]:
        return [0] * n, list(given)
    try:
        numbers = artifact["predict_proba"](cells)
    except ValueError:
        return [-3] * n, [0.0] * values
    labels = [own.get((type(label), label), -2) for own, label in zip(codes, given, strict=True)]
    return labels, [x for some in numbers for x in some] if n > 1 else numbers


def _classify_refusal(
    artifact: dict[str, Any], cells: list[Any], codes: list[dict[Any, int]]
) -> int:
    if not codes[0]:
        return -1
    try:
        artifact["predict_proba"](cells)
    except ValueError:
        return -1
    return -3


if __name__ == "__main__":
    run_job(sys.argv[1])
