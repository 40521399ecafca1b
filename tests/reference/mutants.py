"""Mutants of exported artifacts, each with one small fault.

Each function yields (kind of fault, content of the file).  Faults are a threshold moved by one
ulp of the input type or of a double, a leaf value moved by one unit, a flipped branch of missing
values, and a flipped category.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from tests.reference.python_arrays import array_in, with_arrays
from treekit.model.fixed_point import floor_to_dtype, to_double_threshold
from treekit.rules import RuleList, parse_rules

__all__ = ["onnx_mutants", "rules_mutants", "source_mutants"]

Mutants = Iterator[tuple[str, bytes]]


def moved(edge: float) -> list[float]:
    """Return the double thresholds one double and one float32 away from a threshold."""
    doubles = [math.nextafter(edge, s) for s in (-math.inf, math.inf)]
    singles = beside(float(floor_to_dtype(edge, "float32")))
    return doubles + [float(to_double_threshold(t)) for t in singles]


def beside(t: float) -> list[float]:
    """Return the finite float32 numbers adjacent to a number."""
    with np.errstate(over="ignore", under="ignore"):
        found = [float(np.nextafter(np.float32(t), np.float32(s))) for s in (-np.inf, np.inf)]
    return [t for t in found if math.isfinite(t)]


def _replaced(text: str, match: re.Match[str], new: str, group: int = 0) -> bytes:
    return (text[: match.start(group)] + new + text[match.end(group) :]).encode()


# ------------------------------------------------------------------ C and Python


def source_mutants(text: str) -> Mutants:
    """Yield mutants of a C or Python file in any form."""
    for match in re.finditer(r"<= (-?[0-9.]+(?:e[+-]?[0-9]+)?)\b", text):
        for edge in moved(float(match[1])):
            yield "threshold", _replaced(text, match, repr(edge), 1)
    yield from _flipped_tests(text)
    yield from _nodes_of_c(text)
    yield from _nodes_of_python(text)
    yield from _votes(text)


def _flipped_tests(text: str) -> Mutants:
    """Flip tests of the nested form: for NaN, ``x <= t`` is false and ``not x > t`` is true."""
    for match in re.finditer(r"if (\()?(x\[\w+\]) <= (-?[0-9.e+-]+)(\) \{|:)", text):
        test = (
            f"if (!({match[2]} > {match[3]})) {{"
            if match[1]
            else (f"if not {match[2]} > {match[3]}:")
        )
        yield "missing", _replaced(text, match, test)
    for match in re.finditer(r"if (?:\(!\(|not )(x\[\w+\]) > (-?[0-9.e+-]+)(\)\) \{|:)", text):
        test = (
            f"if ({match[1]} <= {match[2]}) {{"
            if match[3] != ":"
            else (f"if {match[1]} <= {match[2]}:")
        )
        yield "missing", _replaced(text, match, test)
    for match in re.finditer(r"(?<=x\[)(\w+)\] == ([0-9]+)\.0", text):
        for code in {0, 1, 2} - {int(match[2])}:
            yield "category", _replaced(text, match, f"{match[1]}] == {code}.0")
    for match in re.finditer(r"in \{([0-9, ]+)\}", text):
        for code in range(3):
            codes = {int(c) for c in match[1].split(",")} ^ {code}
            inside = ", ".join(map(str, sorted(codes)))
            yield "category", _replaced(text, match, f"in {{{inside}}}" if codes else "in ()")


def _nodes_of_c(text: str) -> Mutants:
    """Mutate the table form: nodes are ``test << 32 | key``; branches are bits or integers."""
    nodes = re.search(r"_nodes\[\d+\] = \{\n([0-9a-fx, \n]+)\n\}", text)
    shift = re.search(r"_STEP\(test\) .*\(test\) >> ([0-9]+)\)", text)
    if nodes is None or shift is None:
        return
    words = [int(match[0], 16) for match in re.finditer("0x[0-9a-f]+", nodes[1])]
    levels = []
    for i, word in enumerate(words):
        key, test = word & 0xFFFFFFFF, word >> 32
        if test >> int(shift[1]) == 0:
            continue  # a leaf
        if test & 2:
            levels.append(key)
        elif key > 1:  # otherwise it tests for missing values
            other = key - 1 if test & 1 else key + 1
            for fault, changed in (
                ("threshold", word - 1),
                ("threshold", word + 1),
                ("missing", (test ^ 1) << 32 | other),
            ):
                written = ", ".join(map(hex, [*words[:i], changed, *words[i + 1 :]]))
                yield fault, _replaced(text, nodes, written, 1)
    yield from _levels_of_c(text, levels)


def _levels_of_c(text: str, starts: list[int]) -> Mutants:
    """Send each of three categories to each other branch of its node."""
    table = re.search(r"_(sets|branches)\[\d+\] = \{\n([0-9, \n]+)\n\}", text)
    if table is None:
        return
    numbers = [int(match[0]) for match in re.finditer("[0-9]+", table[2])]
    bits = table[1] == "sets"

    def entry(at: int) -> int:
        return numbers[at >> 3] >> (at & 7) & 1 if bits else numbers[at]

    for start in starts:
        branches = {0, 1} if bits else {entry(start + k) for k in range(4)}
        for at in range(start + 1, start + 4):
            for other in branches - {entry(at)}:
                changed = numbers.copy()
                if bits:
                    changed[at >> 3] ^= 1 << (at & 7)
                else:
                    changed[at] = other
                yield "category", _replaced(text, table, ", ".join(map(str, changed)), 2)


def _nodes_of_python(text: str) -> Mutants:
    """Mutate the table form of parallel arrays.

    Cells after the row's own are copies of columns whose missing values go to the low branch.
    """
    value, asks, low = (array_in(text, name) for name in ("_VALUE", "_ASKS", "_LOW"))
    features = text.count('            "kind": ')
    for i, asked in enumerate(asks.tolist()):
        if 0 <= asked < features + len(low):
            for edge in moved(float(value[i])):
                changed = value.copy()
                changed[i] = edge
                yield "threshold", with_arrays(text, _VALUE=changed)
            if asked >= features or asked in low:
                flipped = asks.copy()
                other = features + np.flatnonzero(low == asked)
                flipped[i] = low[asked - features] if asked >= features else other[0]
                yield "missing", with_arrays(text, _ASKS=flipped)
    start, codes = array_in(text, "_SET_START"), array_in(text, "_SET_CODES")
    for i in range(len(start) - 1):
        for code in range(3):
            own = sorted(set(codes[start[i] : start[i + 1]].tolist()) ^ {code})
            longer = len(own) - (start[i + 1] - start[i])
            changed = np.concatenate([codes[: start[i]], own, codes[start[i + 1] :]])
            moved_on = start + longer * (np.arange(len(start)) > i)
            yield "category", with_arrays(text, _SET_START=moved_on, _SET_CODES=changed)


def _votes(text: str) -> Mutants:
    """Change a leaf value by one unit."""
    c = re.search(r"_leaf_units\[\d+\] = \{\n([0-9, \n-]+)\n\}", text)
    if c is not None:
        for match in re.finditer(r"-?[0-9]+", c[1]):
            for unit in (-1, 1):
                inside = c[1][: match.start()] + str(int(match[0]) + unit) + c[1][match.end() :]
                yield "leaf", _replaced(text, c, inside, 1)
    leaves = re.search(r"_LEAVES: .*? = \(\n(.*?)\n\)", text, re.DOTALL)
    if leaves is not None:
        for match in re.finditer(r"\([0-9]+, (-?[0-9]+)\),", leaves[1]):  # a position, and units
            for unit in (-1, 1):
                inside = leaves[1][: match.start(1)] + str(int(match[1]) + unit)
                yield "leaf", _replaced(text, leaves, inside + leaves[1][match.end(1) :], 1)
    units = array_in(text, "_UNITS")
    for i in range(len(units)):
        for unit in (-1, 1):
            changed = units.copy()
            changed[i] += unit
            yield "leaf", with_arrays(text, _UNITS=changed)


# ------------------------------------------------------------------ ONNX


def onnx_mutants(content: bytes) -> Mutants:
    """Yield mutants of the attributes of an ONNX tree ensemble."""
    import onnx

    proto = onnx.load_from_string(content)
    ensemble = next(node for node in proto.graph.node if "TreeEnsemble" in node.op_type)
    attributes = {attribute.name: attribute for attribute in ensemble.attribute}
    values = attributes["nodes_values"].floats
    modes = attributes["nodes_modes"].strings
    columns = attributes["nodes_featureids"].ints
    for i, mode in enumerate(modes):
        if mode == b"LEAF":
            continue
        kept = values[i]
        on_codes = columns[i] == 1  # the nominal column of the test's schema
        for step in [kept - 1, kept + 1] if on_codes else beside(kept):
            values[i] = step
            yield "category" if on_codes else "threshold", proto.SerializeToString()
        values[i] = kept
        tracks = attributes["nodes_missing_value_tracks_true"].ints
        tracks[i] ^= 1
        yield "missing", proto.SerializeToString()
        tracks[i] ^= 1
    weights = attributes["target_weights"].floats
    for i, kept in enumerate(weights):
        for unit in (-1, 1):
            weights[i] = kept + unit
            yield "leaf", proto.SerializeToString()
        weights[i] = kept


# ------------------------------------------------------------------ rules


def rules_mutants(text: str) -> Mutants:
    """Yield mutants of single conditions and predictions of a rule text."""
    read = parse_rules(text)
    for match in re.finditer(r"(?:>|<=) (-?[0-9.]+(?:e-?[0-9]+)?)", text):
        for new in beside(float(match[1])):
            yield "threshold", _replaced(text, match, repr(new), 1)
    for match in re.finditer(r"^  (?:if |and) .*$", text, re.MULTILINE):
        line = match[0]
        if line.endswith(", or is missing"):
            yield "missing", _replaced(text, match, line.removesuffix(", or is missing"))
        elif not line.endswith(("is missing", "cannot fit")):
            yield "missing", _replaced(text, match, line + ", or is missing")
    levels = read.schema.columns[1].levels
    for match in re.finditer(
        r"^  (?:if |and) \w+ is ((?:\w+, )*(?:\w+ or )?\w+)(?=, or is|$)",
        text,
        re.MULTILINE,
    ):
        named = re.split(", | or ", match[1])
        if named[0] in ("known", "missing"):
            continue
        for level in levels:
            kept = [x for x in levels if (x in named) != (x == level)]
            if 0 < len(kept) < len(levels):
                yield "category", _replaced(text, match, _choice(kept), 1)
    yield from _answers(text, read)


def _choice(names: list[str]) -> str:
    """Return categories as a condition names them."""
    return " or ".join([part for part in (", ".join(names[:-1]), names[-1]) if part])


def _answers(text: str, read: RuleList) -> Mutants:
    """Change the share of one class, or the number of a leaf, by one unit."""
    units = read.units_each
    for match in re.finditer(r"^  then (\S+) .*$", text, re.MULTILINE):
        if read.schema.task == "regression":
            for step in (-1, 1):
                new = float(match[1]) + math.ldexp(step, read.exponent)
                yield "leaf", _replaced(text, match, repr(new), 1)
            continue
        for share in re.finditer(r": ([0-9.]+)", match[0]):
            votes = round(float(share[1]) * units)
            for step in (-1, 1):
                new = f"{(votes + step) / units:.12f}"
                line = match[0][: share.start(1)] + new + match[0][share.end(1) :]
                yield "leaf", _replaced(text, match, line)
