"""The task `fairness`: statistics by class and group, class shares as predictions."""

from dataclasses import dataclass

from treekit import DataError, Layout, Setting, Task

__all__ = ["FAIRNESS", "MOST_GROUPS", "Cells", "lay_out"]

MOST_GROUPS = 64
"""Largest number of groups; a column with more values is probably a measurement."""


@dataclass(frozen=True)
class Cells:
    """Layout of the statistics: the groups of the first class, those of the second, and so on."""

    classes: int
    groups: int


def lay_out(target, columns):
    """Lay out cells (class, group); leaf values are class weights, summed over groups.

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
            f"protected column {protected.name!r} holds {len(groups)} different values; expected "
            f"2 to {MOST_GROUPS} groups: merge some (such as ages into decades)"
        )
    cells = Cells(len(classes), len(groups))

    def place(target, columns):
        """Return the cell of each row."""
        return target.codes(classes) * cells.groups + columns["protected"].codes(groups)

    def answer(stats):
        """Return the class weights (nodes, classes), summed over groups."""
        return stats.reshape(len(stats), cells.classes, cells.groups).sum(axis=2)

    return Layout(cells.classes * cells.groups, place, answer, extra=cells)


FAIRNESS = Task(
    "fairness",
    target="classification",
    answers="classification",
    lay_out=lay_out,
    columns=("protected",),
    settings=(
        Setting("protected", "protected", "column of the groups; not an input of the model"),
    ),
)
