"""XML in pieces, by the standard library's writer, and what XML 1.0 cannot hold."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

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
    """Elements in order; `take` hands on what has been written since the last time."""

    def __init__(self) -> None:
        self._buffer = io.StringIO()
        self._writer = XMLGenerator(self._buffer, "UTF-8", short_empty_elements=True)
        self._writer.startDocument()
        self._open: list[str] = []

    def begin(self, name: str, attributes: Mapping[str, str] | None = None) -> None:
        """Open an element, on a line of its own."""
        self._writer.ignorableWhitespace("\n" + " " * len(self._open) if self._open else "")
        self._writer.startElement(name, AttributesImpl(dict(attributes or {})))
        self._open.append(name)

    def end(self) -> None:
        """Close the last open element."""
        self._writer.endElement(self._open.pop())

    def leaf(self, name: str, text: str = "", attributes: Mapping[str, str] | None = None) -> None:
        """An element of text alone, or of nothing."""
        self.begin(name, attributes)
        if text:
            self._writer.characters(text)
        self.end()

    def take(self) -> str:
        """All that is written and not yet taken."""
        text = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return text
