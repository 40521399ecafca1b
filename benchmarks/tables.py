"""Results as Markdown tables, and checks that two sides did the same work."""

from __future__ import annotations

from benchmarks.frame import OWN, Benchmark, Figure, Measured, Result

__all__ = ["base_of", "fairness", "of", "row"]

LEAVES, QUALITY = 0.10, 0.003
"""Largest difference of leaves (relative), and of accuracy or R squared."""


def base_of(sides: dict[str, Measured], key: str) -> Measured | None:
    """Return the base of ratios: the first side that has the figure."""
    return next((own for own in sides.values() if own.values(key)), None)


def fairness(own: Measured, peer: Measured) -> str:
    """Return the reason why two sides are not comparable; empty if they are."""
    leaves, quality = (Figure(key, key, mean=True) for key in ("leaves", "quality"))
    a, b = leaves.of(own), leaves.of(peer)
    reasons = []
    if a is not None and b is not None and abs(a - b) > LEAVES * b:
        reasons.append(f"{a / b - 1:+.0%} leaves")
    a, b = quality.of(own), quality.of(peer)
    if a is not None and b is not None and abs(a - b) > QUALITY:
        reasons.append(f"{a - b:+.4f} accuracy or R²")
    return ", ".join(reasons)


def row(cells: list[str]) -> str:
    """Return a table row, with bars in cells escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def of(benchmark: Benchmark, result: Result) -> str:
    """Return a table with a row per case and side, and a column per figure that any side has."""
    figures = [
        figure
        for figure in benchmark.figures
        if any(base_of(sides, figure.key) is not None for sides in result.cases.values())
    ]
    head = ["work", "side"]
    for figure in figures:
        head += [figure.title, "ratio"] if figure.ratio else [figure.title]
    if benchmark.fair:
        head.append("the same work")
    lines = [row(head), "|---" * len(head) + "|"]
    for case, sides in result.cases.items():
        for number, (side, own) in enumerate(sides.items()):
            cells = ["" if number else case, side]
            cells += [own.failed] if own.failed else _cells(figures, own, sides)
            if benchmark.fair and not own.failed:
                cells.append(_judged(side, sides))
            lines.append(row(cells + [""] * (len(head) - len(cells))))
    return "\n".join(lines)


def _cells(figures: list[Figure], own: Measured, sides: dict[str, Measured]) -> list[str]:
    """Return the figures of a side, and their ratios to the first side that has the figure."""
    cells = []
    for figure in figures:
        cells.append(figure.written(own))
        if figure.ratio:
            base = base_of(sides, figure.key)
            ratio = None if base is None else own.ratio(base, figure.key)
            cells.append("" if ratio is None else f"{ratio:.3f}")
    return cells


def _judged(side: str, sides: dict[str, Measured]) -> str:
    """Return the other sides with the same work; if there are none, how the first differs."""
    ours = side.startswith(OWN)
    others = {
        name: own for name, own in sides.items() if name.startswith(OWN) != ours and own.rounds
    }
    reasons = {
        name: fairness(*((sides[side], other) if ours else (other, sides[side])))
        for name, other in others.items()
    }
    same = [name for name, why in reasons.items() if not why]
    if same:
        return f"as {', '.join(same)}"
    return f"not comparable: {next(iter(reasons.values()))}" if reasons else ""
