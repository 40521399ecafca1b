"""What a changed row is to be answered: another label, a certain one, or a range of numbers."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.features import LevelIndex
from treekit.data.schema import level_text
from treekit.data.table import near_names
from treekit.errors import SettingError
from treekit.model.links import values_of
from treekit.model.scoring import label_codes

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Wish", "wish_of"]

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RANGE = re.compile(r"\s*(>=|<=|>|<)\s*(\S+)\s*")


class Wish(NamedTuple):
    """A wish for one target.

    Attributes
    ----------
    target : int
        Which of the model's targets.
    text : str
        ``>= 10``, a label as text, or empty: any other label.
    label : int
        Class that is wished for, or that is not; -1 for numbers.
    compare : callable, optional
        Of the numbers predicted and `bound`.
    bound : float
    """

    target: int
    text: str
    label: int = -1
    compare: Callable[[Any, Any], Any] | None = None
    bound: float = 0.0

    def met(self, model: Model, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """(rows,) bool: which integer sums (rows, values) answer as wished."""
        if self.compare is not None:
            numbers = values_of(model, sums)[:, self.target]
            found: npt.NDArray[np.bool_] = self.compare(numbers, self.bound)
            return found
        codes = label_codes(model, sums)[:, self.target]
        same: npt.NDArray[np.bool_] = codes == self.label
        return same if self.text else ~same


def wish_of(
    model: Model, said: str | None, target: str | None, sums: npt.NDArray[np.int64]
) -> Wish | None:
    """The wish that a text means; without one any other label, for numbers None.

    Parameters
    ----------
    model : Model
    said : str, optional
        A label, or ``>=``, ``<=``, ``>`` or ``<`` and a number.
    target : str, optional
        Default: the first.
    sums : (values,) int64
        Of the row as it is.

    Raises
    ------
    SettingError
        For an unknown target or label, and for what is no range.
    """
    outputs = model.schema.outputs
    names = [output.name for output in outputs]
    if target is not None and target not in names:
        raise SettingError(f"the model has no target {target!r}; {near_names(target, names)}")
    k = 0 if target is None else names.index(target)
    if model.schema.task == "regression":
        return None if said is None else _range(said, k)
    if said is None:
        return Wish(k, "", int(label_codes(model, sums[None])[0, k]))
    texts = [str(level_text(label)) for label in outputs[k].classes]
    code = LevelIndex(texts).code(said)
    if code < 0:
        raise SettingError(f"{said!r} is no class of {names[k]!r}; {near_names(said, texts)}")
    return Wish(k, texts[code], code)


def _range(said: str, target: int) -> Wish:
    match = _RANGE.fullmatch(said)
    try:
        bound = float(match[2]) if match else np.nan
    except ValueError:
        bound = np.nan
    if match is None or not np.isfinite(bound):
        raise SettingError(
            f"{said!r} is no range of numbers; write a comparison, such as '>= 10' or '< 2.5'"
        )
    return Wish(
        target, f"{match[1]} {repr(bound).removesuffix('.0')}", -1, _COMPARISONS[match[1]], bound
    )
