"""Run scikit-learn's own tests of trees and forests on treekit's estimators.

    python -m tests.estimators.sklearn_suite           # counts, and failures by message
    python -m tests.estimators.sklearn_suite -k depth  # further options of pytest

The classes of scikit-learn are replaced before its test modules are imported.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sklearn
import sklearn.ensemble
import sklearn.tree

import treekit

__all__ = ["run_suite"]

SUITES = {"tree": "tree/tests/test_tree.py", "forest": "ensemble/tests/test_forest.py"}


def replace_classes() -> None:
    """Replace scikit-learn's trees and forests by treekit's, for modules imported afterwards."""
    for task in ("Classifier", "Regressor"):
        own = getattr(treekit, f"DecisionTree{task}")
        setattr(sklearn.tree, f"DecisionTree{task}", own)
        for kind in ("RandomForest", "ExtraTrees"):
            setattr(sklearn.ensemble, f"{kind}{task}", getattr(treekit, f"{kind}{task}"))


class _Outcomes:
    """A pytest plugin that records the outcome of each test."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" and report.passed:
            self.passed.append(report.nodeid)
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[report.nodeid] = str(crash.message if crash else report.longrepr)


def run_suite(name: str, options: list[str]) -> _Outcomes:
    """Run one of scikit-learn's test modules on treekit's estimators."""
    replace_classes()
    outcomes, folder = _Outcomes(), Path(sklearn.__file__).parent
    pytest.main(
        [
            str(folder / SUITES[name]), "-q", "--no-header", "--no-summary", "-p", "no:xdist",
            "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={folder}", *options,
        ],
        plugins=[outcomes],
    )  # fmt: skip
    return outcomes


if __name__ == "__main__":
    for suite in SUITES:
        found = run_suite(suite, sys.argv[1:])
        print(f"{suite}: {len(found.passed)} passed, {len(found.failed)} failed")
        reasons = Counter(text.splitlines()[0][:100] for text in found.failed.values())
        for reason, count in reasons.most_common(40):
            print(f"{count:5} {reason}")
