"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the first example of a test may compile kernels.
settings.register_profile("local", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Discovery starts anew for this test, and for the one after it."""
    from treekit import registry

    registry.configure()
    yield
    registry.configure()
