"""The models of a server: found in files and folders, loaded, replaced and given out.

A folder holds ``NAME.treekit`` and ``NAME.onnx`` files, or, as Triton has it,
``NAME/VERSION/model.treekit`` (or ``.onnx``), VERSION being a whole number; the largest is
what is answered where a request names none.

Nothing here waits or serves: whoever asks `get` holds a model that is never altered, so a
reload neither loses nor mixes an answer.  `refresh` may run in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from treekit.data.table import near_names
from treekit.errors import DataError, TreekitError
from treekit.serve.errors import InvalidRequestError, NotFoundError, UnavailableError
from treekit.serve.loading import SUFFIXES, Stamp, read_served, stamp_of
from treekit.serve.served import Served

__all__ = ["Change", "Entry", "Repository"]

State = Literal["READY", "UNAVAILABLE"]

_VERSIONED = "model"
"""Stem of a file in a folder of versions."""


class Place(NamedTuple):
    """Where a version of a model is; `version` None: named by its digest."""

    path: Path
    version: str | None


class Entry(NamedTuple):
    """A line of the repository's index."""

    name: str
    version: str
    state: State
    reason: str


class Change(NamedTuple):
    """What a refresh did to one version of a model; `reason` says why one was refused.

    ``loaded``: it is new.  ``replaced``: its file changed.  ``kept``: its file changed to
    something that is refused, and the one before it goes on.  ``refused``: nothing serves.
    ``removed``: its file is gone.
    """

    name: str
    version: str
    what: Literal["loaded", "replaced", "kept", "refused", "removed", "unloaded"]
    reason: str = ""


@dataclass
class _Slot:
    """One file: what it gave, and what was last seen of it."""

    served: Served | None = None
    stamp: Stamp | None = None
    reason: str = ""


@dataclass
class _Name:
    """All versions of one model, by the version of their place."""

    slots: dict[str | None, _Slot] = field(default_factory=dict)
    wanted: bool = True
    """False after an unload, until a load."""


class Repository:
    """Models by name and version.

    Parameters
    ----------
    sources : iterable of Path
        Model files, and folders of them.
    read : callable
        `treekit.serve.loading.read_served`, or what does the same in a test.

    Attributes
    ----------
    listeners : list of callables
        Each is given the changes of a refresh, load or unload that made some.
    """

    def __init__(
        self,
        sources: Iterable[str | Path],
        read: Callable[[Path, str, str | None], tuple[Served, Stamp]] = read_served,
    ) -> None:
        self._sources = [Path(source) for source in sources]
        self._read = read
        self._names: dict[str, _Name] = {}
        self._by_name: Mapping[str, Mapping[str, Served]] = {}
        self._lock = threading.RLock()
        self.changed_at = time.time()
        self.listeners: list[Callable[[list[Change]], None]] = []

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
        models = self._by_name
        if name is None:
            name = self._only()
        versions = models.get(name)
        if versions is None:
            raise self._unknown(name)
        if version is None:
            return next(iter(versions.values()))
        found = versions.get(version)
        if found is None:
            raise NotFoundError(
                f"model {name!r} has no version {version!r}; it has: {', '.join(versions)}"
            )
        return found

    def versions(self, name: str) -> tuple[str, ...]:
        """The versions of a model that are loaded, the newest first."""
        return tuple(self._by_name.get(name, ()))

    @property
    def served(self) -> Iterator[Served]:
        """All versions of all models that are loaded."""
        for versions in self._by_name.values():
            yield from versions.values()

    @property
    def ready(self) -> bool:
        """Whether every model that is wanted answers."""
        with self._lock:
            return bool(self._names) and all(
                slot.served is not None
                for name in self._names.values()
                if name.wanted
                for slot in name.slots.values()
            )

    def index(self) -> list[Entry]:
        """Every model that is known, by name: loaded, unloaded or refused."""
        with self._lock:
            return [
                _entry(name, place, slot, known.wanted)
                for name, known in sorted(self._names.items())
                for place, slot in known.slots.items()
            ]

    def _only(self) -> str:
        if len(self._names) == 1:
            return next(iter(self._names))
        names = ", ".join(map(repr, self._names)) or "none"
        raise InvalidRequestError(f"the request names no model; there are: {names}")

    def _unknown(self, name: str) -> Exception:
        known = self._names.get(name)
        if known is None:
            return NotFoundError(f"there is no model {name!r}; {near_names(name, self._names)}")
        reason = next((slot.reason for slot in known.slots.values() if slot.reason), "")
        return UnavailableError(
            f"model {name!r} is not loaded" + (f": {reason}" if known.wanted and reason else "")
        )

    # -------------------------------------------------------------- altering

    def refresh(self) -> list[Change]:
        """Look at the files, and load what is new or has changed.

        A file that is refused leaves what served before it in its place.

        Raises
        ------
        DataError
            If two files would be one model.
        """
        with self._lock:
            places = self._places()
            changes = [
                change
                for name, found in places.items()
                for change in self._refresh_name(name, found)
            ]
            for name in [name for name in self._names if name not in places]:
                gone = self._names.pop(name)
                changes += [_removed(name, place, slot) for place, slot in gone.slots.items()]
            self._publish(changes)
            return changes

    def load(self, name: str) -> list[Change]:
        """Load a model, or load it again from its file, whether it changed or not.

        Raises
        ------
        NotFoundError
            If no file of this name is there.
        InvalidRequestError
            If none of its files can be loaded; what served before goes on.
        """
        with self._lock:
            places = self._places()
            if name not in places:
                raise NotFoundError(
                    f"there is no file of a model {name!r}; {near_names(name, places)}"
                )
            known = self._names.setdefault(name, _Name())
            known.wanted = True
            for slot in known.slots.values():
                slot.stamp = None
            changes = self._refresh_name(name, places[name])
            self._publish(changes)
            refused = [change for change in changes if change.what in ("kept", "refused")]
            if refused:
                raise InvalidRequestError(f"model {name!r} was not loaded: {refused[0].reason}")
            return changes

    def unload(self, name: str) -> list[Change]:
        """Take a model out of service until it is loaded again; its file stays.

        Raises
        ------
        NotFoundError
            If there is no such model.
        """
        with self._lock:
            known = self._names.get(name)
            if known is None:
                raise self._unknown(name)
            known.wanted = False
            changes = [
                Change(name, slot.served.version, "unloaded")
                for slot in known.slots.values()
                if slot.served is not None
            ]
            for slot in known.slots.values():
                slot.served, slot.stamp, slot.reason = None, None, "unloaded"
            self._publish(changes)
            return changes

    def _refresh_name(self, name: str, places: list[Place]) -> list[Change]:
        known = self._names.setdefault(name, _Name())
        there = {place.version for place in places}
        gone = [version for version in known.slots if version not in there]
        changes = [_removed(name, version, known.slots.pop(version)) for version in gone]
        if not known.wanted:
            return changes
        for path, version in places:
            slot = known.slots.setdefault(version, _Slot())
            try:
                if slot.stamp == stamp_of(path):
                    continue
                slot.stamp = stamp_of(path)
                fresh, slot.stamp = self._read(path, name, version)
            except (TreekitError, OSError) as error:
                slot.reason = str(error)
                old = slot.served
                what: Literal["kept", "refused"] = "refused" if old is None else "kept"
                serving = old.version if old else version or ""
                changes.append(Change(name, serving, what, str(error)))
                continue
            changes.append(Change(name, fresh.version, "replaced" if slot.served else "loaded"))
            slot.served, slot.reason = fresh, ""
        return changes

    def _publish(self, changes: list[Change]) -> None:
        """Put what is loaded in one new table, in one step: readers take no lock."""
        self._by_name = {
            name: {slot.served.version: slot.served for slot in _newest(known) if slot.served}
            for name, known in sorted(self._names.items())
            if any(slot.served for slot in known.slots.values())
        }
        self.changed_at = time.time()
        for listener in self.listeners if changes else ():
            listener(changes)

    def _places(self) -> dict[str, list[Place]]:
        """Where each model's versions are now."""
        found: dict[str, list[Place]] = {}
        for source in self._sources:
            for name, place in _places_in(source):
                twin = next((p for p in found.get(name, ()) if p.version == place.version), None)
                if twin is not None:
                    raise DataError(
                        f"{str(twin.path)!r} and {str(place.path)!r} are both model {name!r}; "
                        "rename one of them"
                    )
                found.setdefault(name, []).append(place)
        return found


def _newest(known: _Name) -> list[_Slot]:
    order = sorted(known.slots, key=lambda version: int(version or 0), reverse=True)
    return [known.slots[version] for version in order]


def _entry(name: str, place: str | None, slot: _Slot, wanted: bool) -> Entry:
    if slot.served is not None:
        return Entry(name, slot.served.version, "READY", slot.reason)
    return Entry(name, place or "", "UNAVAILABLE", slot.reason if wanted else "unloaded")


def _removed(name: str, place: str | None, slot: _Slot) -> Change:
    version = slot.served.version if slot.served else place or ""
    return Change(name, version, "removed")


def _places_in(source: Path) -> Iterator[tuple[str, Place]]:
    """Names and places of the models in a file or folder, in the order of their names."""
    if not source.is_dir():
        if source.suffix not in SUFFIXES:
            raise DataError(
                f"{str(source)!r} is no model: give {' or '.join(SUFFIXES)} files, or folders"
            )
        yield source.stem, Place(source, None)
        return
    for path in sorted(source.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_file() and path.suffix in SUFFIXES:
            yield path.stem, Place(path, None)
        elif path.is_dir():
            yield from ((path.name, place) for place in _versions_in(path))


def _versions_in(folder: Path) -> Iterator[Place]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name.isascii() and path.name.isdigit():
            for suffix in SUFFIXES:
                file = path / f"{_VERSIONED}{suffix}"
                if file.is_file():
                    yield Place(file, path.name)
                    break
