"""Outputs of a model as JSON objects, one a row, with the names of classes and targets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import level_text
from treekit.rules.extract import is_listed
from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.tensors import Tensor
from treekit.serve.plain.bodies import near, quoted

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Answers"]

Cells = npt.NDArray[Any]

_REASONS = ("leaf", "rule", "contributions", "bias")


class Answers:
    """What one model says, for people.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Model) -> None:
        schema = model.schema
        self._outputs, self._several = schema.outputs, bool(schema.more)
        self._blocks = list(itertools.pairwise(schema.blocks))
        self._votes = schema.task == "classification"
        self._classes = [[str(level_text(c)) for c in o.classes] for o in schema.outputs]
        self._names = schema.names
        self._one_tree, self._listed = model.n_trees == 1, is_listed(model)
        self._usual = ("label", "probabilities") if self._votes else ("value",)
        self.rule_is_short = self._one_tree or self._listed

    def wanted(self, asked: Sequence[Any] | None, n_rows: int, most: int) -> tuple[str, ...]:
        """The model's outputs for those that a request names, or for the usual ones.

        Usual is the rule, too, of single trees and lists of rules, where the request has no
        more rows than the `most` that may be explained at once.

        Raises
        ------
        InvalidRequestError
            For what is no output, or named twice.
        """
        if asked is None:
            rule = ("rule",) if self.rule_is_short and n_rows <= most else ()
            return (*self._named(self._usual), *rule)
        known = (*self._usual, *_REASONS)
        for name in asked:
            if name not in known:
                hint = near(name, known) if isinstance(name, str) else f"known: {', '.join(known)}"
                raise InvalidRequestError(f"there is no output {quoted(name)}; {hint}")
        if len(set(asked)) < len(asked) or not asked:
            raise InvalidRequestError("'outputs' names each output once, and one at least")
        return self._named(asked)

    def _named(self, names: Sequence[str]) -> tuple[str, ...]:
        """As the model has them: of several targets a label each."""
        found: list[str] = []
        for name in names:
            if self._several and name in ("label", "probabilities"):
                found += [f"{name}_{k}" for k in range(len(self._outputs))]
            else:
                found.append(name)
        return tuple(found)

    def rows(self, outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
        """An object for each row."""
        given = {output.name: output.cells for output in outputs}
        if not self._several:
            rows = self._target(0, given, "")
        else:
            parts = [self._target(k, given, f"_{k}") for k in range(len(self._outputs))]
            names = [output.name for output in self._outputs]
            rows = [
                {"targets": dict(zip(names, own, strict=True))} for own in zip(*parts, strict=True)
            ]
        if "leaf" in given:
            for row, leaves in zip(rows, given["leaf"].tolist(), strict=True):
                row["leaf"] = leaves
        if "rule" in given:
            for row, texts in zip(rows, given["rule"].tolist(), strict=True):
                row.update(self._rule(texts))
        return rows

    def _rule(self, texts: list[str]) -> dict[str, Any]:
        """The rule; of several trees those of each, of a list with weights those that fired."""
        if self._one_tree:
            return {"rule": texts[0]}
        said = enumerate(texts, 1)
        return {
            "rules": [
                {"tree": number, "rule": text}
                for number, text in said
                if not self._listed or text != "otherwise"
            ]
        }

    def _target(self, k: int, given: Mapping[str, Cells], end: str) -> list[dict[str, Any]]:
        """For each row what is said of one target."""
        n_rows = len(next(iter(given.values())))
        rows: list[dict[str, Any]] = [{} for _ in range(n_rows)]
        if f"label{end}" in given:
            for row, label in zip(rows, given[f"label{end}"].tolist(), strict=True):
                row["label"] = label
        if f"probabilities{end}" in given:
            names = self._classes[k]
            shares = given[f"probabilities{end}"].tolist()
            for row, own in zip(rows, shares, strict=True):
                row["probabilities"] = dict(zip(names, own, strict=True))
        if "value" in given:
            values = given["value"][:, k] if self._several else given["value"]
            for row, value in zip(rows, values.tolist(), strict=True):
                row["value"] = value
        first, last = self._blocks[k]
        if "contributions" in given:
            parts = given["contributions"][:, :, first:last].tolist()
            for row, columns in zip(rows, parts, strict=True):
                added = map(self._by_class, itertools.repeat(k), columns)
                row["contributions"] = dict(zip(self._names, added, strict=True))
        if "bias" in given:
            for row, own in zip(rows, given["bias"][:, first:last].tolist(), strict=True):
                row["bias"] = self._by_class(k, own)
        return rows

    def _by_class(self, k: int, values: list[float]) -> Any:
        """A number of a target of numbers; else one for each class."""
        return dict(zip(self._classes[k], values, strict=True)) if self._votes else values[0]


def foreign_rows(outputs: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Rows of a model that is not treekit's: its outputs by their names."""
    columns = [(output.name, np.asarray(output.cells).tolist()) for output in outputs]
    names = [name for name, _ in columns]
    cells = zip(*(values for _, values in columns), strict=True)
    return [dict(zip(names, own, strict=True)) for own in cells]
