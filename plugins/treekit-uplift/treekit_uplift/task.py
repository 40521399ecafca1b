"""What uplift trees count and answer: rows of each arm and outcome, effects with their errors."""

from treekit import DataError, Layout, Setting, SettingError, Task

__all__ = ["MOST_ARMS", "UPLIFT", "lay_out"]

MOST_ARMS = 32
"""Labels of a treatment column from which it is taken for something else."""


def lay_out(target, columns, control, outcome):
    """Cells (arm, outcome) of an experiment, its control group first.

    Parameters
    ----------
    target : TaskColumn
        The outcome, of two classes.
    columns : mapping
        ``treatment``: the arm of each row.
    control, outcome : str
        The settings; both may be empty.

    Returns
    -------
    Layout
        ``extra``: the share of each arm in the weight of the training rows, control first.
    """
    arms = _arms(columns["treatment"], control)
    classes = target.labels
    if len(classes) != 2:
        raise DataError(
            f"uplift needs an outcome of two classes, and {target.name!r} has {len(classes)}: "
            + ", ".join(map(repr, classes[:5]))
        )
    success = classes.index(_named(outcome, classes, "outcome", target.name) or classes[1])

    def place(target, columns):
        """(rows,) cells: twice the arm, and one more where the outcome came."""
        return 2 * columns["treatment"].codes(arms) + (target.codes(classes) == success)

    import numpy as np

    given = columns["treatment"].codes(arms)
    held = np.bincount(given, weights=target.weights, minlength=len(arms))
    shares = tuple((held / held.sum()).tolist())
    return Layout(2 * len(arms), place, answer, _names(arms), extra=shares)


def answer(stats):
    """Effects, their standard errors, and the rate of each arm, control last.

    A rate is the mean of what is believed of it after the node's rows, if all rates
    were alike before (Laplace 1774): ``(successes + 1) / (n + 2)``; its variance is
    ``rate * (1 - rate) / (n + 3)``.  So an arm without rows says 1/2, with an error to match.

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
    """Labels of the treatment column, that of the control group first."""
    labels = column.labels
    if not 2 <= len(labels) <= MOST_ARMS:
        raise DataError(
            f"the treatment column {column.name!r} holds {len(labels)} different labels; "
            f"an experiment has 2 to {MOST_ARMS} arms"
        )
    first = _named(control, labels, "control", column.name)
    if first is None:
        known = [label for label in labels if str(label).casefold() == "control"]
        if not known and any(isinstance(label, str) for label in labels):
            raise SettingError(
                f"say which label of {column.name!r} is the control group: "
                + " or ".join(f"criterion.control={label}" for label in labels[:3])
            )
        first = known[0] if known else labels[0]
    return (first, *(label for label in labels if label != first))


def _named(text, labels, setting, column):
    """The label that a setting names, None for an empty one."""
    if not text:
        return None
    for label in labels:
        if text in (str(label), _shortly(label)):
            return label
    raise SettingError(
        f"criterion.{setting} is {text!r}, and column {column!r} holds "
        + ", ".join(_shortly(label) for label in labels)
    )


def _shortly(label):
    """A number as people write it: 1 for 1.0."""
    return f"{label:g}" if isinstance(label, float) else str(label)


UPLIFT = Task(
    "uplift",
    target="classification",
    answers="regression",
    lay_out=lay_out,
    columns=("treatment",),
    settings=(
        Setting("treatment", "treatment", "column that says which treatment a row got"),
        Setting(
            "control", "", "its label of the control group; default 'control', or the least number"
        ),
        Setting("outcome", "", "label of the target that counts; default the last class"),
    ),
)
