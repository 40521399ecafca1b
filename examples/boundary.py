"""Decision regions of a tree on two numbers as SVG: one convex polygon per leaf."""

from html import escape

__all__ = ["Drawing", "drawn", "regions"]

LEFT, RIGHT, LOW, HIGH = 0.2, 0.8, 0.0, 0.5
SCALE = 560.0
SIGNS = ("+", "−")
INK, PAPER = "#1b2733", "#ffffff"
COLOURS = (
    ("#0072b2", "#cce3f0", "#66aad1", "#ffffff"),
    ("#e69f00", "#faeccc", "#f0c566", "#000000"),
)
"""For each class: colour, tint of its regions, their edges, and the sign (Okabe and Ito 2008)."""


class Drawing(str):
    """SVG text that notebooks show as a picture."""

    __slots__ = ()

    def _repr_svg_(self):
        return str(self)


def drawn(model, table, marks, title):
    """Draw the leaves of a model of two classes, with the rows of a table.

    Parameters
    ----------
    table : mapping of two columns
        Horizontal and vertical values, by name.
    marks : sequence of int
        The class of each row, 0 or 1.
    """
    (across, xs), (up, ys) = table.items()
    parts = [element("title", escape(title)), element("rect", width=430.0, height=364.0, rx=8.0,
                                                       fill=PAPER)]  # fmt: skip
    for corners, label in regions(model, [(LEFT, LOW), (RIGHT, LOW), (RIGHT, HIGH), (LEFT, HIGH)]):
        points = " ".join("{:.2f},{:.2f}".format(*place(*corner)) for corner in corners)
        _, tint, edge, _ = COLOURS[label]
        parts.append(element("polygon", points=points, fill=tint, stroke=edge))
    for x, y, mark in zip(xs, ys, marks, strict=True):
        left, top = place(x, y)
        colour, _, _, ink = COLOURS[mark]
        parts.append(element("circle", cx=left, cy=top, r=8.0, fill=colour))
        parts.append(text(SIGNS[mark], left, top + 5, fill=ink))
    parts += [text(f"{x / 10:.1f}", *place(x / 10, LOW - 0.035)) for x in (2, 4, 6, 8)]
    parts += [text(f"{y / 10:.1f}", *place(LEFT - 0.03, y / 10 - 0.008)) for y in range(6)]
    parts.append(text(across, 230.0, 350.0))
    parts.append(text(up, 18.0, 160.0, transform="rotate(-90 18 160)"))
    frame = {"xmlns": "http://www.w3.org/2000/svg", "width": 430.0, "height": 364.0, "role": "img"}
    frame |= {"font_family": "sans-serif", "font_size": 13.0, "text_anchor": "middle", "fill": INK}
    return element("svg", "\n", *(f"{part}\n" for part in parts), **frame) + "\n"


def place(x, y):
    return 62 + SCALE * (x - LEFT), 20 + SCALE * (HIGH - y)


def text(said, x, y, **attributes):
    return element("text", escape(said), x=x, y=y, **attributes)


def element(tag, *content, **attributes):
    """Write an element; `content` is markup, attributes are text or numbers of pixels."""
    pairs = "".join(
        f' {name.replace("_", "-")}="{value if isinstance(value, str) else format(value, ".7g")}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{pairs}>{''.join(content)}</{tag}>" if content else f"<{tag}{pairs}/>"


def regions(model, window):
    """Return the leaves as polygons within a convex window, each with the index of its class."""
    tree, found, waiting = model.trees[0], [], [(0, window)]
    while waiting:
        node, corners = waiting.pop()
        if len(corners) < 3:  # the node lies outside the window
            continue
        if tree.n_children[node] == 0:
            found.append((corners, int(tree.value[node].argmax())))
            continue
        (a, b), most = halves(tree, node)
        child = int(tree.first_child[node])
        waiting.append((child, clipped(corners, (a, b), most)))
        waiting.append((child + 1, clipped(corners, (-a, -b), -most)))
    return found


def halves(tree, node):
    """Return the split of a node: weights of the two numbers, and the largest sum on the left."""
    terms = range(tree.term_offsets[node], tree.term_offsets[node + 1])
    weights = {int(tree.term_feature[i]): float(tree.term_weight[i]) for i in terms}
    weights = weights or {int(tree.feature[node]): 1.0}
    return (weights.get(0, 0.0), weights.get(1, 0.0)), float(tree.threshold[node])


def clipped(corners, weights, most):
    """Clip a polygon to weighted sums of at most `most` (Sutherland and Hodgman 1974)."""
    inside = []
    for a, b in zip(corners, corners[1:] + corners[:1], strict=True):
        at_a, at_b = (weights[0] * x + weights[1] * y - most for x, y in (a, b))
        if at_a <= 0:
            inside.append(a)
        if (at_a <= 0) != (at_b <= 0):
            share = at_a / (at_a - at_b)
            inside.append(tuple(p + share * (q - p) for p, q in zip(a, b, strict=True)))
    return inside
