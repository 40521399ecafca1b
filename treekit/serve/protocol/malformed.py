"""Bodies that msgspec refuses: those with NaN or Infinity are read, others refused in words.

Slow ways: a body comes here when it is refused, or when it may be.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Any

from treekit.serve.errors import InvalidRequestError, shown

__all__ = ["constant_value", "finite_number", "malformed", "read_constants", "refuse_repeats"]

_MARKS = {
    b"\xef\xbb\xbf": "begins with a byte order mark",
    b"\xff\xfe": "is UTF-16 or UTF-32",
    b"\xfe\xff": "is UTF-16 or UTF-32",
}

_SLOW = 1 << 18
"""Bytes that Python's decoder reads for a better message: it holds all threads meanwhile."""

_CELLS = re.compile(rb"\[[-+0-9.eEaflnrstu,\s]*\]")
"""Lists of numbers, true, false and null: they have no names."""

_PLACE = re.compile(r"\$\.inputs\[(\d{1,9})\]")


def malformed(
    body: bytes, error: Exception, what: str = "inference request"
) -> InvalidRequestError:
    """The refusal of a body that is no JSON, or JSON of another form."""
    return InvalidRequestError(f"the body is no {what}: {_reason(body, error)}")


def _reason(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "it is empty; send the protocol's JSON object"
    for mark, what in _MARKS.items():
        if body.startswith(mark):
            return f"it {what}; send UTF-8 without a mark"
    if b"\0" in body[:4]:
        return "it is UTF-16 or UTF-32; send UTF-8 without a mark"
    if isinstance(error, UnicodeDecodeError):
        return "a text in it is not UTF-8"
    if isinstance(error, RecursionError):
        return "its JSON is nested too deep"
    return f"{error}{_input_named(body, str(error))}"


def _input_named(body: bytes, text: str) -> str:
    """The name of the input that msgspec gives the place of."""
    place = _PLACE.search(text)
    if place is None or len(body) > _SLOW:
        return ""
    try:
        name = json.loads(body)["inputs"][int(place[1])]["name"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f" (input {shown(name)})"


def read_constants(body: bytes) -> Any:
    """Read JSON that may hold NaN, as null, and Infinity, as Triton's clients write them.

    Python's decoder takes them, msgspec does not.

    Raises
    ------
    InvalidRequestError
        For a body that is no JSON otherwise, or has a name twice in one object.
    """
    try:
        text = body.decode()
        found = json.loads(
            text, object_pairs_hook=_once, parse_float=finite_number, parse_constant=constant_value
        )
        if "\\ud" in text or "\\uD" in text:  # half a character: no answer could hold it
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise malformed(body, error) from None
    return found


def constant_value(text: str) -> float | None:
    """The value of NaN, which is missing, of Infinity or of -Infinity."""
    return None if text == "NaN" else float(text)


def finite_number(text: str) -> float:
    """The value of a decimal; InvalidRequestError if it is beyond the largest double."""
    value = float(text)
    if math.isinf(value):
        raise InvalidRequestError(
            f"the body holds {shown(text)}, beyond the largest number that computers take (1.8e308)"
        )
    return value


def refuse_repeats(body: bytes) -> None:
    """Refuse JSON with a name twice in one object: each reader takes another of the two.

    Raises
    ------
    InvalidRequestError
        Names it; so for what msgspec passes over and Python's decoder does not.
    """
    # Most of a large body is cells.  Without them equal names are still equal; the whole body
    # is asked where some are that were not, or that are none.
    with contextlib.suppress(ValueError, RecursionError, InvalidRequestError):
        json.loads(_CELLS.sub(b"[]", body), object_pairs_hook=_once)
        return
    try:
        json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise malformed(body, error) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidRequestError(
            f"the body has {shown(twice)} twice in one object; give each name once"
        )
    return found
