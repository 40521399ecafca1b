"""All that is said of one row's answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from treekit.data.schema import Dtype
from treekit.rules.explain.records import Changes, Clause, Ending, Given, Said, Step, Sums, Votes

if TYPE_CHECKING:
    from treekit.rules.language import Language

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation:
    """Why a model answers a row as it does; ``print`` it, or ask for `text` or `plain`.

    Attributes
    ----------
    says : tuple of Said
        The answer, for each target; empty if the row is refused.
    row : tuple of Given
    dtype : {"float32", "float64"}
        The model's input type.
    trees : int
        Of the model.
    tree : int, optional
        The tree of `path`, `leaves` and `rule`, from 0; None: a forest, of which none
        was asked for.
    path : tuple of Step
    leaves : tuple of Ending
        Largest part first.
    rule : tuple of Clause
        The conditions of the leaf's rule, at most one a column; empty where parts of the row
        end in several leaves, and for lists of rules.
    votes : tuple of Votes
        Of forests that vote, or whose trees' mean is taken.
    sums : tuple of Sums
        For each class, or number, of each target.
    changes : Changes, optional
        None if they were not asked for, or without a wish for a number.
    """

    says: tuple[Said, ...]
    row: tuple[Given, ...]
    dtype: Dtype
    trees: int
    tree: int | None = None
    path: tuple[Step, ...] = ()
    leaves: tuple[Ending, ...] = ()
    rule: tuple[Clause, ...] = ()
    votes: tuple[Votes, ...] = ()
    sums: tuple[Sums, ...] = ()
    changes: Changes | None = None

    @property
    def refused(self) -> bool:
        """Whether the model refuses the row."""
        return any(cell.refused for cell in self.row)

    def plain(self) -> dict[str, Any]:
        """The same as dicts, lists, texts and numbers, for JSON: infinities are None."""
        plain: dict[str, Any] = _plain(self)
        return {"refused": self.refused, **plain}

    def lines(self, language: Language | None = None) -> Iterator[tuple[str, bool]]:
        """The lines of the text, and whether each is a heading."""
        from treekit.rules.explain.words import lines

        return lines(self, language)

    def text(self, language: Language | None = None) -> str:
        """What a person reads, in a language; default English."""
        return "".join(f"{line}\n" for line, _ in self.lines(language))

    def __str__(self) -> str:
        return self.text()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        own = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, Sums):
            own["numbers"] = {
                "bias": value.number(value.bias),
                "columns": [[name, value.number(units)] for name, units in value.columns],
                "total": value.number(value.total),
            }
        return own
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
