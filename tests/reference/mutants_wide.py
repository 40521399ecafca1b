"""Mutants of oblique splits, surrogates, fractional instances and costs in artifacts.

Each function yields (kind of fault, content of the file), as in `tests.reference.mutants`.
Faults are a weight moved by one float32, a threshold of an oblique split moved by one float32 or
double, a changed number or branch of a surrogate, a bound of a share moved by one unit of mass,
and a cost changed by one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tests.reference.mutants import beside
from tests.reference.python_arrays import array_in, with_arrays

__all__ = ["c_mutants", "graph_mutants", "python_mutants", "text_mutants"]

Mutants = Iterator[tuple[str, bytes]]
NUMBER = r"(?<![\w.])(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?![\w.])"


def near(number: float) -> list[float]:
    """Return the adjacent doubles and float32 numbers."""
    doubles = [math.nextafter(number, to) for to in (-math.inf, math.inf)]
    return [*doubles, *beside(number)]


def other_sides(side: float) -> list[float]:
    """Return the wrong outcomes of a test: another branch, or undecided (-1)."""
    return [0, 1] if side == -1 else [1 - side, -1]


def _replaced(text: str, at: tuple[int, int], new: str) -> bytes:
    return (text[: at[0]] + new + text[at[1] :]).encode()


def _moved(fault: str, text: str, spans: Iterable[tuple[int, int]]) -> Mutants:
    """Move each real number by one float32 and, except for weights, by one double."""
    for first, last in spans:
        number = float(text[first:last])
        for new in beside(number) if fault == "weight" else near(number):
            yield fault, _replaced(text, (first, last), repr(new))


def _stepped(
    fault: str, text: str, spans: Iterable[tuple[int, int]], lowest: int = 0, highest: int = 2**24
) -> Mutants:
    """Change each integer by one."""
    for first, last in spans:
        for new in (int(text[first:last]) - 1, int(text[first:last]) + 1):
            if lowest <= new <= highest:
                yield fault, _replaced(text, (first, last), str(new))


def _inside(text: str, begin: str, end: str, number: str = NUMBER) -> Iterator[tuple[int, int]]:
    """Yield the positions of all numbers between two patterns."""
    for block in re.finditer(f"{begin}(.*?){end}", text, re.DOTALL):
        for match in re.finditer(number, block[1]):
            yield block.start(1) + match.start(1), block.start(1) + match.end(1)


def _sums(text: str, times: str) -> Mutants:
    """Mutate oblique splits of the nested form: ``w * x + ... <= t``."""
    yield from _moved("weight", text, (m.span(1) for m in re.finditer(NUMBER + times, text)))
    whole = times + r"[^;:{}]*?(?:<=|>) " + NUMBER
    yield from _moved("threshold", text, (m.span(1) for m in re.finditer(whole, text)))


def c_mutants(text: str) -> Mutants:
    """Yield mutants of a C file in any form."""
    yield from _sums(text, r" \* \w+_float32\(x\[")
    tests = re.search(r"_tests\[\d+\] = \{\n(.*?)\};", text, re.DOTALL)
    start = tests.start(1) if tests else 0
    side = r"(-?[01])"
    pattern = rf"\{{(\d+)u, {side}, {side}, {side}, -?\d+, \d+, (-?\d+)\}}"
    for match in re.finditer(pattern, tests[1] if tests else ""):
        at = [(start + match.start(group), start + match.end(group)) for group in (1, 2, 3, 4)]
        if match[5] == "0":  # one column, compared with an ordered key
            yield from _stepped("surrogate", text, at[:1], highest=2**32 - 2)
        of_numbers = [2, 3] * (not match[5].startswith("-"))
        for group in (*of_numbers, 4):
            for other in other_sides(int(match[group])):
                yield "surrogate", _replaced(text, at[group - 1], str(other))
    yield from _moved("threshold", text, _inside(text, r"_limits\[\d+\] = \{\n", r"\};"))
    yield from _moved("weight", text, _inside(text, r"_weights\[\d+\] = \{\n", r"\};"))
    branches = _inside(text, r"_test_branches\[\d+\] = \{\n", r"\};")
    yield from _stepped("surrogate", text, branches, -1, 1)
    yield from _stepped("cost", text, _inside(text, r"_costs\[\d+\] = \{\n", r"\};"))
    if "question, child, low, high" in text:
        pattern = r"^\{[^,\n]+, -?\d+, -?\d+, (\d+), (\d+)\}"
        ends = (m.span(k) for m in re.finditer(pattern, text, re.MULTILINE) for k in (1, 2))
        yield from _stepped("share", text, ends)


def python_mutants(text: str) -> Mutants:
    """Yield mutants of a Python file in any form."""
    yield from _sums(text, r" \* _float32\(x\[")
    counts = np.diff(array_in(text, "_TERM_START"))
    levels = array_in(text, "_LEVEL_COLUMN") >= 0
    sums, singles = ~levels & (counts > 1), ~levels & (counts == 1)
    yield from _steps("surrogate", text, "_BELOW", other_sides, ~levels)
    yield from _steps("surrogate", text, "_ABOVE", other_sides, ~levels)
    yield from _steps("surrogate", text, "_LOST", other_sides)
    yield from _steps("threshold", text, "_THRESHOLD", near, sums)
    yield from _steps("surrogate", text, "_THRESHOLD", near, singles)
    yield from _steps("weight", text, "_TERM_WEIGHT", beside)
    yield from _steps("surrogate", text, "_LEVEL_BRANCH", _within(-1, 1))
    yield from _stepped("cost", text, _inside(text, r"_COSTS = \(\n", r"\n\)\n"))
    if "_BRANCHES" in text:
        yield from _steps("share", text, "_LOW", _within(0, 2**24))
        yield from _steps("share", text, "_HIGH", _within(0, 2**24))


def _within(lowest: int, highest: int) -> Callable[[float], list[float]]:
    """Return a function that changes a number by one, within bounds."""
    return lambda number: [n for n in (number - 1, number + 1) if lowest <= n <= highest]


def _steps(
    fault: str,
    text: str,
    name: str,
    step: Callable[[float], list[float]],
    chosen: np.ndarray | None = None,
) -> Mutants:
    """Change each number of an array, or each chosen one."""
    numbers = array_in(text, name)
    for i in np.flatnonzero(np.ones(len(numbers)) if chosen is None else chosen).tolist():
        for new in step(numbers[i].item()):
            changed = numbers.copy()
            changed[i] = new
            yield fault, with_arrays(text, **{name: changed})


def text_mutants(text: str) -> Mutants:
    """Yield mutants of a rule text."""
    for line in re.finditer(r"^  test \d+: (.*)$", text, re.MULTILINE):
        several = " * " in line[1] or " + " in line[1]
        for match in re.finditer(NUMBER, line[1]):
            span = (line.start(1) + match.start(1), line.start(1) + match.end(1))
            tail = line[1][match.end() :]
            fault = "weight" if tail.startswith(" *") else "threshold" if several else "surrogate"
            yield from _moved(fault, text, [span])
        for match in re.finditer(r"<=|>", line[1]):
            span = (line.start(1) + match.start(), line.start(1) + match.end())
            yield "surrogate", _replaced(text, span, ">" if match[0] == "<=" else "<=")
    for match in re.finditer(r"unknown: it (holds|fails)$", text, re.MULTILINE):
        yield (
            "surrogate",
            _replaced(text, match.span(1), "fails" if match[1] == "holds" else "holds"),
        )
    costs = re.finditer(r"^  when it is .*?answer costs   (.*)$", text, re.MULTILINE)
    spans = ((c.start(1) + m.start(1), c.start(1) + m.end(1)) for c in costs
             for m in re.finditer(r": (\d+)", c[1]))  # fmt: skip
    yield from _stepped("cost", text, spans)
    if re.search("^order ", text, re.MULTILINE):
        yield from _conditions(text)
    parts = re.finditer(r"\w: (\d+) to (\d+) \(", text)
    both = itertools.chain.from_iterable((m.span(1), m.span(2)) for m in parts)
    yield from _stepped("share", text, both)


def _conditions(text: str) -> Mutants:
    """Yield mutants of the conditions of an ordered list."""
    for line in re.finditer(r"^  (?:if |and) .*$", text, re.MULTILINE):
        for match in re.finditer(NUMBER, line[0]):
            first = line.start()
            yield from _moved("surrogate", text, [(first + match.start(), first + match.end())])
        if not re.search(r"is (?:missing|known)", line[0]):
            at = line.end(), line.end()
            yield "surrogate", _replaced(text, at, ", or is missing")
        for match in re.finditer(", or is missing", line[0]):
            at = line.start() + match.start(), line.start() + match.end()
            yield "surrogate", _replaced(text, at, "")


def _other_sides(side: float) -> list[float]:
    """Return the wrong outcomes of a test as `other_sides` does, with NaN for undecided."""
    return [0.0, 1.0] if math.isnan(side) else [1.0 - side, math.nan]


def graph_mutants(content: bytes) -> Mutants:
    """Yield mutants of the numbers of an ONNX graph."""
    import onnx
    from onnx import numpy_helper

    proto = onnx.load_from_string(content)
    steps: dict[str, tuple[str, Callable[[float], list[float]]]] = {
        "_weight_": ("weight", beside),
        "_threshold": ("threshold", near),
        "_below": ("surrogate", _other_sides),
        "_above": ("surrogate", _other_sides),
        "_unknown": ("surrogate", _other_sides),
        "_entries": ("surrogate", _other_sides),
        "negative_costs": ("cost", lambda cost: [cost - 1, cost + 1]),
    }
    for tensor in proto.graph.initializer:
        kept = numpy_helper.to_array(tensor)
        fault, step = next((steps[part] for part in steps if part in tensor.name), ("", near))
        for at in np.ndindex(kept.shape if fault else (0,)):
            if math.isnan(kept[at]) and fault != "surrogate":
                continue
            for new in step(float(kept[at])):
                changed = kept.copy()
                changed[at] = new
                tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
                yield fault, proto.SerializeToString()
        tensor.CopyFrom(numpy_helper.from_array(kept, tensor.name))
