"""Learning of short rule lists from models, with reports of their fidelity.

>>> print(treekit.simplify(model, "train.csv", "c45rules", rules=20))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treekit import registry
from treekit.contracts import Setting, Simplifier
from treekit.hookspecs import hookimpl

if TYPE_CHECKING:
    from treekit.model.model import Model
    from treekit.rule_learning.report import LearnedList

__all__ = ["simplify", "treekit_simplifiers"]


def simplify(
    model: Model,
    table: Any,
    method: str | Simplifier = "c45rules",
    *,
    test: Any = None,
    **settings: Any,
) -> LearnedList:
    """Learn a short rule list from a model and its training table.

    Parameters
    ----------
    model : Model
    table : table
        Any table that `treekit.train` accepts, with the target.
    method : str or Simplifier
        An installed simplifier; ``treekit plugins`` lists them.
    test : table, optional
        Rows for the report; default those of `table`.
    **settings
        Settings of the method, such as ``rules``, the maximum number of rules.

    Returns
    -------
    LearnedList
        ``rules`` and the figures of the report.

    Raises
    ------
    SettingError
        For an unknown method or setting, or a method whose plugin is not installed.
    ModelError, DataError
        If the method does not support the model, or cannot read the table.
    PluginError
        If the method of a plugin fails.
    """
    simplifier = registry.simplifier(method)
    values = registry.settings_of(simplifier, settings)
    learned: LearnedList = registry.call(
        simplifier, simplifier.simplify, model, table, test, **values
    )
    return learned


def _run_c45rules(model: Model, table: Any, test: Any, **settings: Any) -> LearnedList:
    from treekit.rule_learning.c45rules import c45rules

    return c45rules(model, table, test=test, **settings)


@hookimpl
def treekit_simplifiers() -> list[Simplifier]:
    """Return the built-in simplifiers."""
    return [
        Simplifier(
            "c45rules",
            _run_c45rules,
            (
                Setting("rules", None, "maximum number of rules", int, minimum=1),
                Setting(
                    "confidence",
                    0.25,
                    "confidence factor of the error estimates; lower values drop more conditions",
                    above=0,
                    maximum=0.5,
                ),
            ),
            "an ordered list; the first matching rule predicts (Quinlan 1993)",
        ),
    ]
