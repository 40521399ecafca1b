"""Results as Markdown tables, and whether two sides did the same work."""

from __future__ import annotations

from benchmarks.frame import OWN, Benchmark, Figure, Measured, Result

__all__ = ["base_of", "fairness", "of", "row"]

LEAVES, QUALITY = 0.10, 0.003
"""How far leaves (relative), and accuracy or R squared, may lie apart."""


def base_of(sides: dict[str, Measured], key: str) -> Measured | None:
    """What ratios refer to: the first side that has the figure."""
    return next((own for own in sides.values() if own.values(key)), None)


def fairness(own: Measured, peer: Measured) -> str:
    """Why two sides of one work are not to be compared; empty if they are."""
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
    """A line of a table; a bar in a cell does not end it."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def of(benchmark: Benchmark, result: Result) -> str:
    """One table: a line a side of each case, a column a figure that any of them has."""
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
    """Figures of a side, and ratios to the first side that has the figure."""
    cells = []
    for figure in figures:
        cells.append(figure.written(own))
        if figure.ratio:
            base = base_of(sides, figure.key)
            ratio = None if base is None else own.ratio(base, figure.key)
            cells.append("" if ratio is None else f"{ratio:.3f}")
    return cells


def _judged(side: str, sides: dict[str, Measured]) -> str:
    """Which of the others did the same work; if none, how the first one differs."""
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
