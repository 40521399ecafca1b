"""Why a row is answered so, as outputs: rules that fired, and what each column added.

``rule``: in each tree the rule of the leaf in which the row ends, or the rule of a list
that fired, in English with exact numerals.  Where a row divides (missing policy
``fractional``) that of the leaf with the largest part, which the text says.

``contributions`` and ``bias``: of each value of the answer (probabilities, margins before
a link, numbers), by the path decomposition of Saabas; see
`treekit.explain.contributions`.  Integers that add up to the row's sums exactly are
computed, and checked; what goes out is the double nearest to each.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.features import round_to
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.models.tensors import Tensor

if TYPE_CHECKING:
    from treekit.model.model import Model
    from treekit.rules.extract import LeafRules
    from treekit.serve.models.contributions import Added

__all__ = ["Reasons"]

_KEPT = 8 << 20
"""Characters of rules that a model keeps."""

_MOST_TEXT = 64 << 20
_MOST_CELLS = 1 << 23
"""Characters, and numbers, of one answer: vocabularies and columns may be many."""


class Reasons:
    """The reasons of one model; made when they are first asked for, safe in threads.

    Parameters
    ----------
    model : Model
    kept : int
        Characters of texts to keep at most; the oldest are said anew when they are asked for.
    """

    def __init__(self, model: Model, kept: int = _KEPT) -> None:
        self._model, self._most = model, kept
        self._lock = threading.Lock()
        self._texts: dict[tuple[int, int], str] = {}
        self._size = 0
        self._added: Added | None = None

    def output(self, name: str, matrix: npt.NDArray[Any]) -> Tensor:
        """The output ``rule``, ``contributions`` or ``bias`` of encoded rows (rows, features).

        Raises
        ------
        TooLargeError
            If the answer would be huge.
        DataError
            If a policy of the model refuses a row.
        """
        if name == "rule":
            return Tensor(name, "BYTES", self.rules(matrix))
        if name == "bias":
            cells = np.repeat(self.added.bias[None], len(matrix), axis=0)
            return Tensor(name, "FP64", cells)
        if name != "contributions":
            raise InvalidRequestError(
                f"there is no reason {name!r}; there are: rule, contributions, bias"
            )
        schema = self._model.schema
        if len(matrix) * schema.n_features * schema.n_values > _MOST_CELLS:
            raise TooLargeError(
                f"the contributions of {len(matrix):,} rows are more than {_MOST_CELLS:,} numbers: "
                "send fewer rows at once"
            )
        return Tensor(name, "FP64", self.added.contributions(matrix))

    @property
    def added(self) -> Added:
        """What columns add; what does not depend on rows is computed once."""
        from treekit.serve.models.contributions import Added

        with self._lock:
            if self._added is None:
                self._added = Added(self._model)
            return self._added

    @cached_property
    def _leaf_rules(self) -> LeafRules:
        from treekit.rules.extract import LeafRules

        return LeafRules(self._model)

    def rules(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """(rows, trees) object: the text of the rule of each row in each tree."""
        from treekit.model.scoring import leaf_indices

        model = self._model
        leaves = leaf_indices(model, matrix).astype(np.int64)
        texts = self._said(leaves)
        said = np.empty(leaves.shape, dtype=object)
        size = 0
        for row, own in enumerate(leaves.tolist()):
            said[row] = [texts[pair] for pair in enumerate(own)]
            size += sum(map(len, said[row]))
            if size > _MOST_TEXT:
                raise TooLargeError(
                    f"the rules of {len(leaves):,} rows are more than {_MOST_TEXT:,} characters: "
                    "send fewer rows at once"
                )
        return _with_parts(model, matrix, said) if model.mass > 1 else said

    def _said(self, leaves: npt.NDArray[np.int64]) -> dict[tuple[int, int], str]:
        """The texts of leaves (rows, trees), by tree and node."""
        pairs = {pair for row in leaves.tolist() for pair in enumerate(row)}
        with self._lock:
            known = {pair: self._texts[pair] for pair in pairs if pair in self._texts}
        fresh: dict[int, list[int]] = {}
        for tree, leaf in pairs - known.keys():
            fresh.setdefault(tree, []).append(leaf)
        found = self._leaf_rules.texts(fresh)
        with self._lock:
            self._keep(found)
        return known | found

    def _keep(self, found: dict[tuple[int, int], str]) -> None:
        for pair, text in found.items():
            if pair not in self._texts:
                self._texts[pair] = text
                self._size += len(text)
        while self._size > self._most:
            oldest = next(iter(self._texts))
            self._size -= len(self._texts.pop(oldest))


def _with_parts(
    model: Model, matrix: npt.NDArray[Any], said: npt.NDArray[np.object_]
) -> npt.NDArray[np.object_]:
    """The texts, those of rows that divide with the part that ends in the leaf."""
    from treekit.serve.models.contributions import Ways

    ways = Ways(model)
    for row, cells in enumerate(round_to(matrix, model.schema.dtype)):
        if not _may_divide(model, cells):
            continue
        for tree in range(model.n_trees):
            _, leaves = ways.walk(tree, cells.tolist())
            part = max(mass for _, mass in leaves) / model.mass
            if len(leaves) > 1:
                said[row, tree] += f" [{100 * part:.3g}% of the row, its largest part]"
    return said


def _may_divide(model: Model, cells: npt.NDArray[np.float64]) -> bool:
    """Whether anything is missing, or may be a level that a node never saw."""
    return bool(model.schema.nominal.any() or np.isnan(cells).any())
