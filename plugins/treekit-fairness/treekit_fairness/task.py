"""What fair trees count and answer: rows of each class and group, shares of classes."""

from dataclasses import dataclass

from treekit import DataError, Layout, Setting, Task

__all__ = ["FAIRNESS", "MOST_GROUPS", "Cells", "lay_out"]

MOST_GROUPS = 64
"""Groups from which a protected column is taken for a measurement."""


@dataclass(frozen=True)
class Cells:
    """How statistics lie: the groups of the first class, those of the second, and so on."""

    classes: int
    groups: int


def lay_out(target, columns):
    """Cells (class, group); the answer is the weight of each class, whatever the group.

    Parameters
    ----------
    target : TaskColumn
    columns : mapping
        ``protected``: the group of each row.

    Returns
    -------
    Layout
        ``extra``: `Cells`.
    """
    protected = columns["protected"]
    groups, classes = protected.labels, target.labels
    if not 2 <= len(groups) <= MOST_GROUPS:
        raise DataError(
            f"the protected column {protected.name!r} holds {len(groups)} different values; fair "
            f"trees know 2 to {MOST_GROUPS} groups: join some (ages into decades, say)"
        )
    cells = Cells(len(classes), len(groups))

    def place(target, columns):
        """(rows,) cells."""
        return target.codes(classes) * cells.groups + columns["protected"].codes(groups)

    def answer(stats):
        """(nodes, classes) weights, of all groups together."""
        return stats.reshape(len(stats), cells.classes, cells.groups).sum(axis=2)

    return Layout(cells.classes * cells.groups, place, answer, extra=cells)


FAIRNESS = Task(
    "fairness",
    target="classification",
    answers="classification",
    lay_out=lay_out,
    columns=("protected",),
    settings=(
        Setting("protected", "protected", "column of the groups; it is no input of the model"),
    ),
)
