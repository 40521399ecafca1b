"""XML in pieces, escaped by the standard library, and what XML 1.0 cannot hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

__all__ = ["Xml", "holds", "visible"]

_STRANGE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def holds(text: str) -> bool:
    """Whether XML 1.0 can hold a text (section 2.2, Char)."""
    return not _STRANGE.search(text)


def visible(text: str) -> str:
    r"""`text` for a reader: what is not printable becomes ``\uXXXX`` or ``\UXXXXXXXX``."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else (f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}")
        for c in text
    )


class Xml:
    """Elements in order; `take` hands on what has been written since the last time.

    Names of elements and attributes are the caller's own; text and values may be anything
    that XML `holds`.
    """

    def __init__(self) -> None:
        self._parts = ['<?xml version="1.0" encoding="UTF-8"?>']
        self._open: list[str] = []

    def begin(self, name: str, attributes: Mapping[str, str] | None = None) -> None:
        """Open an element, on a line of its own."""
        self._parts.append(self._tag(name, attributes) + ">")
        self._open.append(name)

    def end(self) -> None:
        """Close the last open element."""
        self._parts.append(f"</{self._open.pop()}>")

    def leaf(self, name: str, text: str = "", attributes: Mapping[str, str] | None = None) -> None:
        """An element of text alone, or of nothing."""
        tag = self._tag(name, attributes)
        ended = f">{_told(escape(text))}</{name}>" if text else "/>"
        self._parts.append(tag + ended)

    def _tag(self, name: str, attributes: Mapping[str, str] | None) -> str:
        tag = f"\n{' ' * len(self._open)}<{name}"
        if attributes:
            tag += "".join(f" {key}={_told(quoteattr(text))}" for key, text in attributes.items())
        return tag

    def take(self) -> str:
        """All that is written and not yet taken."""
        text = "".join(self._parts)
        self._parts.clear()
        return text


def _told(escaped: str) -> str:
    """Escaped text with references (section 4.1) for what is not printable.

    A bare carriage return would be read as the end of a line (section 2.11), and what turns
    the direction of a line around would mislead whoever looks at the file.
    """
    if escaped.isprintable():
        return escaped
    return "".join(c if c.isprintable() or c in "\t\n" else f"&#{ord(c)};" for c in escaped)
