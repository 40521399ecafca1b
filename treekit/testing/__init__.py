"""Conformance checks for authors of plugins.

>>> from treekit.testing import check_criterion
>>> def test_the_contract_is_kept():
...     check_criterion("hellinger")

Each check takes an installed name or a record and raises `ConformanceError`,
an AssertionError that lists every broken law, the smallest example found and
what to look at; ``fail=False`` returns the `Report` instead.  The same from
the command line: ``treekit plugin check NAME``.  A law that cannot hold for
a component by its nature is declared in its record: ``exempt={"law": "why"}``.
"""

from __future__ import annotations

from treekit.testing.check_criterion import check_criterion
from treekit.testing.check_exporter import check_exporter
from treekit.testing.check_importer import check_importer
from treekit.testing.check_pruner import check_pruner
from treekit.testing.check_rule_plugins import check_document, check_explainer, check_simplifier
from treekit.testing.check_splitter import check_splitter
from treekit.testing.report import Breach, ConformanceError, Law, Report, Verdict

__all__ = [
    "Breach",
    "ConformanceError",
    "Law",
    "Report",
    "Verdict",
    "check_criterion",
    "check_document",
    "check_explainer",
    "check_exporter",
    "check_importer",
    "check_pruner",
    "check_simplifier",
    "check_splitter",
]
