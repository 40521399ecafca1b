"""How wide a text will be, without any font at hand.

Widths are those of DejaVu Sans, the widest of the common sans-serif fonts, in
em and rounded up: text fits whatever font a reader's system takes.
"""

from __future__ import annotations

import unicodedata

__all__ = ["clipped", "text_width", "wrapped"]

_EM = {
    **dict.fromkeys(" .,:;'|!ijlI`", 0.34),
    **dict.fromkeys('()[]{}/\\ft-"·', 0.42),
    **dict.fromkeys("rsczxvyk^*", 0.56),
    **dict.fromkeys("mwMW@%—…", 1.0),
    **dict.fromkeys("ABCDGHKNOQRUVXY=≤>+−×~<#&", 0.8),
}
_OTHER_ASCII, _OTHER, _WIDE, _NOTHING = 0.65, 0.72, 1.04, 0.0
_INVISIBLE = frozenset("\u2068\u2069")


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Upper estimate of a text's width, in the unit of the font's `size`."""
    return sum(map(_em, text)) * size * (1.1 if bold else 1.0)


def _em(char: str) -> float:
    known = _EM.get(char)
    if known is not None:
        return known
    if char < "\x7f":
        return _OTHER_ASCII
    if char in _INVISIBLE or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return _NOTHING
    # Chinese, Japanese and Korean characters, and emoji, fill a square.
    return _WIDE if unicodedata.east_asian_width(char) in "WF" else _OTHER


def clipped(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """`text`, or as much of it as fits in `width` with an ellipsis behind it."""
    if text_width(text, size, bold=bold) <= width:
        return text
    room = width - text_width("…", size, bold=bold)
    kept = 0.0
    for at, char in enumerate(text):
        kept += text_width(char, size, bold=bold)
        if kept > room:
            return text[:at].rstrip() + "…"
    return text + "…"


def wrapped(text: str, width: float, size: float, lines: int, *, bold: bool = False) -> list[str]:
    """`text` broken at blanks into lines of `width`, `lines` at most, the last one clipped.

    No more lines than needed, and these of about equal length.
    """
    best = _broken(text, width, size, lines, bold)
    for share in (0.9, 0.8, 0.7, 0.6, 0.5):
        narrower = _broken(text, share * width, size, lines, bold)
        if len(narrower) > len(best) or " ".join(narrower) != " ".join(best):
            break
        best = narrower
    return best


def _broken(text: str, width: float, size: float, lines: int, bold: bool) -> list[str]:
    result = [""]
    for word in text.split(" "):
        longer = f"{result[-1]} {word}" if result[-1] else word
        fits = text_width(longer, size, bold=bold) <= width
        if fits or not result[-1] or len(result) == lines:
            result[-1] = longer
        else:
            result.append(word)
    return [clipped(line, width, size, bold=bold) for line in result]
