"""A time limit for tests of clusters, which must fail rather than hang."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

SECONDS = 600
"""Several times what the slowest test takes on a busy machine."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Fail a test that does not end."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError(f"the test took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
