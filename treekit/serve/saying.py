"""What a server says to whoever runs it: one line on stderr for each event.

As text for people, or as JSON for programs that collect lines.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Protocol, TextIO

__all__ = ["Say", "teller"]


class Say(Protocol):
    """Tell the operator that something happened."""

    def __call__(self, event: str, message: str, *, level: str = "info", **facts: Any) -> None:
        """Tell it.

        Parameters
        ----------
        event : str
            A short fixed name, for programs.
        message : str
            A sentence, for people.
        level : {"info", "warning", "error"}
        **facts
            What the sentence is about, as values that JSON has.
        """


def teller(form: str, stream: TextIO | None = None) -> Say:
    """One who tells: in lines of JSON for ``json``, else of text.

    Every line is written at once, so that lines of several processes and threads do not mix.
    """

    def tell(event: str, message: str, *, level: str = "info", **facts: Any) -> None:
        if form == "json":
            line = json.dumps(
                {"time": _now(), "level": level, "event": event, **facts, "message": message}
            )
        else:
            line = _printable(message if level == "info" else f"{level}: {message}")
        out = sys.stderr if stream is None else stream
        out.write(f"{line}\n")
        out.flush()

    return tell


def _now() -> str:
    """The time in UTC, to the millisecond, as RFC 3339 has it."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def _printable(text: str) -> str:
    """Names of files and models may hold what moves a cursor, or begins a line of its own."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
