"""The models of a server: loaded, replaced, unloaded and given out.

Where they lie is `treekit.serve.models.places`' to know, when to read a file anew
`treekit.serve.models.slots`'.

Nothing here waits or serves.  Whoever asks reads one table that is never altered, and takes
no lock; a change puts another in its place in one step.  Whoever holds a model goes on with
it: so a reload neither loses nor mixes an answer, and a thread may load for as long as it
takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from treekit.data.table import near_names
from treekit.serve.errors import InvalidRequestError, NotFoundError
from treekit.serve.models.loading import read_served
from treekit.serve.models.places import Place, Places
from treekit.serve.models.served import Served
from treekit.serve.models.slots import Change, Read, Slot
from treekit.serve.models.table import Entry, Table, Versions, table_of

__all__ = ["Change", "Entry", "Repository"]

Do = Literal["load", "unload"]

_GONE = 2
"""Looks in a row that do not find a file, after which a patient one takes its model away:
tools that remove a file and then write it anew lose no answer."""


class Repository:
    """Models by name and version.

    Parameters
    ----------
    sources : iterable of Path
        Model files, and folders of them.
    read : callable
        `treekit.serve.models.loading.read_served`, or what does the same in a test.
    clock : callable
        Seconds that only go on.

    Attributes
    ----------
    everywhere : callable, optional
        Where several processes serve: does to all of them what `load` and `unload` are asked,
        and returns the changes of this one.
    """

    def __init__(
        self,
        sources: Iterable[str | Path],
        read: Read = read_served,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = Places([Path(source) for source in sources])
        self._read, self._clock = read, clock
        self._names: dict[str, Versions] = {}
        self._table = Table()
        self._lock = threading.RLock()
        self._begun = False
        self._tell: list[Callable[[list[Change]], None]] = []
        self.everywhere: Callable[[Do, str], list[Change]] | None = None
        self.changed_at = time.time()

    def subscribe(self, tell: Callable[[list[Change]], None]) -> None:
        """Have `tell` called after each look or request that changed something."""
        self._tell.append(tell)

    # ---------------------------------------------------------------- asking

    def get(self, name: str | None = None, version: str | None = None) -> Served:
        """The model of this name (None: the only one there is) and version (None: the newest).

        Raises
        ------
        NotFoundError
            For a name or version that is not there.
        UnavailableError
            For a model that is known and not loaded.
        """
        return self._table.get(name, version)

    def versions(self, name: str) -> tuple[str, ...]:
        """The versions of a model that are loaded, the newest first."""
        return tuple(self._table.models.get(name, ()))

    @property
    def served(self) -> Iterator[Served]:
        """All versions of all models that are loaded."""
        for versions in self._table.models.values():
            yield from versions.values()

    @property
    def ready(self) -> bool:
        """Whether every model answers that was there at the first look, or ever answered.

        One that is unloaded, or whose file is gone from a folder, is not missed; nor is one
        that comes later and is refused from the start, for its sake the others must not be
        taken out of service.  Without any model there is nothing to be ready for.
        """
        return self._table.ready

    def index(self) -> list[Entry]:
        """Every model that is known, by name: loaded, unloaded or refused."""
        return list(self._table.entries)

    # -------------------------------------------------------------- altering

    def refresh(self, *, patient: bool = False) -> list[Change]:
        """Look at the files, and load what is new or has changed.

        A file that is refused leaves what served before it in its place.

        Parameters
        ----------
        patient : bool
            Whether a file that is gone is given until the next look to come back.

        Raises
        ------
        DataError
            If two files would be one model: the one that was there first stays.
        OSError
            If a folder cannot be read: what it held goes on.  All others have been looked at.
        """
        with self._lock:
            found, troubles = self._places.look()
            if troubles and not self._begun:
                raise troubles[0]
            changes: list[Change] = []
            for name in sorted({*self._names, *found}):
                some = self._refresh_name(name, found.get(name, []), _GONE if patient else 1)
                changes += some
                if some and self._begun:  # each model as soon as it is there
                    self._publish(some)
            if not self._begun:
                self._begun = True
                self._publish(changes)
        if troubles:
            raise troubles[0]
        return changes

    def load(self, name: str) -> list[Change]:
        """Load a model, or load it again from its file, whether it changed or not.

        Raises
        ------
        NotFoundError
            If no file of this name is there.
        InvalidRequestError
            If one of its files cannot be loaded; what served before goes on.
        UnavailableError
            If a process that serves, too, does not confirm it.
        """
        return self._do("load", name)

    def unload(self, name: str) -> list[Change]:
        """Take a model out of service until it is loaded again; its file stays.

        Raises
        ------
        NotFoundError
            If there is no such model.
        UnavailableError
            If a process that serves, too, does not confirm it.
        """
        return self._do("unload", name)

    def _do(self, what: Do, name: str) -> list[Change]:
        return (self.everywhere or self.do_here)(what, name)

    def do_here(self, what: Do, name: str) -> list[Change]:
        """Load or unload in this process alone."""
        with self._lock:
            return self._load(name) if what == "load" else self._unload(name)

    def _load(self, name: str) -> list[Change]:
        found, _ = self._places.look()
        if name not in found:
            raise NotFoundError(f"there is no file of a model {name!r}; {near_names(name, found)}")
        known = self._names.setdefault(name, Versions())
        wanted, known.wanted = known.wanted, True
        for slot in known.slots.values():
            slot.forget()
        changes = self._refresh_name(name, found[name], 1)
        refused = [change for change in changes if change.what in ("kept", "refused")]
        if refused and not any(slot.served for slot in known.slots.values()):
            known.wanted = wanted
        self._publish(changes)
        if refused:
            raise InvalidRequestError(f"model {name!r} was not loaded: {known.why}")
        return changes

    def _unload(self, name: str) -> list[Change]:
        known = self._names.get(name)
        if known is None:
            raise self._table.unknown(name)
        known.wanted = False
        changes = [
            Change(name, slot.version, "unloaded") for slot in known.slots.values() if slot.served
        ]
        known.slots = {
            version: Slot(name, slot.place, vital=True) for version, slot in known.slots.items()
        }
        self._publish(changes)
        return changes

    def refused_files(self) -> list[str]:
        """Why files that the server was told by name give nothing to serve."""
        with self._lock:
            return [
                slot.reason
                for known in self._names.values()
                for slot in known.slots.values()
                if slot.place.given and slot.served is None and slot.reason
            ]

    def leave_out(self, names: Iterable[str]) -> None:
        """Take these for unloaded before the first look: another process was told so."""
        with self._lock:
            for name in names:
                self._names.setdefault(name, Versions()).wanted = False

    def _refresh_name(self, name: str, places: list[Place], looks: int) -> list[Change]:
        known = self._names.setdefault(name, Versions())
        changes = self._sweep(known, {place.version for place in places}, looks)
        for place in places:
            slot = known.slots.get(place.version)
            if slot is None:
                slot = known.slots[place.version] = Slot(name, place, vital=not self._begun)
            slot.place, slot.missed = place, 0
            change = slot.look(self._read, self._clock()) if known.wanted else None
            if change is not None:
                changes.append(change)
        if not known.slots and known.wanted:  # else: still unwanted if it comes back
            del self._names[name]
        return changes

    @staticmethod
    def _sweep(known: Versions, there: set[str | None], looks: int) -> list[Change]:
        """Take away what was not there for so many looks."""
        changes = []
        for version, slot in list(known.slots.items()):
            slot.missed += version not in there
            if slot.missed >= looks:
                changes.append(Change(slot.name, slot.version, "removed"))
                del known.slots[version]
        return changes

    def _publish(self, changes: list[Change]) -> None:
        """Put what is true now in one new table, in one step, and tell of what changed."""
        self._table = table_of(self._names)
        if changes:
            self.changed_at = time.time()
            for tell in self._tell:
                tell(changes)
