"""What the nodes say of each target, ready to be drawn."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output
from treekit.model.model import Model, spread
from treekit.model.scoring import label_codes
from treekit.plot.language import Language
from treekit.plot.words import shown_label, shown_name, value_text

__all__ = ["MOST_CLASSES", "Answer", "Target", "targets"]

MOST_CLASSES = 8
"""Classes with a colour of their own, the heaviest at the root; the others share a grey one."""


@dataclass(frozen=True)
class Answer:
    """What one node says of one target.

    Attributes
    ----------
    text : str
        The label, or the number.
    exact : str
        The same in full.
    bars : tuple of float
        Classification: training weight of each entry of `Target.entries`.
    entry : int
        The entry that the label belongs to; -1 for numbers.
    place : float
        Regression: where the number lies from the smallest (0) to the largest (1) drawn.
    """

    text: str
    exact: str
    bars: tuple[float, ...] = ()
    entry: int = -1
    place: float = 0.0


@dataclass(frozen=True)
class Target:
    """One target: its name, what the parts of its bars are, and every node's answer.

    Attributes
    ----------
    name : str
    entries : tuple of str
        Classes in schema order, at most `MOST_CLASSES` and one for the others;
        empty for a number.
    answers : tuple of Answer
        One for each node drawn.
    """

    name: str
    entries: tuple[str, ...]
    answers: tuple[Answer, ...]


def targets(
    model: Model, number: int, nodes: npt.NDArray[np.int64], language: Language
) -> tuple[Target, ...]:
    """What `nodes` of tree `number` say.

    A leaf says what the model stores for it, an inner node what its training
    rows would make it say.
    """
    tree, schema = model.trees[number], model.schema
    leaf = tree.n_children[nodes] == 0
    rows = np.searchsorted(tree.leaves, nodes[leaf])
    if schema.task == "regression" or model.margins:
        value = tree.value[nodes].copy()
        value[leaf] = np.ldexp(model.tree_units(number)[rows].astype(np.float64), model.exponent)
        added_to = [str(c) for c in schema.classes] if model.margins else []
        names = added_to or [output.name for output in schema.outputs]
        return tuple(_number(name, value[:, k]) for k, name in enumerate(names))
    weights = tree.value[nodes]
    votes = np.zeros(weights.shape, dtype=np.int64)
    blocks = list(itertools.pairwise(schema.blocks))
    told = np.all([weights[:, a:b].any(axis=1) for a, b in blocks], axis=0)
    votes[told] = spread(model, weights[told])
    votes[leaf] = model.tree_units(number)[rows]
    labels = label_codes(model, votes)
    return tuple(
        _classes(output, weights[:, a:b], labels[:, k], language)
        for k, (output, (a, b)) in enumerate(zip(schema.outputs, blocks, strict=True))
    )


def _number(name: str, values: npt.NDArray[np.float64]) -> Target:
    low, high = float(values.min()), float(values.max())
    with np.errstate(over="ignore"):
        width = high - low
    # Halved first where the width of the range leaves float64.
    place = (
        (values / 2 - low / 2) / (high / 2 - low / 2) if width > 0 else np.full(len(values), 0.5)
    )
    answers = [
        Answer(value_text(v), repr(v), place=p)
        for v, p in zip(values.tolist(), place.tolist(), strict=True)
    ]
    return Target(shown_name(name), (), tuple(answers))


def _classes(
    output: Output,
    weights: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int64],
    language: Language,
) -> Target:
    texts = [shown_label(label) for label in output.classes]
    entry = np.arange(len(texts))
    if len(texts) > MOST_CLASSES + 1:  # a grey part for one class alone would say less
        heaviest = np.sort(np.argsort(-weights[0], kind="stable")[:MOST_CLASSES])
        entry = np.full(len(texts), MOST_CLASSES)
        entry[heaviest] = np.arange(MOST_CLASSES)
        entries = [texts[i] for i in heaviest.tolist()] + [language.others]
    else:
        entries = texts
    bars = np.zeros((len(weights), len(entries)))
    np.add.at(bars.T, entry, weights.T)
    answers = [
        Answer(texts[label], texts[label], tuple(bar), int(entry[label]))
        for label, bar in zip(labels.tolist(), bars.tolist(), strict=True)
    ]
    return Target(shown_name(output.name), tuple(entries), tuple(answers))
