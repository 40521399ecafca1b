"""Content of a picture: the drawn nodes, their texts and the values of targets."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output
from treekit.errors import SettingError
from treekit.model.model import Model, spread
from treekit.model.scoring import label_codes
from treekit.model.tree import Tree
from treekit.plot.layout import clipped, text_width, wrapped
from treekit.plot.wording import (
    Branch,
    Language,
    Question,
    percent_text,
    question,
    shown_label,
    shown_name,
    value_text,
    weight_text,
)

__all__ = [
    "BAR",
    "BAR_GAP",
    "LINE",
    "MOST_CLASSES",
    "MOST_ENDS",
    "MOST_LEVELS",
    "PAD",
    "SMALL",
    "SMALL_LINE",
    "TEXT",
    "Answer",
    "Box",
    "Cut",
    "Drawn",
    "MaxDepth",
    "Picture",
    "Target",
    "box",
    "cut",
    "make_picture",
    "targets",
    "way_to",
]


# ---------------------------------------------------------------- target values

MOST_CLASSES = 8
"""Classes with a separate colour, the heaviest at the root; the others share grey."""


@dataclass(frozen=True)
class Answer:
    """Value of one node for one target.

    Attributes
    ----------
    text : str
        Label or number.
    exact : str
        Unabbreviated `text`.
    bars : tuple of float
        Classification: training weight of each entry of `Target.entries`.
    entry : int
        Entry of the label; -1 for numbers.
    place : float
        Regression: position of the number between the smallest (0) and the largest (1) drawn.
    """

    text: str
    exact: str
    bars: tuple[float, ...] = ()
    entry: int = -1
    place: float = 0.0


@dataclass(frozen=True)
class Target:
    """Target with its legend entries and the value of every node.

    Attributes
    ----------
    name : str
    entries : tuple of str
        Classes in schema order, at most `MOST_CLASSES` and one for the others;
        empty for a number.
    answers : tuple of Answer
        Value of each drawn node.
    """

    name: str
    entries: tuple[str, ...]
    answers: tuple[Answer, ...]


def targets(
    model: Model, number: int, nodes: npt.NDArray[np.int64], language: Language
) -> tuple[Target, ...]:
    """Compute the values of `nodes` of tree `number` for each target.

    The value of a leaf is the one stored in the model; that of an inner node is the value
    it would have as a leaf.
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
    weighted = np.all([weights[:, a:b].any(axis=1) for a, b in blocks], axis=0)
    votes[weighted] = spread(model, weights[weighted])
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
    # Halved first, because the width of the range may overflow float64.
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
    if len(texts) > MOST_CLASSES + 1:  # a single remaining class keeps its name
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


# ---------------------------------------------------------------- picture


@dataclass(frozen=True)
class Drawn:
    """Drawn node of a picture.

    Attributes
    ----------
    node : int
        Number of the node in the tree.
    depth : int
    first_child, n_children : int
        Children among the drawn nodes; they are adjacent.
    branch : Branch or None
        Branch from the parent; None for the root.
    question : Question or None
        Split; None for leaves and for nodes at which the picture is cut.
    hidden : int
        Leaves below a node at which the picture is cut; else 0.
    weight, share : float
        Training weight of the node, and its share of the root's.
    marked : bool
        Whether the node is on a marked path.
    """

    node: int
    depth: int
    first_child: int
    n_children: int
    branch: Branch | None
    question: Question | None
    hidden: int
    weight: float
    share: float
    marked: bool = False


@dataclass(frozen=True)
class Picture:
    """Picture of a tree; ``svg()`` and ``dot()`` write it, and a notebook displays it.

    Attributes
    ----------
    title, described : str
    notes : tuple of str
        Notes on the complete tree and on the drawn part.
    targets : tuple of Target
        Values of the nodes.
    nodes : tuple of Drawn
        The root first, a parent before its children.
    language : Language
    """

    title: str
    described: str
    notes: tuple[str, ...]
    targets: tuple[Target, ...] = field(repr=False)
    nodes: tuple[Drawn, ...] = field(repr=False)
    language: Language = field(repr=False)

    def svg(self) -> str:
        """Return the picture as a self-contained SVG element."""
        from treekit.plot.svg import svg

        return svg(self)

    def dot(self) -> str:
        """Return the picture in the DOT language of Graphviz."""
        from treekit.plot.dot import dot

        return dot(self)

    def hover(self, at: int) -> str:
        """Return the tooltip of a node, one fact per line."""
        drawn, words = self.nodes[at], self.language
        lines = [words.marked] if drawn.marked else []
        if drawn.branch:
            lines.append(f"{drawn.branch.full} {drawn.branch.rest}".rstrip())
        if drawn.question:
            lines += [words.instead.format(text) for text in drawn.question.instead]
        whole = weight_text(self.nodes[0].weight)
        lines.append(words.rows.format(percent_text(drawn.share), weight_text(drawn.weight), whole))
        for target in self.targets:
            answer = target.answers[at]
            lines.append(f"{target.name}: {answer.exact}")
            weights = zip(target.entries, answer.bars, strict=False)
            lines += [f"  {entry}: {weight_text(weight)}" for entry, weight in weights if weight]
        return "\n".join(lines)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        # With a scroll bar, so that a wide tree is not shrunk until it is illegible.
        return f'<div style="overflow-x:auto">{self.svg()}</div>'


def make_picture(
    model: Model,
    number: int,
    max_depth: MaxDepth,
    language: Language,
    marked: Collection[int] = (),
) -> Picture:
    """Make the picture of tree `number` of a model, from 0, down to a depth (see `cut`)."""
    tree = model.trees[number]
    way = way_to(tree, marked) if marked else None
    part = cut(tree, max_depth, way)
    reached: list[Branch | None] = [None] * len(part.nodes)
    root = float(tree.weight[0])
    nodes = []
    for at, (node, first, n, hidden, depth) in enumerate(
        zip(*(array.tolist() for array in part[:5]), strict=True)
    ):
        asked = question(model, tree, node, language) if n else None
        if asked:
            reached[first : first + n] = asked.branches
        weight = float(tree.weight[node])
        share = weight / root if root > 0 else 0.0
        own = Drawn(node, depth, first, n, reached[at], asked, hidden, weight, share)
        nodes.append(own if way is None or not way[node] else replace(own, marked=True))
    names = ", ".join(shown_name(output.name) for output in model.schema.outputs)
    title = language.title.format(names)
    if model.n_trees > 1:
        title += f" ({language.of_tree.format(number + 1, model.n_trees)})"
    return Picture(
        title=title,
        described=_described(nodes, tree.n_leaves, tree.depth, language),
        notes=_notes(model, nodes, tree.n_leaves, part.along, language),
        targets=targets(model, number, np.asarray(part.nodes), language),
        nodes=tuple(nodes),
        language=language,
    )


def _described(nodes: list[Drawn], leaves: int, depth: int, language: Language) -> str:
    asked = nodes[0].question
    return language.described.format(leaves, depth, asked.text if asked else "—")


def _notes(
    model: Model, nodes: list[Drawn], leaves: int, along: bool, language: Language
) -> tuple[str, ...]:
    notes = []
    hidden = sum(drawn.hidden for drawn in nodes)
    if hidden and along:
        notes.append(language.along.format(f"{leaves - hidden:,}", f"{leaves:,}"))
        if any(drawn.marked and drawn.hidden for drawn in nodes):
            notes.append(language.goes_on.format(MOST_LEVELS))
    elif hidden:
        depth = max(drawn.depth for drawn in nodes)
        notes.append(language.cut.format(depth, f"{leaves - hidden:,}", f"{leaves:,}"))
    if nodes[0].question:
        notes.append(language.missing[model.missing])
    return tuple(notes)


# ---------------------------------------------------------------- cut

MOST_ENDS = 40
"""``max_depth="auto"`` stops at the deepest level with at most this many ends (leaves and cuts)."""

MOST_LEVELS = 30
"""Maximum depth of a marked path if the tree is not drawn completely."""

MaxDepth = int | Literal["auto", "way"] | None


class Cut(NamedTuple):
    """Drawn part of a tree.

    Attributes
    ----------
    nodes : (drawn,) int64
        Ascending: a parent before its children, siblings adjacent.
    first_child, n_children : (drawn,) int64
        Children among the drawn nodes; -1 and 0 at the ends.
    hidden : (drawn,) int64
        Leaves below a node at which the tree is cut; 0 elsewhere.
    depth : (drawn,) int64
    along : bool
        Whether only the marked paths and their other branches are drawn.
    """

    nodes: npt.NDArray[np.int64]
    first_child: npt.NDArray[np.int64]
    n_children: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]
    along: bool


def cut(tree: Tree, max_depth: MaxDepth, way: npt.NDArray[np.bool_] | None = None) -> Cut:
    """Select the nodes to draw.

    Parameters
    ----------
    tree : Tree
    max_depth : int, "auto", "way" or None
        Maximum depth; "auto": see `MOST_ENDS`; None: all nodes.
    way : (nodes,) bool, optional
        Marked paths from the root (see `way_to`).  ``way`` draws these nodes
        and their other branches, down to `MOST_LEVELS`; so does ``auto`` if it
        would cut the tree.

    Raises
    ------
    SettingError
        If `max_depth` is invalid.
    """
    depths = tree.depths
    limit = _limit(tree, depths, "auto" if max_depth == "way" and way is not None else max_depth)
    opened = (tree.n_children > 0) & (depths < limit)
    too_large = max_depth == "auto" and limit < int(depths.max())
    along = False
    if way is not None and (max_depth == "way" or too_large):
        along, opened = True, (tree.n_children > 0) & (depths < MOST_LEVELS) & way
    # Siblings are drawn together, so they stay adjacent and in order.
    drawn = opened[tree.parent]
    drawn[0] = True
    nodes, inner = np.flatnonzero(drawn), opened[drawn]
    place = np.cumsum(drawn) - 1
    return Cut(
        nodes=nodes,
        first_child=np.where(inner, place[tree.first_child[nodes]], -1),
        n_children=np.where(inner, tree.n_children[nodes], 0).astype(np.int64),
        hidden=np.where(
            (tree.n_children[nodes] > 0) & ~inner, _leaves_below(tree, depths)[nodes], 0
        ),
        depth=depths[nodes],
        along=along,
    )


def way_to(tree: Tree, marked: Collection[int]) -> npt.NDArray[np.bool_]:
    """Return a mask (nodes,) of the decision paths from the root to the marked nodes.

    Raises
    ------
    SettingError
        For a node that the tree does not have.
    """
    way = np.zeros(tree.n_nodes, dtype=np.bool_)
    parent = tree.parent
    for node in marked:
        if not 0 <= node < tree.n_nodes:
            raise SettingError(
                f"there is no node {node}: nodes are numbered from 0 to {tree.n_nodes - 1}"
            )
        at = node
        while not way[at]:
            way[at] = True
            at = int(parent[at]) if at else 0
    return way


def _limit(tree: Tree, depths: npt.NDArray[np.int64], max_depth: MaxDepth) -> int:
    if max_depth is None:
        return int(depths.max())
    if isinstance(max_depth, int) and not isinstance(max_depth, bool) and max_depth >= 0:
        return max_depth
    if max_depth != "auto":
        raise SettingError(
            f"max_depth of a picture is {max_depth!r}: expected a depth from 0, 'auto', 'way' "
            "with marked nodes, or None for all"
        )
    leaf = tree.n_children == 0
    of_depth = np.bincount(depths)
    leaves_above = np.cumsum(np.bincount(depths[leaf], minlength=len(of_depth)))
    inner_here = np.bincount(depths[~leaf], minlength=len(of_depth))
    return max(int(np.flatnonzero(leaves_above + inner_here <= MOST_ENDS).max(initial=0)), 1)


def _leaves_below(tree: Tree, depths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count the leaves of the subtree of each node (n,), from the deepest level up."""
    count: npt.NDArray[np.int64] = (tree.n_children == 0).astype(np.int64)
    parent = tree.parent
    order = np.argsort(depths, kind="stable")
    edges = np.searchsorted(depths[order], np.arange(1, int(depths.max()) + 2))
    for level in range(len(edges) - 2, -1, -1):
        here = order[edges[level] : edges[level + 1]]
        np.add.at(count, parent[here], count[here])
    return count


# ---------------------------------------------------------------- boxes

TEXT, SMALL = 13.0, 11.0
LINE, SMALL_LINE = 17.0, 15.0
PAD = 9.0
BAR, BAR_GAP = 13.0, 6.0
LEAST_BAR, MOST_TEXT = 70.0, 250.0
BRANCH_PAD = 8.0


@dataclass(frozen=True)
class Box:
    """Text lines and size of a node, in pixels.

    Attributes
    ----------
    head : tuple of str
        Lines in bold: the split, or the leaf value.
    instead : str
        First surrogate; else empty.
    captions : tuple of str
        Line above each bar, if there are several targets; else empty texts.
    share : str
        Last line.
    branch, rest : str
        Label above the box, and its continuation in a lighter tone.
    width, height : float
        Size of the box.
    span : float
        Width of the box and its label.
    """

    head: tuple[str, ...]
    instead: str
    captions: tuple[str, ...]
    share: str
    branch: str
    rest: str
    width: float
    height: float
    span: float


def box(picture: Picture, at: int) -> Box:
    """Make the box of node `at` of a picture."""
    drawn, words, targets = picture.nodes[at], picture.language, picture.targets
    many = len(targets) > 1
    if drawn.question:
        head = tuple(wrapped(drawn.question.text, MOST_TEXT, TEXT, 3, bold=True))
    elif drawn.hidden:
        more = words.hidden_one if drawn.hidden == 1 else words.hidden
        head = (more.format(f"{drawn.hidden:,}"),)
    else:
        head = () if many else (clipped(targets[0].answers[at].text, MOST_TEXT, TEXT, bold=True),)
    captions = tuple(
        clipped(f"{target.name}: {target.answers[at].text}", MOST_TEXT, SMALL) if many
        else target.answers[at].text if drawn.question and not target.entries
        else ""
        for target in targets
    )  # fmt: skip
    share = f"{percent_text(drawn.share)} · {weight_text(drawn.weight)}"
    if drawn.weight == 0:
        share = words.nobody
    instead = ""
    if drawn.question and drawn.question.instead:
        first, *others = drawn.question.instead
        text = words.instead.format(first)
        instead = clipped(
            words.and_more.format(text, len(others)) if others else text, MOST_TEXT, SMALL
        )
    small = [line for line in (instead, *captions, share) if line]
    width = max(
        LEAST_BAR,
        *(text_width(line, TEXT, bold=True) for line in head),
        *(text_width(line, SMALL) for line in small),
    )
    height = 2 * PAD + len(head) * LINE + len(small) * SMALL_LINE + len(targets) * (BAR + BAR_GAP)
    branch = clipped(drawn.branch.label, MOST_TEXT, SMALL) if drawn.branch else ""
    rest = drawn.branch.rest if drawn.branch else ""
    label = text_width(" ".join(filter(None, (branch, rest))), SMALL) + BRANCH_PAD
    width += 2 * PAD
    return Box(head, instead, captions, share, branch, rest, width, height, max(width, label))
