"""What signals do to a server that runs in the main thread."""

from __future__ import annotations

import os
import signal

from treekit.serve.process.run import stopping


def test_the_first_signal_ends_gently_and_the_next_one_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    ends: list[str | int] = []
    with stopping(lambda: ends.append("gently"), ends.append):
        os.kill(os.getpid(), signal.SIGTERM)
        assert ends == ["gently"]
        os.kill(os.getpid(), signal.SIGINT)
        assert ends == ["gently", 128 + signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) is before
