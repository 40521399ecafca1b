"""The boxes of a picture: their lines of text, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass

from treekit.plot.picture import Picture
from treekit.plot.widths import clipped, text_width, wrapped
from treekit.plot.words import percent_text, weight_text

__all__ = ["BAR", "BAR_GAP", "LINE", "PAD", "SMALL", "SMALL_LINE", "TEXT", "Box", "box"]

TEXT, SMALL = 13.0, 11.0
LINE, SMALL_LINE = 17.0, 15.0
PAD = 9.0
BAR, BAR_GAP = 13.0, 6.0
LEAST_BAR, MOST_TEXT = 70.0, 250.0
BRANCH_PAD = 8.0


@dataclass(frozen=True)
class Box:
    """One node, measured in pixels.

    Attributes
    ----------
    head : tuple of str
        Lines in bold: the question, or what a leaf says.
    instead : str
        The first surrogate; else empty.
    captions : tuple of str
        A line above each bar, where there are several targets; else empty texts.
    share : str
        The last line.
    branch, rest : str
        The label above the box, and what follows it in a lighter tone.
    width, height : float
        Of the box itself.
    span : float
        Width that the box and its label need.
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
    """Node `at` of a picture as a box."""
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
        said = words.instead.format(first)
        instead = clipped(
            words.and_more.format(said, len(others)) if others else said, MOST_TEXT, SMALL
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
