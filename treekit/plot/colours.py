"""Colours of classes: told apart by everybody, in print and on screen.

The eight colours of Okabe and Ito (2008, "Color universal design"), in an
order in which neighbours differ in lightness, too: on grey paper dark, middle
and light follow each other.  Bars keep the order of the legend, and every
label stands in words, so that no fact is told by colour alone.
"""

from __future__ import annotations

__all__ = ["EDGE", "INK", "MUTED", "PAPER", "class_colour", "ink_on", "mixed"]

INK, MUTED, PAPER, EDGE = "#1b2733", "#5b6b7b", "#ffffff", "#b4bfca"
_CLASSES = (
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
    """The colour of an entry of the legend."""
    return _CLASSES[min(entry, len(_CLASSES) - 1)]


def mixed(colour: str, other: str, share: float) -> str:
    """`colour` with a `share` of 0 to 1 of another in it."""
    parts = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02x}" for a, b in parts)


def ink_on(colour: str) -> str:
    """White or black text, whichever contrasts more (relative luminance, WCAG 2.1)."""
    light = _luminance(colour) + 0.05
    return PAPER if 1.05 / light > light / 0.05 else "#000000"


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
