r"""Strict parser of the subset of the DOT language used by pictures.

    graph : 'digraph' ID '{' (ID attributes ';' | ID '->' ID attributes ';')* '}'
    attributes : '[' ID '=' ID (',' ID '=' ID)* ']'

An ID is a plain word, a numeral or a quoted string.  The only escapes are ``\\``, ``\"`` and
``\n``, and every ``&`` must be part of ``&amp;``.
"""

from __future__ import annotations

import re

__all__ = ["read_dot"]

_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\\x00-\x1f\x7f]|\\["\\n])*")|(?P<mark>->|[\[\]{}=,;])'
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9]*|-?[0-9]+(?:\.[0-9]+)?))"
)

Attributes = dict[str, str]


def read_dot(text: str) -> tuple[dict[str, Attributes], dict[tuple[str, str], Attributes]]:
    """Parse nodes and edges with their attributes; lines of a label are joined by newlines."""
    tokens = _tokens(text)
    assert [next(tokens)[1] for _ in range(3)] == ["digraph", "tree", "{"]
    nodes: dict[str, Attributes] = {}
    edges: dict[tuple[str, str], Attributes] = {}
    for kind, first in tokens:
        if first == "}":
            assert next(tokens, None) is None
            return nodes, edges
        assert kind == "word"
        _, mark = next(tokens)
        if mark == "->":
            of_second, second = next(tokens)
            assert of_second == "word"
            assert (first, second) not in edges
            assert next(tokens)[1] == "["
            edges[first, second] = _attributes(tokens)
        else:
            assert mark == "["
            assert first not in nodes
            nodes[first] = _attributes(tokens)
        assert next(tokens)[1] == ";"
    raise AssertionError("the graph is not closed")


def _tokens(text):
    at = 0
    text = text.rstrip("\n")
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match, text[at : at + 60]
        kind = match.lastgroup
        yield kind, _meant(match["string"]) if kind == "string" else match[kind]
        at = match.end()


def _attributes(tokens) -> Attributes:
    found: Attributes = {}
    while True:
        kind, name = next(tokens)
        assert kind == "word"
        assert name not in found
        assert next(tokens)[1] == "="
        kind, found[name] = next(tokens)
        assert kind in ("word", "string")
        _, mark = next(tokens)
        if mark == "]":
            return found
        assert mark == ","


def _meant(string: str) -> str:
    text = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], string[1:-1])
    assert re.fullmatch(r"(?:[^&]|&amp;)*", text, re.DOTALL)
    return text.replace("&amp;", "&")
