"""Content of a picture: the drawn nodes, their texts and the values of targets."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Output
from treekit.errors import SettingError
from treekit.model.fixed_point import scale_units
from treekit.model.model import Model, distribute_votes
from treekit.model.scoring import compute_label_codes, leaf_indices
from treekit.model.split_tests import (
    NO_BRANCH,
    InnerNode,
    SplitTest,
    TreeNodes,
    describe_branch,
)
from treekit.model.tree import Split, Tree
from treekit.rules.language import Language
from treekit.rules.wording import format_rounded, join_choices
from treekit_plot.wording import (
    format_approximate,
    format_condition,
    format_picture_label,
    format_rounded_percent,
    format_weight,
)

# ---------------------------------------------------------------- histograms of split columns

N_BINS = 20
"""Bins of the range of a number; one or two more where the threshold is not between two."""

MAX_CATEGORIES = 12
"""Categories with a bar of their own, the heaviest of the node."""


class Histogram(NamedTuple):
    """Rows of a node by the column of its split; missing values are left out.

    Attributes
    ----------
    bars : tuple of tuples of float
        For each bin or category, from left to right: rows of each entry of the legend, or of
        all rows for numbers and several targets.
    ends : tuple of str
        Smallest and largest number, or the names of the categories.
    split_at : float
        Position of the split: 0 is the left end of the first bar, 1 the right end of the last.
    row_at : float or None
        Position of the explained row.
    missing : int
        Rows in which the column is missing.
    """

    bars: tuple[tuple[float, ...], ...]
    ends: tuple[str, ...]
    split_at: float
    row_at: float | None = None
    missing: int = 0


class NodeRows:
    """Rows of a table by the nodes of one tree that they pass.

    For fractional instances, the path to the leaf with most of a row's mass.

    Parameters
    ----------
    model : Model
    number : int
        Tree, from 0.
    table : table
        Anything that `treekit.train` accepts, with the target.

    Raises
    ------
    DataError
        If the table cannot be read, or lacks a column.
    """

    def __init__(self, model: Model, number: int, table: Any) -> None:
        from treekit.data.dataset import make_validation

        dataset = make_validation(
            table, model.schema, missing=model.missing, unknown=model.unknown, noun="the table",
            tested=model.tested,
        )  # fmt: skip
        self.cells = dataset.to_matrix()
        self._schema = model.schema
        one_target = model.schema.task == "classification" and not model.schema.more
        self._classes = dataset.y if one_target else np.zeros(dataset.n_rows, dtype=np.int64)
        self._leaves = leaf_indices(model, self.cells)[:, number]
        self._parent = model.trees[number].parent.tolist()

    def find_rows(self, nodes: Sequence[int]) -> dict[int, npt.NDArray[np.intp]]:
        """Return the rows that pass each of some nodes."""
        leaves, leaf_of_row = np.unique(self._leaves, return_inverse=True)
        below: dict[int, list[int]] = {node: [] for node in nodes}
        for place, leaf in enumerate(leaves.tolist()):
            node = leaf
            while True:
                if node in below:
                    below[node].append(place)
                if node == 0:
                    break
                node = self._parent[node]
        return {
            node: np.flatnonzero(np.isin(leaf_of_row, places)) for node, places in below.items()
        }

    def count(
        self,
        rows: npt.NDArray[np.intp],
        node: InnerNode,
        entry_of_class: Sequence[int],
        row: Sequence[float] | None = None,
    ) -> Histogram | None:
        """Return the histogram of `rows` at a node; None if its split has no single column.

        Parameters
        ----------
        rows : (n,) int
        node : InnerNode
        entry_of_class : sequence of int
            Entry of the legend for each class; empty for numbers and several targets.
        row : (features,) sequence of float, optional
            Encoded row to mark.
        """
        if node.kind not in (Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY):
            return None
        test = node.tests[0]
        column = test.columns[0]
        values = self.cells[rows, column].astype(np.float64)
        known = ~np.isnan(values)
        values = values[known]
        entries = np.zeros(len(values), dtype=np.int64)
        if entry_of_class:
            entries = np.asarray(entry_of_class)[self._classes[rows][known]]
        mark = None if row is None or np.isnan(row[column]) else float(row[column])
        n_entries = max(entry_of_class, default=0) + 1
        missing = int((~known).sum())
        if node.kind == Split.THRESHOLD:
            found = _count_numbers(values, entries, n_entries, test.threshold, mark)
        else:
            levels = self._schema.columns[column].levels
            found = _count_levels(values, entries, n_entries, test.branches, mark, levels)
        return found and found._replace(missing=missing)


def _count_numbers(
    values: npt.NDArray[np.float64],
    entries: npt.NDArray[np.int64],
    n_entries: int,
    threshold: float,
    mark: float | None,
) -> Histogram | None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    # In halves, since the width of the range may overflow.
    width = (high / 2 - low / 2 or 1.0) / N_BINS
    middle = min(max(threshold, low), high) / 2

    def measure(x: Any) -> Any:
        return (np.clip(x, low, high) / 2 - middle) / width

    # Bins begin at the threshold, so that each lies on one side.
    bins = np.ceil(measure(values)).astype(np.int64) - 1
    bins = np.where(values <= threshold, np.minimum(bins, -1), np.maximum(bins, 0))
    first, last = min(int(bins.min()), 0), max(int(bins.max()), -1)
    counts = np.zeros((last - first + 1, n_entries))
    np.add.at(counts, (bins - first, entries), 1.0)
    row_at = None
    if mark is not None:
        row_at = min(max((float(measure(mark)) - first) / len(counts), 0.0), 1.0)
    return Histogram(
        tuple(map(tuple, counts.tolist())),
        (format_rounded(low, 3), format_rounded(high, 3)),
        -first / len(counts),
        row_at,
    )


def _count_levels(
    values: npt.NDArray[np.float64],
    entries: npt.NDArray[np.int64],
    n_entries: int,
    branches: Sequence[int],
    mark: float | None,
    levels: Sequence[Any],
) -> Histogram | None:
    counts = np.zeros((len(levels), n_entries))
    np.add.at(counts, (values.astype(np.int64), entries), 1.0)
    heaviest = np.argsort(-counts.sum(axis=1), kind="stable")[:MAX_CATEGORIES].tolist()
    present = [level for level in heaviest if counts[level].any()]
    shown = sorted(present, key=lambda level: (branches[level], level))
    if not shown:
        return None
    first = sum(branches[level] == branches[shown[0]] for level in shown)
    at = shown.index(int(mark)) if mark is not None and int(mark) in shown else None
    return Histogram(
        tuple(map(tuple, counts[shown].tolist())),
        tuple(format_picture_label(levels[level]) for level in shown),
        first / len(shown),
        None if at is None else (at + 0.5) / len(shown),
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
        Classes in schema order, at most `MAX_COLOURED_CLASSES` and one for the others;
        empty for a number.
    answers : tuple of NodeValue
        Value of each drawn node.
    entry_of_class : tuple of int
        Entry of each class; empty for a number.
    """

    name: str
    entries: tuple[str, ...]
    answers: tuple[NodeValue, ...]
    entry_of_class: tuple[int, ...] = ()


def make_targets(
    model: Model, number: int, nodes: npt.NDArray[np.int64], words: Language
) -> tuple[Target, ...]:
    """Compute the values of `nodes` of tree `number` for each target.

    The value of a leaf is the one stored in the model; that of an inner node is the value
    it would have as a leaf.
    """
    tree, schema = model.trees[number], model.schema
    leaf = tree.n_children[nodes] == 0
    units = model.tree_units(number)[np.searchsorted(tree.leaves, nodes[leaf])]
    weights = tree.value[nodes]
    if schema.task == "regression" or model.margins:
        weights[leaf] = scale_units(units, model.exponent)
        names = schema.classes if model.margins else [output.name for output in schema.outputs]
        return tuple(_make_number_target(str(name), weights[:, k]) for k, name in enumerate(names))
    votes = np.zeros(weights.shape, dtype=np.int64)
    blocks = list(itertools.pairwise(schema.blocks))
    weighted = np.all([weights[:, a:b].any(axis=1) for a, b in blocks], axis=0)
    votes[weighted] = distribute_votes(model, weights[weighted])
    votes[leaf] = units
    labels = compute_label_codes(model, votes)
    return tuple(
        _make_class_target(output, weights[:, a:b], labels[:, k], words)
        for k, (output, (a, b)) in enumerate(zip(schema.outputs, blocks, strict=True))
    )


def _make_number_target(name: str, values: npt.NDArray[np.float64]) -> Target:
    half = values / 2  # the width of the range may overflow float64
    low, high = half.min(), half.max()
    place = (half - low) / (high - low) if high > low else np.full(len(values), 0.5)
    answers = [
        NodeValue(format_approximate(v), repr(v), position=p)
        for v, p in zip(values.tolist(), place.tolist(), strict=True)
    ]
    return Target(format_picture_label(name), (), tuple(answers))


def _make_class_target(
    output: Output, weights: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], words: Language
) -> Target:
    texts = list(map(format_picture_label, output.classes))
    entries, entry = texts, np.arange(len(texts))
    if len(texts) > MAX_COLOURED_CLASSES + 1:  # a single remaining class keeps its name
        heaviest = np.sort(np.argsort(-weights[0], kind="stable")[:MAX_COLOURED_CLASSES])
        entry = np.full(len(texts), MAX_COLOURED_CLASSES)
        entry[heaviest] = np.arange(MAX_COLOURED_CLASSES)
        entries = [*(texts[i] for i in heaviest.tolist()), words.say("plot_others")]
    bars = np.zeros((len(weights), len(entries)))
    np.add.at(bars.T, entry, weights.T)
    answers = [
        NodeValue(texts[label], texts[label], tuple(bar), int(entry[label]))
        for label, bar in zip(labels.tolist(), bars.tolist(), strict=True)
    ]
    name = format_picture_label(output.name)
    return Target(name, tuple(entries), tuple(answers), tuple(entry.tolist()))


# ---------------------------------------------------------------- splits

_MAX_SPLIT, _MAX_BRANCH, _MAX_LIST = 44, 24, 2000
"""Characters after which further categories are counted instead of named: in the text of a split,
in that of a branch or condition, and in a tooltip."""


class BranchText(NamedTuple):
    """Branch of a split.

    Attributes
    ----------
    label : str
        ``yes``, ``no``, or categories.
    rest : str
        ``or missing`` for the branch of missing values; else empty.
    full : str
        Complete condition, with all categories.
    """

    label: str
    rest: str
    full: str


class SplitText(NamedTuple):
    """Split of a node.

    Attributes
    ----------
    text : str
    branches : tuple of BranchText
    surrogates : tuple of str
        Surrogates in order, each the condition for branch 0.
    """

    text: str
    branches: tuple[BranchText, ...]
    surrogates: tuple[str, ...]


def describe_split(model: Model, node: InnerNode, words: Language) -> SplitText:
    """Describe the split of an inner node."""

    def describe(test: SplitTest, branch: int, max_length: int) -> str:
        condition = describe_branch(test, branch, model.schema)
        if model.missing == "error" and condition.known:
            condition = replace(condition, missing=False)
        return format_condition(condition, model.schema.dtype, words, max_length)

    labels = [words.say("plot_yes"), words.say("plot_no")]
    if node.kind == Split.RULE:  # tests apply only where a condition is not met
        shown = [describe(test, NO_BRANCH, _MAX_BRANCH) for test in node.tests]
        full = words.say("if_comma").join(
            describe(test, NO_BRANCH, _MAX_LIST) for test in node.tests
        )
        branches = (
            BranchText(labels[0], "", full),
            BranchText(labels[1], "", f"{labels[1]}: {full}"),
        )
        return SplitText(_join_conditions(shown, words), branches, ())
    test, *surrogates = node.tests
    fulls = [describe(test, b, _MAX_LIST) for b in range(len(node.children))]
    name = format_picture_label(model.schema.names[test.columns[0]])
    if node.kind == Split.MULTIWAY:
        text = words.say("plot_split_on", name=name)
        labels = [_list_levels(model, test, b, words) for b in range(len(node.children))]
    else:
        text = describe(test, 0, max(_MAX_SPLIT - len(name), 0))
    rest = _describe_missing_branch(model, node, words)
    return SplitText(
        text,
        tuple(
            BranchText(label, rest if b == node.missing_branch else "", full)
            for b, (label, full) in enumerate(zip(labels, fulls, strict=True))
        ),
        tuple(describe(surrogate, 0, _MAX_BRANCH) for surrogate in surrogates),
    )


def _join_conditions(shown: list[str], words: Language) -> str:
    """Join as many conditions as fit, and the number of further ones."""
    text, n = shown[0], 1
    while n < len(shown) and len(text) + len(shown[n]) <= _MAX_SPLIT:
        text, n = text + words.say("if_comma") + shown[n], n + 1
    return text if n == len(shown) else words.say("plot_and_more", text=text, count=len(shown) - n)


def _list_levels(model: Model, test: SplitTest, branch: int, words: Language) -> str:
    levels = model.schema.columns[test.columns[0]].levels
    own = [level for level, to in zip(levels, test.branches, strict=True) if to == branch]
    return join_choices(list(map(format_picture_label, own)) or ["—"], words, _MAX_BRANCH)


def _describe_missing_branch(model: Model, node: InnerNode, words: Language) -> str:
    """Describe the other values that take the branch of missing values."""
    if node.kind != Split.MISSING and model.missing in ("direction", "surrogate"):
        return words.say("plot_rest_missing")
    # If missing values are refused, categories without training rows here still take it.
    absent = NO_BRANCH in node.tests[0].branches
    return words.say("plot_rest_absent") if absent and model.missing == "error" else ""


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
    branch : BranchText or None
        Branch from the parent; None for the root.
    question : SplitText or None
        Split; None for leaves and for nodes at which the picture is cut.
    hidden : int
        Leaves below a node at which the picture is cut; else 0.
    weight, share : float
        Training weight of the node, and its share of the root's.
    marked : bool
        Whether the node is on a marked path.
    cell : str
        Value of the explained row in the column of the split; empty if there is none.
    histogram : Histogram or None
        Rows of a table at the node, by the column of the split.
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
    cell: str = ""
    histogram: Histogram | None = None


class MarkedRow(NamedTuple):
    """A row whose decision path is drawn.

    Attributes
    ----------
    leaves : tuple of int
        Leaves that it reaches.
    codes : (features,) sequence of float
        Encoded cells.
    cells : mapping of int to str
        Text of each known cell, by the number of its column.
    """

    leaves: tuple[int, ...]
    codes: Sequence[float]
    cells: Mapping[int, str]


@dataclass(frozen=True)
class Picture:
    """Picture of a tree; ``svg()`` and ``dot()`` write it, and a notebook displays it.

    Attributes
    ----------
    title : str
    described : str
        Description of the picture for screen readers: the ``<desc>`` of the SVG.
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
        from treekit_plot.svg import write_svg

        return write_svg(self)

    def dot(self) -> str:
        """Return the picture in the DOT language of Graphviz."""
        from treekit_plot.dot import write_dot

        return write_dot(self)

    def hover(self, at: int) -> str:
        """Return the tooltip of a node, one fact per line."""
        drawn, say = self.nodes[at], self.language.say
        lines = [say("plot_marked")] if drawn.marked else []
        if drawn.branch:
            lines.append(f"{drawn.branch.full} {drawn.branch.rest}".rstrip())
        lines += list_surrogates(drawn, self.language)
        if drawn.cell:
            lines.append(say("plot_cell", cell=drawn.cell))
        if drawn.histogram:
            lines.append(describe_histogram(drawn.histogram, self.language))
        percent, total = format_rounded_percent(drawn.share), format_weight(self.nodes[0].weight)
        weight = format_weight(drawn.weight)
        lines.append(say("plot_rows", percent=percent, weight=weight, total=total))
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


def describe_histogram(histogram: Histogram, words: Language) -> str:
    """Return the rows that a histogram counts and leaves out."""
    counted = format_weight(sum(map(sum, histogram.bars)))
    return words.say("plot_histogram", rows=counted, missing=format_weight(histogram.missing))


def list_surrogates(drawn: Drawn, words: Language) -> list[str]:
    """Return the texts of a node's surrogates, in order."""
    surrogates = drawn.question.surrogates if drawn.question else ()
    return [words.say("plot_if_missing", condition=text) for text in surrogates]


def describe_hidden(drawn: Drawn, words: Language) -> str:
    """Return the number of leaves below a node at which the picture is cut."""
    key = "plot_hidden_one" if drawn.hidden == 1 else "plot_hidden"
    return words.say(key, count=f"{drawn.hidden:,}")


def make_picture(
    model: Model,
    number: int,
    max_depth: MaxDepth,
    words: Language,
    marked: Collection[int] = (),
    row: MarkedRow | None = None,
    table: NodeRows | None = None,
) -> Picture:
    """Make the picture of tree `number` of a model, from 0; see `select_opened_nodes`.

    With a `row`, its path is marked too, and its cells are written at the splits; with a
    `table`, each split has a histogram.
    """
    tree = model.trees[number]
    marked = [*marked, *(row.leaves if row else ())]
    way = mark_paths(tree, marked)
    opened, along = select_opened_nodes(tree, max_depth, way)
    # Siblings are drawn together, so they stay adjacent and in order.
    is_drawn = opened[tree.parent]
    is_drawn[0] = True
    place = np.cumsum(is_drawn) - 1
    shown = np.flatnonzero(is_drawn)
    below, depths, inner = _count_leaves(tree), tree.depths, TreeNodes(tree, model.schema)
    root = float(tree.weight[0])
    targets = make_targets(model, number, shown, words)
    at_node = table.find_rows([n for n in shown.tolist() if opened[n]]) if table else {}
    nodes: list[Drawn] = []
    reached: dict[int, BranchText] = {}
    for node in shown.tolist():
        split, first, n, hidden, cell, histogram = None, -1, 0, 0, "", None
        found = inner[node]
        if found and opened[node]:
            split = describe_split(model, found, words)
            reached |= zip(found.children, split.branches, strict=True)
            first, n = int(place[found.children.start]), len(found.children)
            columns = found.tests[0].columns
            if row and way[node] and found.kind != Split.RULE and len(columns) == 1:
                cell = row.cells.get(columns[0], words.say("plot_cell_missing"))
            if table:
                entries = targets[0].entry_of_class if len(targets) == 1 else ()
                codes = row.codes if row and way[node] else None
                histogram = table.count(at_node[node], found, entries, codes)
        elif found:
            hidden = below[node]
        weight = float(tree.weight[node])
        share = weight / root if root > 0 else 0.0
        branch, depth, mark = reached.get(node), int(depths[node]), bool(way[node])
        nodes.append(
            Drawn(
                node, depth, first, n, branch, split, hidden, weight, share, mark, cell, histogram
            )
        )
    key = "plot_title_of_tree" if model.n_trees > 1 else "plot_title"
    names = ", ".join(format_picture_label(output.name) for output in model.schema.outputs)
    first_split = nodes[0].question.text if nodes[0].question else "—"
    return Picture(
        title=words.say(key, target=names, tree=number + 1, trees=model.n_trees),
        described=words.say(
            "plot_described", leaves=tree.n_leaves, depth=tree.depth, split=first_split
        ),
        notes=tuple(_list_notes(model, nodes, tree.n_leaves, along, words)),
        targets=targets,
        nodes=tuple(nodes),
        language=words,
    )


def _list_notes(
    model: Model, nodes: list[Drawn], leaves: int, along: bool, words: Language
) -> Iterator[str]:
    hidden = sum(drawn.hidden for drawn in nodes)
    if hidden:
        key, depth = "plot_path_only" if along else "plot_cut", max(drawn.depth for drawn in nodes)
        yield words.say(key, drawn=f"{leaves - hidden:,}", leaves=f"{leaves:,}", depth=depth)
    if along and any(drawn.marked and drawn.hidden for drawn in nodes):
        yield words.say("plot_path_continues", depth=MAX_PATH_DEPTH)
    labelled = any(b.rest for drawn in nodes if drawn.question for b in drawn.question.branches)
    # Of policies that the branches state, only where one is drawn: rules state them in conditions.
    if nodes[0].question and (labelled or model.missing not in ("direction", "surrogate")):
        yield words.say(f"plot_missing_{model.missing}")


# ---------------------------------------------------------------- cut

MOST_ENDS = 40
"""``max_depth="auto"`` stops at the deepest level with at most this many ends (leaves and cuts)."""

MAX_PATH_DEPTH = 30
"""Maximum depth of a marked path if the tree is not drawn completely."""

MaxDepth = int | Literal["auto", "way"] | None


def select_opened_nodes(
    tree: Tree, max_depth: MaxDepth, way: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Select the nodes whose children are drawn.

    Parameters
    ----------
    tree : Tree
    max_depth : int, "auto", "way" or None
        Maximum depth; "auto": see `MOST_ENDS`; None: all nodes.
    way : (nodes,) bool
        Marked paths from the root (see `mark_paths`).  ``way`` draws these nodes and their
        other branches, down to `MAX_PATH_DEPTH`; so does ``auto`` if it would cut the tree.

    Returns
    -------
    (nodes,) bool
    path_only : bool
        Whether only the marked paths and their other branches are drawn.

    Raises
    ------
    SettingError
        If `max_depth` is invalid.
    """
    depths, has_path = tree.depths, bool(way.any())
    limit = _resolve_max_depth(tree, "auto" if max_depth == "way" and has_path else max_depth)
    too_large = max_depth == "auto" and limit < tree.depth
    along = has_path and (max_depth == "way" or too_large)
    inner = tree.n_children > 0
    return inner & (way & (depths < MAX_PATH_DEPTH) if along else depths < limit), along


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


def _resolve_max_depth(tree: Tree, max_depth: MaxDepth) -> int:
    if max_depth is None:
        return tree.depth
    if isinstance(max_depth, int) and not isinstance(max_depth, bool) and max_depth >= 0:
        return max_depth
    if max_depth != "auto":
        raise SettingError(
            f"max_depth of a picture is {max_depth!r}: expected an integer >= 0, 'auto', 'way' "
            "(only if nodes are marked), or None for all depths"
        )
    leaf, depths = tree.n_children == 0, tree.depths
    leaves_above = np.cumsum(np.bincount(depths[leaf], minlength=tree.depth + 1))
    inner_here = np.bincount(depths[~leaf], minlength=tree.depth + 1)
    return max(int(np.flatnonzero(leaves_above + inner_here <= MOST_ENDS).max(initial=0)), 1)


def _count_leaves(tree: Tree) -> list[int]:
    """Count the leaves of the subtree of each node."""
    counts: list[int] = (tree.n_children == 0).astype(np.int64).tolist()
    parent = tree.parent.tolist()
    for node in range(tree.n_nodes - 1, 0, -1):  # children come after their parent
        counts[parent[node]] += counts[node]
    return counts
