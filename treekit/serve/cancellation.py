"""Cancellation of work in threads: work checks between its parts whether a client still waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from treekit.serve.errors import UnavailableError

T = TypeVar("T")

_current = threading.local()


def run_cancellable(is_cancelled: threading.Event, function: Callable[..., T], *given: object) -> T:
    """Run a function in this thread, where `check_cancelled` raises once the event is set."""
    _current.is_cancelled = is_cancelled
    try:
        check_cancelled()
        return function(*given)
    finally:
        del _current.is_cancelled


def check_cancelled() -> None:
    """Raise `UnavailableError` if nobody waits for the result of this thread's work."""
    is_cancelled = getattr(_current, "is_cancelled", None)
    if is_cancelled is not None and is_cancelled.is_set():
        raise UnavailableError(
            "the response was stopped, as it took too long or the server is closing; retry later"
        )
