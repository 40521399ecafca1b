"""Layout of a tree drawing in linear time, and text measurement.

A tidy tree (Reingold and Tilford 1981, "Tidier drawings of trees", IEEE TSE 7(2))
has the nodes of one level on a line, a parent centred over its children and
equal subtrees drawn equally, as narrow as possible.  This is Walker's extension to
any number of children in the linear form of Buchheim, Juenger and Leipert
(2002, "Improving Walker's algorithm to run in linear time", Graph Drawing),
for nodes of any width.  It does not recurse: trees may be thousands of levels deep.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# ---------------------------------------------------------------- layout


def compute_centres(
    first_child: Sequence[int],
    n_children: Sequence[int],
    widths: Sequence[float],
    gap: float,
    stranger_gap: float | None = None,
) -> list[float]:
    """Compute the centre of each node, with a minimum gap between nodes of one level.

    Parameters
    ----------
    first_child, n_children : (n,) int
        As in `treekit.model.tree.Tree`: node 0 is the root, children have
        adjacent numbers and come after their parent; a leaf has no children.
    widths : (n,) float
    gap : float
        Minimum space between two children of one parent, in the unit of `widths`.
    stranger_gap : float, optional
        Minimum space between other nodes of one level; default `gap`.

    Returns
    -------
    (n,) float
        Horizontal centres; the leftmost edge of all nodes is at 0.
    """
    plan = _LayoutPlan(
        first_child, n_children, widths, gap, gap if stranger_gap is None else stranger_gap
    )
    # A child comes after its parent, so in reverse order all subtrees are laid out before
    # their parent: the first walk of Buchheim et al. without recursion.
    for node in range(len(widths) - 1, -1, -1):
        if n_children[node]:
            plan.place_children(node)
    return plan.resolve_centres()


class _LayoutPlan:
    """Per-node fields and the two tree walks of the layout algorithm; see `compute_centres`."""

    def __init__(
        self,
        first_child: Sequence[int],
        n_children: Sequence[int],
        widths: Sequence[float],
        gap: float,
        stranger_gap: float,
    ) -> None:
        n = len(widths)
        self.first_child, self.n_children = first_child, n_children
        self.widths, self.gap, self.stranger_gap = widths, gap, stranger_gap
        self.parent = [-1] * n
        self.middle = [0.0] * n
        """Midpoint of the children, in coordinates of the subtree."""
        self.prelim = [0.0] * n
        self.mod = [0.0] * n
        self.change = [0.0] * n
        self.shift = [0.0] * n
        self.thread = [-1] * n
        self.ancestor = list(range(n))
        for node in range(n):
            for child in range(first_child[node], first_child[node] + n_children[node]):
                self.parent[child] = node

    def place_children(self, node: int) -> None:
        """Place the subtrees below `node` side by side, from left to right."""
        first = self.first_child[node]
        last = first + self.n_children[node] - 1
        default = first
        self.prelim[first] = self.middle[first]
        for child in range(first + 1, last + 1):
            self.prelim[child] = self.prelim[child - 1] + self._compute_distance(child - 1, child)
            self.mod[child] = self.prelim[child] - self.middle[child]
            default = self._apportion(child, first, default)
        self._execute_shifts(first, last)
        self.middle[node] = (self.prelim[first] + self.prelim[last]) / 2

    def resolve_centres(self) -> list[float]:
        """Return the centres: add the shifts from the root down (Buchheim et al., second walk)."""
        n = len(self.widths)
        total = [0.0] * n
        centre = [self.middle[0]] * n
        for node in range(1, n):
            above = self.parent[node]
            total[node] = total[above] + self.mod[above]
            centre[node] = self.prelim[node] + total[node]
        left = min(x - width / 2 for x, width in zip(centre, self.widths, strict=True))
        return [x - left for x in centre]

    def _compute_distance(self, left: int, right: int) -> float:
        siblings = self.parent[left] == self.parent[right]
        space = self.gap if siblings else self.stranger_gap
        return (self.widths[left] + self.widths[right]) / 2 + space

    def _apportion(self, child: int, first: int, default: int) -> int:
        """Move `child` and its subtree right until they are clear of all subtrees to the left.

        Walks down the two facing contours and the two outer ones at once;
        threads continue a contour below the end of a shorter subtree.
        """
        inner_left, inner_right, outer_left, outer_right = child - 1, child, first, child
        sums = [self.mod[v] for v in (inner_left, inner_right, outer_left, outer_right)]
        while True:
            below_left = self._get_next_right(inner_left)
            below_right = self._get_next_left(inner_right)
            if below_left < 0 or below_right < 0:
                break
            inner_left, inner_right = below_left, below_right
            outer_left = self._get_next_left(outer_left)
            outer_right = self._get_next_right(outer_right)
            self.ancestor[outer_right] = child
            gap = self._compute_distance(inner_left, inner_right)
            move = self.prelim[inner_left] + sums[0] + gap - self.prelim[inner_right] - sums[1]
            if move > 0:
                sibling = self.parent[self.ancestor[inner_left]] == self.parent[child]
                self._move_subtree(self.ancestor[inner_left] if sibling else default, child, move)
                sums[1] += move
                sums[3] += move
            facing = (inner_left, inner_right, outer_left, outer_right)
            sums = [own + self.mod[v] for own, v in zip(sums, facing, strict=True)]
        if below_left >= 0 and self._get_next_right(outer_right) < 0:
            self.thread[outer_right] = below_left
            self.mod[outer_right] += sums[0] - sums[3]
        if below_right >= 0 and self._get_next_left(outer_left) < 0:
            self.thread[outer_left] = below_right
            self.mod[outer_left] += sums[1] - sums[2]
            default = child
        return default

    def _move_subtree(self, left: int, right: int, distance: float) -> None:
        """Move subtree `right`; the new space is later shared by those between it and `left`."""
        between = right - left
        self.change[right] -= distance / between
        self.shift[right] += distance
        self.change[left] += distance / between
        self.prelim[right] += distance
        self.mod[right] += distance

    def _execute_shifts(self, first: int, last: int) -> None:
        shift = change = 0.0
        for child in range(last, first - 1, -1):
            self.prelim[child] += shift
            self.mod[child] += shift
            change += self.change[child]
            shift += self.shift[child] + change

    def _get_next_left(self, node: int) -> int:
        """Return the next node on the left contour, -1 at its end."""
        return self.first_child[node] if self.n_children[node] else self.thread[node]

    def _get_next_right(self, node: int) -> int:
        """Return the next node on the right contour, -1 at its end."""
        if not self.n_children[node]:
            return self.thread[node]
        return self.first_child[node] + self.n_children[node] - 1


# ---------------------------------------------------------------- text widths
# Estimated without a font: the widths of DejaVu Sans, the widest of the common
# sans-serif fonts, in em and rounded up, so that text fits in any font.

_CHARACTER_WIDTHS = {
    **dict.fromkeys(" .,:;'|!ijlI`", 0.34),
    **dict.fromkeys('()[]{}/\\ft-"·', 0.42),
    **dict.fromkeys("rsczxvyk^*", 0.56),
    **dict.fromkeys("mwMW@%—…", 1.0),
    **dict.fromkeys("ABCDGHKNOQRUVXY=≤>+−×~<#&", 0.8),
}
_ASCII_WIDTH, _DEFAULT_WIDTH, _SQUARE_WIDTH, _NO_WIDTH = 0.65, 0.72, 1.04, 0.0
_INVISIBLE = frozenset("\u2068\u2069")


def estimate_text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper bound for the width of a text, in the unit of the font's `size`."""
    return sum(map(_estimate_character_width, text)) * size * (1.1 if bold else 1.0)


def _estimate_character_width(char: str) -> float:
    known = _CHARACTER_WIDTHS.get(char)
    if known is not None:
        return known
    if char < "\x7f":
        return _ASCII_WIDTH
    if char in _INVISIBLE or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return _NO_WIDTH
    # Chinese, Japanese and Korean characters, and emoji, fill a square.
    return _SQUARE_WIDTH if unicodedata.east_asian_width(char) in "WF" else _DEFAULT_WIDTH


def clip_text(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """Cut `text` to `width`, with an ellipsis if it does not fit."""
    if estimate_text_width(text, size, bold=bold) <= width:
        return text
    room = width - estimate_text_width("…", size, bold=bold)
    used = 0.0
    for at, char in enumerate(text):
        used += estimate_text_width(char, size, bold=bold)
        if used > room:
            return text[:at].rstrip() + "…"
    return text + "…"


def wrap_text(text: str, width: float, size: float, lines: int, *, bold: bool = False) -> list[str]:
    """Break `text` at blanks into at most `lines` lines of `width`; long lines are cut.

    The number of lines is minimal, and their lengths are about equal.
    """
    best = _break_lines(text, width, size, lines, bold)
    for share in (0.9, 0.8, 0.7, 0.6, 0.5):
        narrower = _break_lines(text, share * width, size, lines, bold)
        if len(narrower) > len(best) or " ".join(narrower) != " ".join(best):
            break
        best = narrower
    return best


def _break_lines(text: str, width: float, size: float, lines: int, bold: bool) -> list[str]:
    result = [""]
    for word in text.split(" "):
        longer = f"{result[-1]} {word}" if result[-1] else word
        fits = estimate_text_width(longer, size, bold=bold) <= width
        if fits or not result[-1] or len(result) == lines:
            result[-1] = longer
        else:
            result.append(word)
    return [clip_text(line, width, size, bold=bold) for line in result]
