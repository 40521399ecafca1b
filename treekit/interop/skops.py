"""scikit-learn's trees from files of skops, without skops, and without building an estimator.

What is read, and how the answers compare, is said in `treekit.interop.sklearn`:
the same code reads an estimator and what a file says of one.  Only the classes
of `treekit.interop.sklearn.KINDS` are read, whatever else a file asks to trust.
Reading takes about 10 times the file's size in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treekit.errors import ModelError, ModelFileError, TreekitError
from treekit.interop.files import beginning
from treekit.interop.sklearn import KINDS, ROOMS, read_estimator
from treekit.interop.skops_file import opened_schema
from treekit.model.model import Model
from treekit.model.model_file import read_entries

__all__ = ["read_skops", "recognises_skops"]

# What damaged parts were seen to raise where they are used.
_DAMAGED = (
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
)


def recognises_skops(source: Any) -> bool:
    """Whether `source` is a file of skops (``.skops``)."""
    return beginning(source, (".skops",), 4) == b"PK\x03\x04"


def read_skops(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """The model of a file of skops that holds one of scikit-learn's trees.

    Parameters
    ----------
    source : pathlib.Path
    dtype, answer : str
        As for `treekit.interop.sklearn.read_sklearn`.

    Raises
    ------
    ModelError
        If it holds anything else, is damaged, or has what treekit cannot express.
    """
    if not isinstance(source, Path) or not recognises_skops(source):
        raise ModelError(f"a {type(source).__qualname__} is no file of skops")
    estimator = opened_schema(read_entries(source))
    name, module = estimator.stored_name, estimator.stored_module
    if name not in KINDS or not module.startswith(ROOMS):
        raise ModelError(
            f"the skops file holds a {module:.60}.{name:.60}; treekit reads {', '.join(KINDS)}"
        )
    try:
        version = str(getattr(estimator, "_sklearn_version", "unknown"))
        return read_estimator(estimator, name, name, version, dtype, answer)
    except TreekitError:
        raise
    except _DAMAGED as error:
        raise ModelFileError(f"the skops file is damaged: {error}") from error
