"""A thread that looks at the model files again and again, and loads what changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from treekit.errors import TreekitError
from treekit.serve.repository import Change, Repository
from treekit.serve.saying import Say

__all__ = ["Watcher", "tell_changes"]


class Watcher:
    """Looks at a repository's files every so many seconds, until it is stopped.

    Parameters
    ----------
    repository : Repository
    seconds : float
    say : Say
    seen : callable, optional
        Called with the changes of each look that found some.
    """

    def __init__(
        self,
        repository: Repository,
        seconds: float,
        say: Say,
        seen: Callable[[list[Change]], None] | None = None,
    ) -> None:
        self._repository, self._seconds, self._say = repository, seconds, say
        self._seen = seen
        self._over = threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="treekit-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a file that is being read is read to its end in the background."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self.look()

    def look(self) -> None:
        """Look once; whatever the files are, the models in service go on."""
        try:
            changes = self._repository.refresh()
        except (TreekitError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._say("reload-failed", f"models are not looked at: {error}", level="error")
            return
        self._trouble = ""
        tell_changes(changes, self._say)
        if changes and self._seen is not None:
            self._seen(changes)


_WORDS = {
    "loaded": "model {name!r} {version} is loaded",
    "replaced": "model {name!r} is replaced by {version}",
    "kept": "model {name!r} {version} goes on; its new file is refused: {reason}",
    "refused": "model {name!r} is refused: {reason}",
    "removed": "model {name!r} {version} is removed",
    "unloaded": "model {name!r} {version} is unloaded",
}


def tell_changes(changes: Iterable[Change], say: Say) -> None:
    """Tell the operator what became of models."""
    for change in changes:
        say(
            f"model-{change.what}",
            _WORDS[change.what].format(**change._asdict()),
            level="error" if change.what in ("kept", "refused") else "info",
            model=change.name,
            version=change.version,
            **({"reason": change.reason} if change.reason else {}),
        )
