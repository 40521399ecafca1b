"""What is wrong with a body that is no inference request, in words that help.

Slow ways: a body comes here when it is refused, or when it may be.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from treekit.serve.errors import InvalidRequestError, shown

__all__ = ["malformed", "refuse_repeats"]

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
    if b"NaN" in body or b"Infinity" in body:
        if len(body) > _SLOW:
            return f"{error}; JSON has no NaN and no Infinity: write null, or send binary data"
        try:
            json.loads(body, object_pairs_hook=_finite, parse_constant=_Literal)
        except InvalidRequestError as found:
            return str(found)
        except (ValueError, RecursionError):
            pass  # something else, of which `error` tells
    return f"{error}{_input_named(body, str(error))}"


class _Literal(str):
    """NaN, Infinity or -Infinity, which Python's decoder takes."""

    __slots__ = ()


def _finite(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an input with such a literal in its data."""
    found = dict(pairs)
    waiting = [found.get("data")]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, _Literal):
            raise InvalidRequestError(
                f"input {shown(found.get('name'))} holds {item}, which JSON does not have; write "
                "null for a missing value, or send binary data"
            )
    return found


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
