"""A thread that looks at the model files again and again, and loads what changed."""

from __future__ import annotations

import threading

from treekit.errors import TreekitError
from treekit.serve.models.repository import Repository
from treekit.serve.process.saying import Say

__all__ = ["Watcher"]


class Watcher:
    """Looks at a repository's files every so many seconds, until it is stopped.

    Parameters
    ----------
    repository : Repository
    seconds : float
        From the end of a look to the next.
    say : Say
    """

    def __init__(self, repository: Repository, seconds: float, say: Say) -> None:
        self._repository, self._seconds, self._say = repository, seconds, say
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
        trouble = ""
        try:
            self._repository.refresh(patient=True)
        except (TreekitError, OSError) as error:
            trouble = str(error)
        # A thread that ended would leave models as they are for ever, and nobody would know.
        except Exception as error:  # noqa: BLE001
            trouble = f"{type(error).__name__}: {error}"
        if trouble and trouble != self._trouble:
            self._say("look-failed", f"some model files cannot be seen: {trouble}", level="error")
        elif self._trouble and not trouble:
            self._say("look-again", "all model files can be seen again")
        self._trouble = trouble
