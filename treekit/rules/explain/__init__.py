"""Why a model answers one row as it does, and the smallest change that would alter it.

>>> print(explain(model, {"age": 39, "workclass": "Private"}))
"""

from __future__ import annotations

from treekit.rules.explain.explained import explain
from treekit.rules.explain.explanation import Explanation

__all__ = ["Explanation", "explain"]
