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
from treekit.model.model import Model, distribute_votes
from treekit.model.scoring import compute_label_codes
from treekit.model.tree import Tree
from treekit.plot.layout import clip_text, estimate_text_width, wrap_text
from treekit.plot.wording import (
    BranchText,
    Language,
    SplitText,
    describe_split,
    format_label,
    format_name,
    format_percent,
    format_value,
    format_weight,
)

# ---------------------------------------------------------------- target values

MAX_COLOURED_CLASSES = 8
"""Classes with a separate colour, the heaviest at the root; the others share grey."""


@dataclass(frozen=True)
class NodeValue:
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
    position : float
        Regression: position of the number between the smallest (0) and the largest (1) drawn.
    """

    text: str
    exact: str
    bars: tuple[float, ...] = ()
    entry: int = -1
    position: float = 0.0


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
    answers: tuple[NodeValue, ...]


def make_targets(
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
        return tuple(_make_number_target(name, value[:, k]) for k, name in enumerate(names))
    weights = tree.value[nodes]
    votes = np.zeros(weights.shape, dtype=np.int64)
    blocks = list(itertools.pairwise(schema.blocks))
    weighted = np.all([weights[:, a:b].any(axis=1) for a, b in blocks], axis=0)
    votes[weighted] = distribute_votes(model, weights[weighted])
    votes[leaf] = model.tree_units(number)[rows]
    labels = compute_label_codes(model, votes)
    return tuple(
        _make_class_target(output, weights[:, a:b], labels[:, k], language)
        for k, (output, (a, b)) in enumerate(zip(schema.outputs, blocks, strict=True))
    )


def _make_number_target(name: str, values: npt.NDArray[np.float64]) -> Target:
    low, high = float(values.min()), float(values.max())
    with np.errstate(over="ignore"):
        width = high - low
    # Halved first, because the width of the range may overflow float64.
    place = (
        (values / 2 - low / 2) / (high / 2 - low / 2) if width > 0 else np.full(len(values), 0.5)
    )
    answers = [
        NodeValue(format_value(v), repr(v), position=p)
        for v, p in zip(values.tolist(), place.tolist(), strict=True)
    ]
    return Target(format_name(name), (), tuple(answers))


def _make_class_target(
    output: Output,
    weights: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int64],
    language: Language,
) -> Target:
    texts = [format_label(label) for label in output.classes]
    entry = np.arange(len(texts))
    if len(texts) > MAX_COLOURED_CLASSES + 1:  # a single remaining class keeps its name
        heaviest = np.sort(np.argsort(-weights[0], kind="stable")[:MAX_COLOURED_CLASSES])
        entry = np.full(len(texts), MAX_COLOURED_CLASSES)
        entry[heaviest] = np.arange(MAX_COLOURED_CLASSES)
        entries = [texts[i] for i in heaviest.tolist()] + [language.others]
    else:
        entries = texts
    bars = np.zeros((len(weights), len(entries)))
    np.add.at(bars.T, entry, weights.T)
    answers = [
        NodeValue(texts[label], texts[label], tuple(bar), int(entry[label]))
        for label, bar in zip(labels.tolist(), bars.tolist(), strict=True)
    ]
    return Target(format_name(output.name), tuple(entries), tuple(answers))


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
    branch: BranchText | None
    question: SplitText | None
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
        from treekit.plot.svg import write_svg

        return write_svg(self)

    def dot(self) -> str:
        """Return the picture in the DOT language of Graphviz."""
        from treekit.plot.dot import write_dot

        return write_dot(self)

    def hover(self, at: int) -> str:
        """Return the tooltip of a node, one fact per line."""
        drawn, words = self.nodes[at], self.language
        lines = [words.marked] if drawn.marked else []
        if drawn.branch:
            lines.append(f"{drawn.branch.full} {drawn.branch.rest}".rstrip())
        if drawn.question:
            lines += [words.if_missing.format(text) for text in drawn.question.surrogates]
        whole = format_weight(self.nodes[0].weight)
        lines.append(
            words.rows.format(format_percent(drawn.share), format_weight(drawn.weight), whole)
        )
        for target in self.targets:
            answer = target.answers[at]
            lines.append(f"{target.name}: {answer.exact}")
            weights = zip(target.entries, answer.bars, strict=False)
            lines += [f"  {entry}: {format_weight(weight)}" for entry, weight in weights if weight]
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
    """Make the picture of tree `number` of a model, from 0; see `select_drawn_part`."""
    tree = model.trees[number]
    way = mark_paths(tree, marked) if marked else None
    part = select_drawn_part(tree, max_depth, way)
    reached: list[BranchText | None] = [None] * len(part.nodes)
    root = float(tree.weight[0])
    nodes = []
    for at, (node, first, n, hidden, depth) in enumerate(
        zip(*(array.tolist() for array in part[:5]), strict=True)
    ):
        asked = describe_split(model, tree, node, language) if n else None
        if asked:
            reached[first : first + n] = asked.branches
        weight = float(tree.weight[node])
        share = weight / root if root > 0 else 0.0
        own = Drawn(node, depth, first, n, reached[at], asked, hidden, weight, share)
        nodes.append(own if way is None or not way[node] else replace(own, marked=True))
    names = ", ".join(format_name(output.name) for output in model.schema.outputs)
    title = language.title.format(names)
    if model.n_trees > 1:
        title += f" ({language.of_tree.format(number + 1, model.n_trees)})"
    return Picture(
        title=title,
        described=_describe_tree(nodes, tree.n_leaves, tree.depth, language),
        notes=_list_notes(model, nodes, tree.n_leaves, part.path_only, language),
        targets=make_targets(model, number, np.asarray(part.nodes), language),
        nodes=tuple(nodes),
        language=language,
    )


def _describe_tree(nodes: list[Drawn], leaves: int, depth: int, language: Language) -> str:
    asked = nodes[0].question
    return language.described.format(leaves, depth, asked.text if asked else "—")


def _list_notes(
    model: Model, nodes: list[Drawn], leaves: int, along: bool, language: Language
) -> tuple[str, ...]:
    notes = []
    hidden = sum(drawn.hidden for drawn in nodes)
    if hidden and along:
        notes.append(language.path_only.format(f"{leaves - hidden:,}", f"{leaves:,}"))
        if any(drawn.marked and drawn.hidden for drawn in nodes):
            notes.append(language.path_continues.format(MAX_PATH_DEPTH))
    elif hidden:
        depth = max(drawn.depth for drawn in nodes)
        notes.append(language.cut.format(depth, f"{leaves - hidden:,}", f"{leaves:,}"))
    if nodes[0].question:
        notes.append(language.missing[model.missing])
    return tuple(notes)


# ---------------------------------------------------------------- cut

MOST_ENDS = 40
"""``max_depth="auto"`` stops at the deepest level with at most this many ends (leaves and cuts)."""

MAX_PATH_DEPTH = 30
"""Maximum depth of a marked path if the tree is not drawn completely."""

MaxDepth = int | Literal["auto", "way"] | None


class DrawnPart(NamedTuple):
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
    path_only : bool
        Whether only the marked paths and their other branches are drawn.
    """

    nodes: npt.NDArray[np.int64]
    first_child: npt.NDArray[np.int64]
    n_children: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]
    path_only: bool


def select_drawn_part(
    tree: Tree, max_depth: MaxDepth, way: npt.NDArray[np.bool_] | None = None
) -> DrawnPart:
    """Select the nodes to draw.

    Parameters
    ----------
    tree : Tree
    max_depth : int, "auto", "way" or None
        Maximum depth; "auto": see `MOST_ENDS`; None: all nodes.
    way : (nodes,) bool, optional
        Marked paths from the root (see `mark_paths`).  ``way`` draws these nodes
        and their other branches, down to `MOST_LEVELS`; so does ``auto`` if it
        would cut the tree.

    Raises
    ------
    SettingError
        If `max_depth` is invalid.
    """
    depths = tree.depths
    limit = _resolve_max_depth(
        tree, depths, "auto" if max_depth == "way" and way is not None else max_depth
    )
    opened = (tree.n_children > 0) & (depths < limit)
    too_large = max_depth == "auto" and limit < int(depths.max())
    along = False
    if way is not None and (max_depth == "way" or too_large):
        along, opened = True, (tree.n_children > 0) & (depths < MAX_PATH_DEPTH) & way
    # Siblings are drawn together, so they stay adjacent and in order.
    drawn = opened[tree.parent]
    drawn[0] = True
    nodes, inner = np.flatnonzero(drawn), opened[drawn]
    place = np.cumsum(drawn) - 1
    return DrawnPart(
        nodes=nodes,
        first_child=np.where(inner, place[tree.first_child[nodes]], -1),
        n_children=np.where(inner, tree.n_children[nodes], 0).astype(np.int64),
        hidden=np.where(
            (tree.n_children[nodes] > 0) & ~inner, _count_leaves_below(tree, depths)[nodes], 0
        ),
        depth=depths[nodes],
        path_only=along,
    )


def mark_paths(tree: Tree, marked: Collection[int]) -> npt.NDArray[np.bool_]:
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


def _resolve_max_depth(tree: Tree, depths: npt.NDArray[np.int64], max_depth: MaxDepth) -> int:
    if max_depth is None:
        return int(depths.max())
    if isinstance(max_depth, int) and not isinstance(max_depth, bool) and max_depth >= 0:
        return max_depth
    if max_depth != "auto":
        raise SettingError(
            f"max_depth of a picture is {max_depth!r}: expected a depth from 0, 'auto', 'way' "
            "(only if nodes are marked), or None for all depths"
        )
    leaf = tree.n_children == 0
    of_depth = np.bincount(depths)
    leaves_above = np.cumsum(np.bincount(depths[leaf], minlength=len(of_depth)))
    inner_here = np.bincount(depths[~leaf], minlength=len(of_depth))
    return max(int(np.flatnonzero(leaves_above + inner_here <= MOST_ENDS).max(initial=0)), 1)


def _count_leaves_below(tree: Tree, depths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
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

FONT_SIZE, SMALL_FONT_SIZE = 13.0, 11.0
LINE_HEIGHT, SMALL_LINE_HEIGHT = 17.0, 15.0
PADDING = 9.0
BAR_HEIGHT, BAR_GAP = 13.0, 6.0
MIN_BAR_WIDTH, MAX_TEXT_WIDTH = 70.0, 250.0
BRANCH_PADDING = 8.0


@dataclass(frozen=True)
class Box:
    """Text lines and size of a node, in pixels.

    Attributes
    ----------
    head : tuple of str
        Lines in bold: the split, or the leaf value.
    surrogate : str
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
    surrogate: str
    captions: tuple[str, ...]
    share: str
    branch: str
    rest: str
    width: float
    height: float
    span: float


def make_box(picture: Picture, at: int) -> Box:
    """Make the box of node `at` of a picture."""
    drawn, words, targets = picture.nodes[at], picture.language, picture.targets
    many = len(targets) > 1
    if drawn.question:
        head = tuple(wrap_text(drawn.question.text, MAX_TEXT_WIDTH, FONT_SIZE, 3, bold=True))
    elif drawn.hidden:
        more = words.hidden_one if drawn.hidden == 1 else words.hidden
        head = (more.format(f"{drawn.hidden:,}"),)
    else:
        head = (
            ()
            if many
            else (clip_text(targets[0].answers[at].text, MAX_TEXT_WIDTH, FONT_SIZE, bold=True),)
        )
    captions = tuple(
        clip_text(f"{target.name}: {target.answers[at].text}", MAX_TEXT_WIDTH, SMALL_FONT_SIZE)
        if many
        else target.answers[at].text
        if drawn.question and not target.entries
        else ""
        for target in targets
    )
    share = f"{format_percent(drawn.share)} · {format_weight(drawn.weight)}"
    if drawn.weight == 0:
        share = words.no_rows
    instead = ""
    if drawn.question and drawn.question.surrogates:
        first, *others = drawn.question.surrogates
        text = words.if_missing.format(first)
        instead = clip_text(
            words.and_more.format(text, len(others)) if others else text,
            MAX_TEXT_WIDTH,
            SMALL_FONT_SIZE,
        )
    small = [line for line in (instead, *captions, share) if line]
    width = max(
        MIN_BAR_WIDTH,
        *(estimate_text_width(line, FONT_SIZE, bold=True) for line in head),
        *(estimate_text_width(line, SMALL_FONT_SIZE) for line in small),
    )
    height = (
        2 * PADDING
        + len(head) * LINE_HEIGHT
        + len(small) * SMALL_LINE_HEIGHT
        + len(targets) * (BAR_HEIGHT + BAR_GAP)
    )
    branch = clip_text(drawn.branch.label, MAX_TEXT_WIDTH, SMALL_FONT_SIZE) if drawn.branch else ""
    rest = drawn.branch.rest if drawn.branch else ""
    label = (
        estimate_text_width(" ".join(filter(None, (branch, rest))), SMALL_FONT_SIZE)
        + BRANCH_PADDING
    )
    width += 2 * PADDING
    return Box(head, instead, captions, share, branch, rest, width, height, max(width, label))
