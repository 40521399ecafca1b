"""Number of hypothesis examples for a property."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]


def examples(many: int) -> int:
    """Return `many` in the later tiers, else a tenth of it, at least 5 but no more than `many`."""
    return many if settings().max_examples >= 100 else min(many, max(many // 10, 5))
