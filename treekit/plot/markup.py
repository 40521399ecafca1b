"""XML text: the one place where a picture's strings become markup."""

from __future__ import annotations

import re

__all__ = ["attribute", "element", "escaped", "number"]

_ESCAPES = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",  # so that "]]>" cannot stand in text
    ord('"'): "&quot;",
    ord("'"): "&#39;",
    ord("\n"): "&#10;",  # kept in attributes, where a parser would make it a blank
    ord("\t"): "&#9;",
    ord("\r"): "&#13;",
}
_NEVER = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str) -> str:
    """`text` for XML content or a quoted attribute.

    Characters that XML 1.0 does not allow at all (section 2.2) become U+FFFD.
    """
    return _NEVER.sub("\ufffd", text).translate(_ESCAPES)


def number(value: float) -> str:
    """A coordinate, to a hundredth of a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def attribute(value: str | float) -> str:
    """The text of an attribute's value."""
    return escaped(value) if isinstance(value, str) else number(value)


def element(tag: str, *content: str, **attributes: str | float) -> str:
    """An element; `content` is markup already, attributes are text or numbers.

    Underscores in names of attributes stand for hyphens: ``font_size=12``.
    """
    said = "".join(
        f' {name.replace("_", "-")}="{attribute(value)}"' for name, value in attributes.items()
    )
    return f"<{tag}{said}>{''.join(content)}</{tag}>" if content else f"<{tag}{said}/>"
