"""The task `uplift`: statistics by arm and outcome, effects with standard errors as predictions."""

from treekit import DataError, Layout, Setting, SettingError, Task

__all__ = ["MOST_ARMS", "UPLIFT", "lay_out"]

MOST_ARMS = 32
"""Largest number of arms; a column with more labels is probably no treatment."""


def lay_out(target, columns, control, outcome):
    """Lay out cells (arm, outcome) of an experiment, the control group first.

    Parameters
    ----------
    target : TaskColumn
        Outcome, with two classes.
    columns : mapping
        ``treatment``: the arm of each row.
    control, outcome : str
        Labels of the control group and of a success; both may be empty.

    Returns
    -------
    Layout
        ``extra``: the share of each arm in the weight of the training rows, control first.
    """
    arms = _arms(columns["treatment"], control)
    classes = target.labels
    if len(classes) != 2:
        raise DataError(
            f"uplift needs an outcome of two classes, but {target.name!r} has {len(classes)}: "
            + ", ".join(map(repr, classes[:5]))
        )
    success = classes.index(_named(outcome, classes, "outcome", target.name) or classes[1])

    def place(target, columns):
        """Return the cell of each row: twice the arm, plus 1 for a success."""
        return 2 * columns["treatment"].codes(arms) + (target.codes(classes) == success)

    import numpy as np

    given = columns["treatment"].codes(arms)
    held = np.bincount(given, weights=target.weights, minlength=len(arms))
    shares = tuple((held / held.sum()).tolist())
    return Layout(2 * len(arms), place, answer, _names(arms), extra=shares)


def answer(stats):
    """Compute effects, their standard errors and the rate of each arm, control last.

    A rate is the posterior mean under a uniform prior (Laplace 1774),
    ``(successes + 1) / (n + 2)``, with variance ``rate * (1 - rate) / (n + 3)``. An arm
    without rows has rate 1/2 and a large error.

    Parameters
    ----------
    stats : (nodes, 2 * arms) float64

    Returns
    -------
    (nodes, 3 * treatments + 1) float64
    """
    import numpy as np

    came = stats[:, 1::2]
    n = came + stats[:, 0::2]
    rate = (came + 1.0) / (n + 2.0)
    variance = rate * (1.0 - rate) / (n + 3.0)
    effect = rate[:, 1:] - rate[:, :1]
    error = np.sqrt(variance[:, 1:] + variance[:, :1])
    each = np.stack([effect, error, rate[:, 1:]], axis=2).reshape(len(stats), -1)
    return np.hstack([each, rate[:, :1]])


def _names(arms):
    if len(arms) == 2:
        return ("effect", "standard error", "treated", "control")
    words = ("effect of {}", "standard error of {}", "rate of {}")
    return (*(word.format(arm) for arm in arms[1:] for word in words), "rate of control")


def _arms(column, control):
    """Return the labels of the treatment column, the control group first."""
    labels = column.labels
    if not 2 <= len(labels) <= MOST_ARMS:
        raise DataError(
            f"treatment column {column.name!r} holds {len(labels)} different labels; "
            f"expected 2 to {MOST_ARMS} arms"
        )
    first = _named(control, labels, "control", column.name)
    if first is None:
        known = [label for label in labels if str(label).casefold() == "control"]
        if not known and any(isinstance(label, str) for label in labels):
            raise SettingError(
                f"no label of {column.name!r} is 'control'; set the label of the control group: "
                + " or ".join(f"criterion.control={label}" for label in labels[:3])
            )
        first = known[0] if known else labels[0]
    return (first, *(label for label in labels if label != first))


def _named(text, labels, setting, column):
    """Return the label that a setting names, None if the setting is empty."""
    if not text:
        return None
    for label in labels:
        if text in (str(label), _shortly(label)):
            return label
    raise SettingError(
        f"criterion.{setting} is {text!r}, but column {column!r} holds "
        + ", ".join(_shortly(label) for label in labels)
    )


def _shortly(label):
    """Return a label as text, 1.0 as 1."""
    return f"{label:g}" if isinstance(label, float) else str(label)


UPLIFT = Task(
    "uplift",
    target="classification",
    answers="regression",
    lay_out=lay_out,
    columns=("treatment",),
    settings=(
        Setting("treatment", "treatment", "column that holds the treatment of each row"),
        Setting(
            "control", "", "label of the control group; default 'control', or the smallest number"
        ),
        Setting("outcome", "", "label of the target that is a success; default the last class"),
    ),
)
