"""Compressed bodies of requests, inflated within the bound of plain ones."""

from __future__ import annotations

import zlib

from treekit.serve.errors import InvalidRequestError, TooLargeError, UnsupportedError

__all__ = ["inflated"]

_WINDOW = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
"""zlib's ``wbits`` of each coding; deflate is zlib's format (RFC 9110, section 8.4.1)."""


def inflated(body: bytes, coding: bytes, most: int) -> bytes:
    """The body that a ``Content-Encoding`` stands for.

    Parameters
    ----------
    body : bytes
    coding : bytes
        The header.
    most : int
        Bytes of the result; no more are made.

    Raises
    ------
    UnsupportedError
        For another coding, or several.
    InvalidRequestError
        If the bytes are not of that coding, end early, or go on after its end.
    TooLargeError
        If there would be more.
    """
    name = coding.strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in _WINDOW:
        raise UnsupportedError(
            f"the body has Content-Encoding {coding[:40].decode('latin-1')!r}; this server takes "
            "gzip and deflate, one at a time, and plain bodies"
        )
    stream = zlib.decompressobj(_WINDOW[name])
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise InvalidRequestError(f"the body is not {name.decode()}: {error}") from None
    if len(plain) > most:
        raise TooLargeError(
            f"the body is longer than {most:,} bytes when inflated, which is what this server "
            "takes; send it in parts"
        )
    if not stream.eof:
        raise InvalidRequestError(f"the body ends before its {name.decode()} does; send all of it")
    if stream.unused_data:
        raise InvalidRequestError(
            f"the body goes on after the end of its {name.decode()}; send one stream"
        )
    return plain
