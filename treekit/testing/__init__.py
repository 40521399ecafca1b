"""Conformance checks for authors of plugins.

>>> from treekit.testing import check_criterion
>>> def test_the_contract_is_kept():
...     check_criterion("hellinger")

Each check takes an installed name or a record and raises `ConformanceError`,
an AssertionError that names every broken law, the smallest example found and
what to look at; ``fail=False`` returns the `Report` instead.  The same from
the command line: ``treekit plugin check NAME``.  A law that by a component's
nature cannot hold is declared in its record: ``exempt={"law": "why"}``.
"""

from __future__ import annotations

from treekit.testing.criteria import check_criterion
from treekit.testing.exporters import check_exporter
from treekit.testing.importers import check_importer
from treekit.testing.pruners import check_pruner
from treekit.testing.report import Breach, ConformanceError, Law, Report, Verdict
from treekit.testing.splitters import check_splitter

__all__ = [
    "Breach",
    "ConformanceError",
    "Law",
    "Report",
    "Verdict",
    "check_criterion",
    "check_exporter",
    "check_importer",
    "check_pruner",
    "check_splitter",
]
