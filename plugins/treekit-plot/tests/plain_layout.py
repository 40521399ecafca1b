"""Slow layout of tree drawings that moves complete subtrees level by level."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["tidy"]

Levels = list[list[tuple[int, float]]]
"""Nodes of a subtree from left to right, with their centres, for each level."""


def tidy(
    first_child: Sequence[int],
    n_children: Sequence[int],
    widths: Sequence[float],
    gap: float,
    stranger_gap: float,
) -> list[float]:
    """Compute the node centres expected from `treekit_plot.layout.compute_centres`."""
    children = [
        list(range(first, first + n)) for first, n in zip(first_child, n_children, strict=True)
    ]
    parent = {child: node for node, own in enumerate(children) for child in own}

    def distance(left: int, right: int) -> float:
        space = gap if parent[left] == parent[right] else stranger_gap
        return (widths[left] + widths[right]) / 2 + space

    def subtree(node: int) -> Levels:
        parts = [subtree(child) for child in children[node]]
        if not parts:
            return [[(node, 0.0)]]
        spread = [0.0] * len(parts)
        for i in range(1, len(parts)):
            before, own = parts[i - 1][0][0], parts[i][0][0]
            parts[i] = moved(parts[i], before[1] + distance(before[0], own[0]) - own[1])
            for level in range(len(parts[i])):
                nearest = [j for j in range(i) if level < len(parts[j])]
                if not nearest:
                    break
                j = nearest[-1]
                left, right = parts[j][level][-1], parts[i][level][0]
                move = left[1] + distance(left[0], right[0]) - right[1]
                if move > 0:
                    parts[i] = moved(parts[i], move)
                    for k in range(j + 1, i):  # distribute the gap among those between
                        spread[k] += move * (k - j) / (i - j)
        parts = [moved(part, by) for part, by in zip(parts, spread, strict=True)]
        middle = (parts[0][0][0][1] + parts[-1][0][0][1]) / 2
        below: Levels = [[] for _ in range(max(map(len, parts)))]
        for part in parts:
            for level, nodes in enumerate(part):
                below[level] += nodes
        return [[(node, middle)], *below]

    placed = {node: x for level in subtree(0) for node, x in level}
    left = min(placed[node] - widths[node] / 2 for node in placed)
    return [placed[node] - left for node in range(len(widths))]


def moved(part: Levels, by: float) -> Levels:
    return [[(node, x + by) for node, x in level] for level in part]
