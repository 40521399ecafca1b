"""Lazily computed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """A value computed by `make` on first access; copying or pickling computes it first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._value: T | None = None

    @property
    def value(self) -> T:
        """The value."""
        make = self._make
        if make is not None:
            self._value = make()
            self._make = None  # with all that it refers to
        return self._value  # type: ignore[return-value]

    def __reduce__(self) -> Any:
        return make_known, (self.value,)


def make_known(value: T) -> Later[T]:
    """Wrap a known value."""
    return Later(lambda: value)
