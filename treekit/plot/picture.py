"""What is in a picture: the nodes that are drawn, and what each of them says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from treekit.plot.asks import Branch, Question, question
from treekit.plot.cut import MOST_LEVELS, MaxDepth, cut, way_to
from treekit.plot.language import Language
from treekit.plot.says import Target, targets
from treekit.plot.words import percent_text, shown_name, weight_text

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = ["Drawn", "Picture", "make_picture"]


@dataclass(frozen=True)
class Drawn:
    """One node of a picture.

    Attributes
    ----------
    node : int
        Its number in the tree.
    depth : int
    first_child, n_children : int
        Among the nodes drawn; children stand side by side.
    branch : Branch or None
        How it is reached; None for the root.
    question : Question or None
        None for leaves, and where the picture is cut.
    hidden : int
        Leaves below a node at which the picture is cut; else 0.
    weight, share : float
        Training weight that reached it, and its share of the root's.
    marked : bool
        Whether it lies on the way that was asked for.
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
    """A tree as it is drawn; ``svg()`` and ``dot()`` write it, and a notebook shows it.

    Attributes
    ----------
    title, described : str
    notes : tuple of str
        What holds for the whole tree, and how much of it is drawn.
    targets : tuple of Target
        What the nodes say.
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
        """The picture as one SVG element that needs nothing beside itself."""
        from treekit.plot.svg import svg

        return svg(self)

    def dot(self) -> str:
        """The picture in the DOT language of Graphviz."""
        from treekit.plot.dot import dot

        return dot(self)

    def hover(self, at: int) -> str:
        """All that the picture knows of one node, a line for each fact."""
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
        # A scroll bar of its own: a wide tree is not shrunk until nobody can read it.
        return f'<div style="overflow-x:auto">{self.svg()}</div>'


def make_picture(
    model: Model,
    number: int,
    max_depth: MaxDepth,
    language: Language,
    marked: Collection[int] = (),
) -> Picture:
    """The picture of one tree of a model, counted from 0, down to a depth (see `cut`)."""
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
