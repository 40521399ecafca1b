"""Bodies and queries that people write: strictly read, and refused with what is wrong where.

Unlike `msgspec`, which the protocol's endpoints read with, this finds a key that an object
has twice: of two values of one column neither may be dropped in silence.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl

from treekit.data.table import near_names
from treekit.serve.errors import InvalidRequestError
from treekit.serve.protocol.malformed import constant_value, finite_number

__all__ = ["near", "number_of", "quoted", "read_json", "read_object", "read_query"]

_LONG = 80
_FIELDS = 20


def read_json(body: bytes | bytearray) -> Any:
    """The value in a JSON body: UTF-8, no key twice, no lone surrogates.

    NaN is null, and Infinity a number: JSON has neither, but many clients write them.

    Raises
    ------
    InvalidRequestError
        Says what it is instead.
    """
    if not body.strip():
        raise InvalidRequestError("the body is empty; it is to be JSON")
    try:
        text = body.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_once, parse_float=finite_number, parse_constant=constant_value
        )
        if "\\ud" in text or "\\uD" in text:  # half a character: no answer could say it
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequestError("the body holds half a surrogate pair; escape both") from None
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is no UTF-8 from byte {error.start} on") from None
    except RecursionError:
        raise InvalidRequestError("the body's JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequestError(f"the body is no JSON: {error.msg} ({where})") from None
    except ValueError:  # of `int`: more digits than Python takes
        raise InvalidRequestError(
            "the body holds a whole number of thousands of digits; no model takes one"
        ) from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidRequestError(f"an object of the body has the key {quoted(twice)} twice")
    return found


def read_object(value: Any, types: Mapping[str, tuple[type, ...]], what: str) -> dict[str, Any]:
    """An object with nothing but keys of `types`, whose values are of these types.

    A key whose value is null is as one that is not there.
    """
    if type(value) is not dict:
        raise InvalidRequestError(f"{what} is a JSON object, not {quoted(value)}")
    found = {}
    for key, own in value.items():
        if key not in types:
            raise InvalidRequestError(f"{what} has no {quoted(key)}; {near(key, types)}")
        if own is None:
            continue
        if type(own) not in types[key]:
            wanted = " or ".join(_KINDS[kind] for kind in types[key])
            raise InvalidRequestError(f"{key!r} is {wanted}, not {quoted(own)}")
        found[key] = own
    return found


_KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def read_query(query: bytes, names: Collection[str]) -> dict[str, str]:
    """The parameters of a URL, each of `names` at most once.

    Raises
    ------
    InvalidRequestError
        For others, for one given twice, and for what is no UTF-8.
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_FIELDS,
            errors="strict",
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidRequestError(f"the URL's parameters cannot be read: {error}") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in names:
            hint = near(name, names) if names else "there are none here"
            raise InvalidRequestError(f"there is no parameter {quoted(name)}; {hint}")
        if name in found:
            raise InvalidRequestError(f"the parameter {name!r} is given twice")
        found[name] = value
    return found


def number_of(name: str, text: str, least: int, most: int) -> int:
    """A whole number between bounds."""
    if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    raise InvalidRequestError(f"{name!r} is {least} to {most}, not {quoted(text)}")


def quoted(value: Any) -> str:
    """A value of a request in an error: its beginning."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= _LONG else f"{value[:_LONG]!r}..."
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def near(name: str, names: Collection[str]) -> str:
    """As `near_names`, of a name that may be long and of names that may be many."""
    return near_names(name[:_LONG], list(names)[:1000])
