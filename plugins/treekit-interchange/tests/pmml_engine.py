"""Predictions of the PMML engine JPMML: ``python pmml_engine.py < jobs.json``.

Input: [{"file": path, "columns": names, "data": [cells of each column]}, ...], null = missing.
Output: for each file {"error": text} or {result name: values, "errors": one per row}.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    from jpmml_evaluator import PythonEvaluatorUtil, make_backend, make_evaluator

    backend = make_backend("jpype")
    told: list[dict[str, Any]] = []
    for job in json.load(sys.stdin):
        try:
            evaluator = make_evaluator(job["file"], backend).verify()
        except Exception as error:  # noqa: BLE001 - reported by the test
            told.append({"error": f"{error!r} {getattr(error, 'message', '')}"})
            continue
        given = {"columns": job["columns"], "data": job["data"]}
        found = PythonEvaluatorUtil.evaluateAll(backend, evaluator.javaEvaluator, given, None, 1)
        values = dict(zip(found["columns"], found["data"], strict=True))
        told.append({**values, "errors": found["errors"]})
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
