"""One model file over time: what it gave, what was last seen of it, and when to read it anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from treekit.errors import TreekitError
from treekit.serve.models.loading import Stamp, look_at, stamp_of, unsteady
from treekit.serve.models.places import Place
from treekit.serve.models.served import Served

__all__ = ["Change", "Read", "Slot"]

Read = Callable[[Path, str, str | None, str], Served]
"""`treekit.serve.models.loading.read_served`, or what does the same in a test."""

_SETTLED = 2.0
"""Seconds after which a stamp that is still the same is believed.  Before, the file may have
been written again within one tick of its clock: 4 ms, and 1 s or 2 s on some file systems."""

_TRIES = 3


class Change(NamedTuple):
    """What became of one version of a model; `reason` says why one was refused.

    ``loaded``: it is new.  ``replaced``: its file changed.  ``kept``: its file changed to
    something that is refused, and the one before it goes on.  ``refused``: nothing serves.
    ``removed``: its file is gone.  ``unloaded``: somebody asked for that.
    """

    name: str
    version: str
    what: Literal["loaded", "replaced", "kept", "refused", "removed", "unloaded"]
    reason: str = ""


class Slot:
    """A version of a model.

    Parameters
    ----------
    name : str
    place : Place
    vital : bool
        Whether the server is not ready while nothing serves.

    Attributes
    ----------
    served : Served, optional
        What answers now.
    reason : str
        Why its file as it is now does not; empty if it does.
    public_reason : str
        The same as clients have it: where files lie on the server is not for them.
    missed : int
        Looks in a row that did not find the file.
    """

    def __init__(self, name: str, place: Place, *, vital: bool) -> None:
        self.name, self.place, self.vital = name, place, vital
        self.served: Served | None = None
        self.reason = self.public_reason = ""
        self.missed = 0
        self._folder = place.path.parent  # behind links
        self._stamp: Stamp | None = None
        self._since = 0.0
        self._settled = False
        self._digest = ""  # of the content that was judged last
        self._anew = False

    @property
    def version(self) -> str:
        """Of what serves, or would."""
        return self.served.version if self.served else self.place.version or ""

    def forget(self) -> None:
        """Read the file at the next look, and tell of it, whatever it is."""
        self._lose()
        self._anew = True

    def look(self, read: Read, now: float) -> Change | None:
        """Look at the file; read it if its content is another than before.

        A content that is refused is not read again.  A file that cannot be opened is tried at
        each look, which costs nothing, and told of once.

        Parameters
        ----------
        read : callable
        now : float
            Seconds of a clock that only goes on.
        """
        try:
            if self._settled and stamp_of(self.place.path) == self._stamp:
                return None
            return self._look(read, now)
        except (TreekitError, OSError) as error:
            self._lose()
            known = self.reason
            self._give(str(error))
            return self._refused() if self._anew or self.reason != known else None
        finally:
            self._anew = False

    def _look(self, read: Read, now: float) -> Change | None:
        for _ in range(_TRIES):
            # Behind links: one that is swapped, and swapped back, must not go unnoticed.
            path = Path(os.path.realpath(self.place.path))  # resolve() has no word for circles
            self._folder = path.parent
            seen = look_at(path)
            if seen.stamp != self._stamp:
                self._stamp, self._since = seen.stamp, now
            self._settled = now - self._since >= _SETTLED
            if seen.digest == self._digest:
                return None
            if self.served and seen.digest == self.served.digest and not self._anew:
                return self._take(self.served)
            fresh, reason = self._read(read, path, seen.digest)
            if look_at(path).digest != seen.digest:
                continue
            if fresh is not None:
                return self._take(fresh)
            self._digest = seen.digest
            self._give(reason)
            return self._refused()
        raise unsteady(self.place.path)

    def _read(self, read: Read, path: Path, digest: str) -> tuple[Served | None, str]:
        """What the file gives, or why it gives nothing."""
        try:
            return read(path, self.name, self.place.version, digest), ""
        except OSError:
            raise
        except TreekitError as error:
            return None, str(error)

    def _take(self, fresh: Served) -> Change:
        what: Literal["replaced", "loaded"] = "replaced" if self.served else "loaded"
        self.served, self._digest, self.vital = fresh, fresh.digest, True
        self._give("")
        return Change(self.name, fresh.version, what)

    def _give(self, reason: str) -> None:
        """Keep why the file does not serve; its folders are known now, and not later."""
        self.reason = self.public_reason = reason
        for folder in (self.place.path.parent, self._folder):
            for written in (f"{folder}{os.sep}", repr(f"{folder}{os.sep}")[1:-1]):
                self.public_reason = self.public_reason.replace(written, "")

    def _refused(self) -> Change:
        return Change(self.name, self.version, "kept" if self.served else "refused", self.reason)

    def _lose(self) -> None:
        self._stamp, self._settled, self._digest = None, False, ""
