"""Curves on logarithmic axes as SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["curves_svg"]

Line = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 560, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 30, 44
COLOURS = ("#0b6e4f", "#5fb49c", "#c8553d", "#e09f3e", "#3d5a80", "#7b5ea7")
STYLE = "font:12px sans-serif;fill:#222"


def curves_svg(title: str, across: str, up: str, lines: Mapping[str, Line]) -> str:
    """Draw one line with points per name; both axes are logarithmic.

    Parameters
    ----------
    title, across, up : str
        Title, and labels of the horizontal and vertical axis.
    lines : mapping of str to points
        Positive numbers only.
    """
    points = [point for line in lines.values() for point in line]
    xs, ys = ([math.log10(point[k]) for point in points] for k in (0, 1))
    x0, x1 = _span(xs)
    y0, y1 = math.floor(min(ys)), math.ceil(max(ys) + 1e-9)
    y1 = max(y1, y0 + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (math.log10(x) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (math.log10(y) - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)
        return round(right, 1), round(down, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<g style="{STYLE}"><text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(across)}</text>",
        f'<text x="14" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2})">{escape(up)}</text>',
    ]
    for power in range(y0, y1 + 1):
        _, y = place(10**x0, 10.0**power)
        parts.append(
            f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{10.0**power:g}</text>'
        )
    for size in sorted({point[0] for point in points}):
        x, _ = place(size, 10.0**y0)
        parts.append(
            f'<path d="M{x} {HEIGHT - BOTTOM}v5" stroke="#888"/>'
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_short(size)}</text>'
        )
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        dots = [place(*point) for point in line]
        steps = " ".join(f"{x},{y}" for x, y in dots)
        parts.append(f'<polyline points="{steps}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in dots]
        y = TOP + 14 + 18 * number
        parts.append(
            f'<path d="M{WIDTH - RIGHT + 10} {y - 4}h18" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{WIDTH - RIGHT + 34}" y="{y}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</g></svg>", ""])


def _span(logs: Sequence[float]) -> tuple[float, float]:
    """Return the range of the numbers, never empty."""
    low, high = min(logs), max(logs)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _short(size: float) -> str:
    """Format a size briefly: 300k, 10M."""
    for bound, sign in ((1e6, "M"), (1e3, "k")):
        if size >= bound:
            return f"{size / bound:g}{sign}"
    return f"{size:g}"
