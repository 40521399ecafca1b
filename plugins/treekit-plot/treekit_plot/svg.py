"""Pictures as SVG: attributes only, no style sheet, script, font or reference.

A picture has its own background, so that it looks the same on a light and on a
dark page, and no identifiers, so that a page may contain several.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treekit_plot.layout import clip_text, compute_centres, estimate_text_width, wrap_text
from treekit_plot.picture import (
    Histogram,
    NodeValue,
    Picture,
    Target,
    describe_hidden,
    list_surrogates,
)
from treekit_plot.wording import format_rounded_percent, format_weight

# ---------------------------------------------------------------- svg

FONTS = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Noto Sans', "
    "'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'WenQuanYi Micro Hei', sans-serif"
)
MARGIN = 20.0
SIBLING_GAP, STRANGER_GAP = 14.0, 26.0
LEVEL_GAP, LABEL_HEIGHT = 66.0, 24.0
TITLE_FONT_SIZE, SWATCH_SIZE = 16.0, 11.0
MIN_WIDTH, MAX_TITLE_WIDTH, MAX_ENTRY_WIDTH = 300.0, 700.0, 160.0
BAR_FONT_SIZE = 9.5
PATH_WIDTH = 3.0  # line width of the marked path


def write_svg(picture: Picture) -> str:
    """Write a picture as the text of an SVG element."""
    nodes = picture.nodes
    boxes = [make_box(picture, at) for at in range(len(nodes))]
    centres = compute_centres(
        [drawn.first_child for drawn in nodes],
        [drawn.n_children for drawn in nodes],
        [own.span for own in boxes],
        SIBLING_GAP,
        STRANGER_GAP,
    )
    tree_width = max(x + own.span / 2 for x, own in zip(centres, boxes, strict=True))
    header, least_width, top = _write_header(picture, max(tree_width, MIN_WIDTH))
    inner = max(tree_width, least_width)
    left = MARGIN + (inner - tree_width) / 2
    tops = _compute_tops(picture, boxes, top)
    places = [(left + x, tops[drawn.depth]) for x, drawn in zip(centres, nodes, strict=True)]
    bottom = max(y + own.height for (_, y), own in zip(places, boxes, strict=True))
    notes, height = _write_notes(picture, bottom, inner)
    parts = [
        *header,
        element("g", *_write_edges(picture, boxes, places), fill="none", stroke=EDGE),
        *(_write_node(picture, at, boxes[at], *places[at]) for at in range(len(nodes))),
        *notes,
    ]
    return write_frame(picture.title, picture.described, inner + 2 * MARGIN, height, parts)


def write_frame(
    title: str, described: str, width: float, height: float, parts: Iterable[str]
) -> str:
    """Write the SVG element around the markup of a picture, with its background."""
    parts = [
        element("title", escaped(title)),
        element("desc", escaped(described)),
        element("rect", width=width, height=height, rx=8.0, fill=PAPER),
        *parts,
    ]
    frame: dict[str, str | float] = {
        "xmlns": "http://www.w3.org/2000/svg",
        "xml:space": "preserve",
        "width": width,
        "height": height,
        "viewBox": f"0 0 {format_coordinate(width)} {format_coordinate(height)}",
        "role": "img",
        "font-family": FONTS,
        "font-size": FONT_SIZE,
        "fill": INK,
    }
    return element("svg", "\n", *(f"{part}\n" for part in parts), **frame) + "\n"


def write_text(text: str, x: float, y: float, size: float, **attributes: str | float) -> str:
    """Write a text that begins at `x`, or as its attributes say; `y` is its baseline."""
    return element("text", escaped(text), x=x, y=y, font_size=size, **attributes)


def write_rect(x: float, y: float, width: float, height: float, **attributes: str | float) -> str:
    """Write a rectangle; `x` and `y` are its upper left corner."""
    return element("rect", x=x, y=y, width=width, height=height, **attributes)


def _write_header(picture: Picture, width: float) -> tuple[list[str], float, float]:
    """Write title and legends; return them, their width, and the top of the tree."""
    title = clip_text(picture.title, max(width, MAX_TITLE_WIDTH), TITLE_FONT_SIZE, bold=True)
    y = MARGIN + TITLE_FONT_SIZE - 2
    parts = [write_text(title, MARGIN, y, TITLE_FONT_SIZE, font_weight="bold")]
    widest = max(
        width if picture.nodes[0].n_children else 0.0,
        estimate_text_width(title, TITLE_FONT_SIZE, bold=True),
    )
    for target in picture.targets:
        if not target.entries:
            continue
        y += 22
        x = MARGIN
        if len(picture.targets) > 1:
            text = clip_text(f"{target.name}:", MAX_ENTRY_WIDTH, SMALL_FONT_SIZE)
            parts.append(write_text(text, x, y, SMALL_FONT_SIZE, fill=MUTED))
            x += estimate_text_width(text, SMALL_FONT_SIZE) + 10
        for number, entry in enumerate(target.entries):
            text = clip_text(entry, MAX_ENTRY_WIDTH, SMALL_FONT_SIZE)
            room = SWATCH_SIZE + 5 + estimate_text_width(text, SMALL_FONT_SIZE)
            if x > MARGIN and x + room > MARGIN + widest:
                x, y = MARGIN, y + 18
            fill, size = class_colour(number), SWATCH_SIZE
            stroke = mixed(fill, INK, 0.25)
            parts.append(write_rect(x, y - 9.5, size, size, rx=2.0, fill=fill, stroke=stroke))
            parts.append(write_text(text, x + SWATCH_SIZE + 5, y, SMALL_FONT_SIZE))
            x += room + 14
    return parts, widest, y + 22


def _compute_tops(picture: Picture, boxes: list[Box], top: float) -> list[float]:
    """Return the upper edge of the boxes of each level."""
    heights: dict[int, float] = {}
    for drawn, own in zip(picture.nodes, boxes, strict=True):
        heights[drawn.depth] = max(heights.get(drawn.depth, 0.0), own.height)
    levels = (heights[depth] + LEVEL_GAP for depth in range(len(heights)))
    return list(itertools.accumulate(levels, initial=top))


def _write_edges(
    picture: Picture, boxes: list[Box], places: list[tuple[float, float]]
) -> Iterator[str]:
    """Write the curves from parents to children; the width shows the share of the rows.

    Those of the marked path come last, so that they are drawn over the others.
    """
    marked = []
    for at, drawn in enumerate(picture.nodes):
        x, y = places[at][0], places[at][1] + boxes[at].height
        for child in range(drawn.first_child, drawn.first_child + drawn.n_children):
            to_x, to_y = places[child]
            end = to_y - LABEL_HEIGHT  # straight from here, behind the label
            middle = (y + end) / 2
            points = (x, y, x, middle, to_x, middle, to_x, end, to_y)
            path = "M{} {}C{} {} {} {} {} {}V{}".format(*map(format_coordinate, points))
            below = picture.nodes[child]
            width = 1.25 + 7 * below.share
            dashed = {} if below.weight else {"stroke_dasharray": "3 3"}
            if below.marked:
                width = max(width, PATH_WIDTH)
                marked.append(element("path", d=path, stroke_width=width, **dashed, stroke=INK))
            else:
                yield element("path", d=path, stroke_width=width, **dashed)
    yield from marked


def _write_node(picture: Picture, at: int, own: Box, x: float, top: float) -> str:
    """Write a box with text, bars, label and tooltip; `x` is its middle."""
    drawn, left = picture.nodes[at], x - own.width / 2
    parts = [element("title", escaped(picture.hover(at)))]
    if own.branch or own.rest:
        parts += _write_branch_label(own, x, top)
    fill, stroke = _choose_colours(picture, at)
    frame: dict[str, str | float] = {"rx": 4.0 if drawn.question else 10.0}
    frame |= {"fill": fill, "stroke": stroke, "stroke_width": 1.25}
    if drawn.hidden or drawn.weight == 0:
        frame["stroke_dasharray"] = "4 3"
    if drawn.marked:
        frame |= {"stroke": INK, "stroke_width": PATH_WIDTH}
    parts.append(write_rect(left, top, own.width, own.height, **frame))
    y = top + PADDING
    for line in own.head:
        y += LINE_HEIGHT
        look = {"font_weight": "bold", "text_anchor": "middle"}
        parts.append(element("text", escaped(line), x=x, y=y - 4.5, **look))
    if own.surrogate:
        y += SMALL_LINE_HEIGHT
        parts.append(_write_small_text(own.surrogate, x, y, MUTED))
    if own.cell:
        y += SMALL_LINE_HEIGHT
        parts.append(_write_small_text(own.cell, x, y, INK))
    if drawn.histogram:
        width = own.width - 2 * PADDING
        parts.append(element("g", *write_histogram(drawn.histogram, left + PADDING, y, width)))
        y += HISTOGRAM_HEIGHT + BAR_GAP
    for target, caption in zip(picture.targets, own.captions, strict=True):
        if caption:
            y += SMALL_LINE_HEIGHT
            parts.append(_write_small_text(caption, x, y, INK))
        faint = {} if drawn.weight else {"opacity": 0.4}
        place = left + PADDING, y + BAR_GAP / 2, own.width - 2 * PADDING
        parts.append(element("g", *_write_bar(target, target.answers[at], *place), **faint))
        y += BAR_HEIGHT + BAR_GAP
    parts.append(_write_small_text(own.share, x, y + SMALL_LINE_HEIGHT, MUTED))
    return element("g", *parts)


def _write_small_text(text: str, x: float, below: float, fill: str) -> str:
    return write_text(text, x, below - 3.5, SMALL_FONT_SIZE, text_anchor="middle", fill=fill)


def _write_branch_label(own: Box, x: float, top: float) -> Iterator[str]:
    """Write the label of the branch, with a background that hides the edge."""
    text = " ".join(filter(None, (own.branch, own.rest)))
    width = estimate_text_width(text, SMALL_FONT_SIZE) + 6
    yield write_rect(x - width / 2, top - 22, width, 16.0, rx=3.0, fill=PAPER)
    rest = element("tspan", escaped(own.rest), fill=MUTED) if own.rest else ""
    label = escaped(own.branch) + (" " if own.branch and rest else "") + rest
    size = SMALL_FONT_SIZE
    yield element("text", label, x=x, y=top - 10, font_size=size, text_anchor="middle")


def _choose_colours(picture: Picture, at: int) -> tuple[str, str]:
    """Return fill and stroke of a box; leaves have the colour of their class (one target only)."""
    drawn, first = picture.nodes[at], picture.targets[0]
    entry = first.answers[at].entry
    if drawn.question or drawn.hidden or len(picture.targets) > 1 or entry < 0:
        return PAPER if drawn.question else mixed(PAPER, MUTED, 0.06), mixed(EDGE, INK, 0.3)
    colour = class_colour(entry)
    return mixed(PAPER, colour, 0.13), mixed(colour, INK, 0.2)


def _write_bar(
    target: Target, answer: NodeValue, left: float, top: float, width: float
) -> Iterator[str]:
    if not target.entries:
        scale = mixed(PAPER, EDGE, 0.45)
        yield write_rect(left, top + 3, width, BAR_HEIGHT - 6, rx=3.0, fill=scale)
        middle = left + 5 + answer.position * (width - 10)
        yield element("circle", cx=middle, cy=top + BAR_HEIGHT / 2, r=5.0, fill=class_colour(0))
        return
    total = sum(answer.bars)
    x = left
    for entry, weight in enumerate(answer.bars):
        part = width * (weight / total) if total > 0 else 0.0
        if part <= 0:
            continue
        fill = class_colour(entry)
        yield write_rect(x, top, part, BAR_HEIGHT, fill=fill, stroke=PAPER, stroke_width=0.75)
        text = format_weight(weight)
        if estimate_text_width(text, BAR_FONT_SIZE) + 3 <= part:
            place = x + part / 2, top + BAR_HEIGHT - 3, BAR_FONT_SIZE
            yield write_text(text, *place, fill=ink_on(fill), text_anchor="middle")
        x += part


def write_histogram(histogram: Histogram, left: float, top: float, width: float) -> Iterator[str]:
    """Write stacked bars, a dashed line at the split, and a triangle at the explained row."""
    left, width = left + 6, width - 12  # room for the triangle
    bottom = top + HISTOGRAM_HEIGHT - SMALL_LINE_HEIGHT
    room, tallest = bottom - top - 8, max(map(sum, histogram.bars))
    step = width / len(histogram.bars)
    named = len(histogram.ends) == len(histogram.bars)
    gap = min(2.0, step / 5) if named else 0.5
    for place, bar in enumerate(histogram.bars):
        x, y = left + place * step, bottom
        for entry, rows in enumerate(bar):
            if rows:
                height = room * rows / tallest
                y -= height
                size = step - gap, height
                yield write_rect(x + gap / 2, y, *size, fill=class_colour(entry))
        if named and step >= MIN_NAME_WIDTH:
            text = clip_text(histogram.ends[place], step - 2, BAR_FONT_SIZE)
            here = x + step / 2, bottom + 11, BAR_FONT_SIZE
            yield write_text(text, *here, fill=MUTED, text_anchor="middle")
    if not named:
        for x, text, anchor in zip(
            (left, left + width), histogram.ends, ("start", "end"), strict=True
        ):
            here = x, bottom + 11, BAR_FONT_SIZE
            yield write_text(text, *here, fill=MUTED, text_anchor=anchor)
    line = f"M{format_coordinate(left)} {format_coordinate(bottom)}h{format_coordinate(width)}"
    yield element("path", d=line, stroke=EDGE, stroke_width=1.0)
    x = left + histogram.split_at * width
    line = f"M{format_coordinate(x)} {format_coordinate(top + 4)}V{format_coordinate(bottom + 3)}"
    yield element("path", d=line, stroke=INK, stroke_width=1.5, stroke_dasharray="4 2")
    if histogram.row_at is not None:
        x = left + histogram.row_at * width
        line = "M{} {}l-5 -8h10z".format(*map(format_coordinate, (x, top + 9)))
        yield element("path", d=line, fill=INK, stroke=PAPER, stroke_width=0.75)


def _write_notes(picture: Picture, bottom: float, width: float) -> tuple[list[str], float]:
    """Write the notes below the tree; return them and the height of the picture."""
    y = bottom + 8
    parts = []
    for note in picture.notes:
        for line in wrap_text(note, width, SMALL_FONT_SIZE, 6):
            y += SMALL_LINE_HEIGHT
            parts.append(write_text(line, MARGIN, y, SMALL_FONT_SIZE, fill=MUTED))
    return parts, y + MARGIN - 4


# ---------------------------------------------------------------- boxes

FONT_SIZE, SMALL_FONT_SIZE = 13.0, 11.0
LINE_HEIGHT, SMALL_LINE_HEIGHT = 17.0, 15.0
PADDING = 9.0
BAR_HEIGHT, BAR_GAP = 13.0, 6.0
MIN_BAR_WIDTH, MAX_TEXT_WIDTH = 70.0, 250.0
HISTOGRAM_HEIGHT, MIN_HISTOGRAM_WIDTH, MIN_NAME_WIDTH = 62.0, 160.0, 26.0
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
    cell : str
        Value of the explained row; else empty.
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

    head: list[str]
    surrogate: str
    cell: str
    captions: list[str]
    share: str
    branch: str
    rest: str
    width: float
    height: float
    span: float


def make_box(picture: Picture, at: int) -> Box:
    """Make the box of node `at` of a picture."""
    drawn, say, targets = picture.nodes[at], picture.language.say, picture.targets
    several, head = len(targets) > 1, []
    if drawn.question:
        head = wrap_text(drawn.question.text, MAX_TEXT_WIDTH, FONT_SIZE, 3, bold=True)
    elif drawn.hidden:
        head = [describe_hidden(drawn, picture.language)]
    elif not several:
        head = [clip_text(targets[0].answers[at].text, MAX_TEXT_WIDTH, FONT_SIZE, bold=True)]
    captions = []
    for target in targets:
        text = target.answers[at].text
        if several:
            captions.append(_clip_small(f"{target.name}: {text}"))
        else:
            captions.append(text if drawn.question and not target.entries else "")
    share = f"{format_rounded_percent(drawn.share)} · {format_weight(drawn.weight)}"
    if drawn.weight == 0:
        share = say("plot_no_rows")
    surrogate, *further = list_surrogates(drawn, picture.language) or [""]
    if further:
        surrogate = say("plot_and_more", text=surrogate, count=len(further))
    surrogate = _clip_small(surrogate)
    cell = _clip_small(say("plot_cell", cell=drawn.cell)) if drawn.cell else ""
    small = [line for line in (surrogate, cell, *captions, share) if line]
    widths = [estimate_text_width(line, FONT_SIZE, bold=True) for line in head]
    widths += [estimate_text_width(line, SMALL_FONT_SIZE) for line in small]
    least = MIN_HISTOGRAM_WIDTH if drawn.histogram else MIN_BAR_WIDTH
    width = max(least, *widths) + 2 * PADDING
    height = (
        2 * PADDING
        + len(head) * LINE_HEIGHT
        + len(small) * SMALL_LINE_HEIGHT
        + len(targets) * (BAR_HEIGHT + BAR_GAP)
        + (HISTOGRAM_HEIGHT + BAR_GAP if drawn.histogram else 0.0)
    )
    branch = _clip_small(drawn.branch.label) if drawn.branch else ""
    rest = drawn.branch.rest if drawn.branch else ""
    label = " ".join(filter(None, (branch, rest)))
    span = max(width, estimate_text_width(label, SMALL_FONT_SIZE) + BRANCH_PADDING)
    return Box(head, surrogate, cell, captions, share, branch, rest, width, height, span)


def _clip_small(text: str) -> str:
    return clip_text(text, MAX_TEXT_WIDTH, SMALL_FONT_SIZE)


# ---------------------------------------------------------------- colours
# The eight colours of Okabe and Ito (2008, "Color universal design"), which everyone can
# distinguish, ordered so that neighbours also differ in lightness when printed in grey.
# Bars keep the order of the legend, and every label is written as text, so that no
# information depends on colour alone.

INK, MUTED, PAPER, EDGE = "#1b2733", "#5b6b7b", "#ffffff", "#b4bfca"
_CLASS_COLOURS = (
    "#0072b2",  # blue
    "#e69f00",  # orange
    "#f0e442",  # yellow
    "#009e73",  # green
    "#56b4e9",  # sky
    "#cc79a7",  # purple
    "#d55e00",  # vermilion
    "#4d4d4d",
    "#a3adb8",  # the others
)


def class_colour(entry: int) -> str:
    """Return the colour of a legend entry."""
    return _CLASS_COLOURS[min(entry, len(_CLASS_COLOURS) - 1)]


def mixed(colour: str, other: str, share: float) -> str:
    """Mix `colour` with a `share` of 0 to 1 of another colour."""
    parts = zip(_parse_channels(colour), _parse_channels(other), strict=True)
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02x}" for a, b in parts)


def ink_on(colour: str) -> str:
    """Return white or black, whichever contrasts more with `colour` (luminance, WCAG 2.1)."""
    light = _compute_luminance(colour) + 0.05
    return PAPER if 1.05 / light > light / 0.05 else "#000000"


def _parse_channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _compute_luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _parse_channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# ---------------------------------------------------------------- markup
# The only functions that turn the strings of a picture into markup.

_XML_ESCAPES = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",  # so that "]]>" cannot stand in text
    ord('"'): "&quot;",
    ord("'"): "&#39;",
    ord("\n"): "&#10;",  # kept in attributes, where a parser would make it a blank
    ord("\t"): "&#9;",
    ord("\r"): "&#13;",
}
_INVALID_CHARACTERS = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str) -> str:
    """Escape `text` for XML content or a quoted attribute.

    Characters that XML 1.0 does not allow (section 2.2) become U+FFFD.
    """
    return _INVALID_CHARACTERS.sub("\ufffd", text).translate(_XML_ESCAPES)


def format_coordinate(value: float) -> str:
    """Format a coordinate to a hundredth of a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def format_attribute(value: str | float) -> str:
    """Format the value of an attribute."""
    return escaped(value) if isinstance(value, str) else format_coordinate(value)


def element(tag: str, *content: str, **attributes: str | float) -> str:
    """Write an element; `content` is markup, attributes are text or numbers.

    Underscores in names of attributes become hyphens: ``font_size=12``.
    """
    pairs = "".join(
        f' {name.replace("_", "-")}="{format_attribute(value)}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{pairs}>{''.join(content)}</{tag}>" if content else f"<{tag}{pairs}/>"
