"""Pictures in the DOT language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from treekit_plot.picture import Picture, describe_hidden, list_surrogates
from treekit_plot.svg import INK, PAPER, class_colour, mixed
from treekit_plot.wording import format_rounded_percent, format_weight

_PATH_WIDTH = 3.0
"""Line width of the marked path, in points."""


def quote_lines(*lines: str) -> str:
    r"""Quote lines of text as a DOT string.

    Graphviz interprets ``\n`` and other escapes in labels, and HTML entities; so
    backslashes, quotes and ampersands are escaped.  Control characters become
    U+FFFD; names contain none, since `format_picture_label` escapes them.
    """
    clean = ("".join(c if c >= " " and c != "\x7f" else "\ufffd" for c in line) for line in lines)
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})
    return '"' + "\\n".join(line.translate(escapes) for line in clean) + '"'


def write_dot(picture: Picture) -> str:
    """Write a picture as the text of a ``digraph``."""
    return "".join(f"{line}\n" for line in _format_lines(picture))


def _format_lines(picture: Picture) -> Iterator[str]:
    font = 'fontname="Helvetica,Arial,sans-serif"'
    yield "digraph tree {"
    yield f"  graph [label={quote_lines(picture.title, *picture.notes)}, labelloc=t, {font}];"
    yield f'  node [shape=box, style="filled", fillcolor="{PAPER}", color="{INK}", {font}];'
    yield f"  edge [{font}, fontsize=11];"
    for at, drawn in enumerate(picture.nodes):
        label, style = quote_lines(*_format_label(picture, at)), _format_style(picture, at)
        yield f"  n{drawn.node} [label={label}{style}];"
    for drawn in picture.nodes:
        for child in range(drawn.first_child, drawn.first_child + drawn.n_children):
            below = picture.nodes[child]
            branch = below.branch
            text = f"{branch.label} {branch.rest}".strip() if branch else ""
            width = 1 + 4 * below.share
            look = f"penwidth={width:.2f}"
            if below.marked:
                look = f'penwidth={max(width, _PATH_WIDTH):.2f}, color="{INK}"'
            yield f"  n{drawn.node} -> n{below.node} [label={quote_lines(text)}, {look}];"
    yield "}"


def _format_label(picture: Picture, at: int) -> Iterator[str]:
    drawn = picture.nodes[at]
    if drawn.question:
        yield from (drawn.question.text, *list_surrogates(drawn, picture.language))
        if drawn.cell:
            yield picture.language.say("plot_cell", cell=drawn.cell)
    elif drawn.hidden:
        yield describe_hidden(drawn, picture.language)
    for target in picture.targets:
        answer = target.answers[at]
        yield answer.text if len(picture.targets) == 1 else f"{target.name}: {answer.text}"
        weights = zip(target.entries, answer.bars, strict=False)
        counts = [f"{entry} {format_weight(weight)}" for entry, weight in weights if weight]
        if counts:
            yield " · ".join(counts)
    yield f"{format_rounded_percent(drawn.share)} · {format_weight(drawn.weight)}"


def _format_style(picture: Picture, at: int) -> str:
    drawn = picture.nodes[at]
    look, edge = "", INK if drawn.marked else ""
    entry = picture.targets[0].answers[at].entry
    if not drawn.question and not drawn.hidden and len(picture.targets) == 1 and entry >= 0:
        colour = class_colour(entry)
        look, edge = f', fillcolor="{mixed(PAPER, colour, 0.13)}"', edge or mixed(colour, INK, 0.2)
    look += f', color="{edge}"' if edge else ""
    look += f", penwidth={_PATH_WIDTH:.2f}" if drawn.marked else ""
    styles = ["filled"]
    if not drawn.question:
        styles.append("rounded")
    if drawn.hidden or drawn.weight == 0:
        styles.append("dashed")
    return look + f', style="{",".join(styles)}"'
