"""What a user gives as a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treekit.model.ensemble import Model

__all__ = ["model_of"]


def model_of(given: object) -> Model:
    """The model itself, or that of a fitted estimator.

    Raises
    ------
    TypeError
        For anything else.
    """
    from treekit.model.ensemble import Model

    model = getattr(given, "model_", given)
    if isinstance(model, Model):
        return model
    if isinstance(given, str | Path):
        remedy = "read a model file with treekit.load first"
    elif hasattr(given, "fit"):
        remedy = (
            "fit the treekit estimator first, or bring a model of scikit-learn in with its importer"
        )
    else:
        remedy = "give what treekit.train or treekit.load returns"
    raise TypeError(f"a treekit model is needed, not {type(given).__name__}; {remedy}")
