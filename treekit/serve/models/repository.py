"""Repository of served models: locate, load, replace and unload model files.

Lookups read one immutable table without a lock; a change replaces the table atomically.  Requests
in progress keep the model they started with, so a reload never drops a request or mixes versions,
and loading in a thread may take any time.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.table import near_names
from treekit.errors import (
    DataError,
    ModelFileAccessError,
    ModelFileError,
    ModelFileNotFoundError,
    TreekitError,
)
from treekit.serve.errors import InvalidRequestError, NotFoundError, ServeError, UnavailableError
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Spec, Tensor, numpy_type

__all__ = [
    "SUFFIXES",
    "Change",
    "Entry",
    "Place",
    "Places",
    "Read",
    "Repository",
    "Seen",
    "Slot",
    "Stamp",
    "Table",
    "Versions",
    "look_at",
    "read_served",
    "stamp_of",
    "table_of",
    "unsteady",
]


# ---------------------------------------------------------------- loading
# Each model is loaded, validated and tested with a prediction before it is served.

SUFFIXES = (".treekit", ".onnx")

_VERSION_DIGITS = 12
_TRIES = 3
_PROBE_ROWS = (1, 2)
"""One row and several rows use different kernels, both compiled here instead of by a request."""

Stamp = tuple[int, ...]
"""Identity of a file's content: device, inode, modification times and size."""


class Seen(NamedTuple):
    """State of a file: SHA-256 of its content, and its stamp."""

    digest: str
    stamp: Stamp


def stamp_of(path: Path) -> Stamp:
    """Return the current stamp of a file; FileNotFoundError if it does not exist."""
    return _stamp(path.stat())


def _stamp(found: Any) -> Stamp:
    # Includes ctime: a copy that preserves times (cp -p), of the same path and size, may also
    # have the same inode number.
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def look_at(path: Path) -> Seen:
    """Return a consistent digest and stamp of a file.

    Raises
    ------
    ModelFileError
        If the file keeps changing.
    ModelFileNotFoundError, ModelFileAccessError
        If the file does not exist or cannot be read; both are also OSErrors.
    """
    try:
        for _ in range(_TRIES):
            with path.open("rb") as stream:
                before = _stamp(os.fstat(stream.fileno()))
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                if _stamp(os.fstat(stream.fileno())) == before:
                    return Seen(digest, before)
    except FileNotFoundError:
        raise ModelFileNotFoundError(f"there is no model file {str(path)!r}") from None
    except OSError as error:
        raise ModelFileAccessError(
            f"cannot read model file {str(path)!r}: {error.strerror or error}"
        ) from error
    raise unsteady(path)


def unsteady(path: Path) -> ModelFileError:
    """Return the error for a file that changes while it is read."""
    return ModelFileError(
        f"{str(path)!r} changes while it is read; write a complete file, then rename it"
    )


def read_served(path: Path, name: str, version: str | None, digest: str) -> Served:
    """Load the model in a file and test it with a prediction.

    Parameters
    ----------
    path : Path
        A ``.treekit`` or ``.onnx`` file.
    name : str
    version : str, optional
        Default: the first digits of the digest.
    digest : str
        Digest returned by `look_at`.

    Raises
    ------
    ModelFileError
        If the file is not a model or the prediction fails.
    """
    try:
        served = _read(path, name, version or digest[:_VERSION_DIGITS], digest)
        _ask(served)
    except OSError:
        raise
    except ModelFileError as error:
        raise ModelFileError(_named(path, str(error))) from error
    # Any failure of a library on an untrusted file must not end the thread that checks files.
    except Exception as error:
        reason = str(error) if isinstance(error, TreekitError) else f"{error!r}"
        raise ModelFileError(_named(path, reason)) from error
    return served


def _named(path: Path, reason: str) -> str:
    """Return the reason prefixed with the file, unless it includes it."""
    return reason if str(path) in reason else f"{str(path)!r} cannot be served: {reason}"


def _read(path: Path, name: str, version: str, digest: str) -> Served:
    if path.suffix == ".onnx":
        from treekit.serve.models.onnx_model import read_onnx_served

        return read_onnx_served(path, name, version, digest)
    from treekit.model.model_file import load
    from treekit.serve.models.treekit_model import TreekitServed

    return TreekitServed(name, version, digest, load(path))


def _ask(served: Served) -> None:
    """Predict the default outputs, and the leaf (a separate kernel), for sample rows."""
    known = {spec.name for spec in served.outputs}
    wanted = (*served.usual, *({"leaf"} & known))
    ours = served.model is not None
    try:
        for rows in _PROBE_ROWS if ours else (1,):
            tensors = [_cells(served, spec, rows) for spec in served.inputs]
            for output in served.answer(served.read(tensors), wanted):
                if not output.cells.size:
                    raise ModelFileError(f"its output {output.name!r} of {rows} rows is empty")
    except ServeError:
        if ours:
            raise
        # A foreign graph may rightly reject a row of zeros and empty strings.


def _cells(served: Served, spec: Spec, rows: int) -> Tensor:
    """Return cells that every policy accepts: zeros and first categories."""
    shape = tuple(rows if place == 0 and n < 0 else max(n, 1) for place, n in enumerate(spec.shape))
    dtype = numpy_type(spec.name, spec.datatype)
    cells: npt.NDArray[Any] = np.zeros(shape, dtype)
    if dtype.hasobject:
        cells[...] = _first_level(served, spec.name)
    return Tensor(spec.name, spec.datatype, cells)


def _first_level(served: Served, name: str) -> str:
    columns = served.model.schema.columns if served.model is not None else ()
    return next((c.levels[0] for c in columns if c.name == name and c.levels), "")


# ---------------------------------------------------------------- repository

Do = Literal["load", "unload"]

_GONE = 2
"""Consecutive checks without the file after which a patient refresh removes its model, so that
tools that remove and rewrite a file cause no failed requests."""


class Repository:
    """Repository of models by name and version.

    Parameters
    ----------
    sources : iterable of Path
        Model files and folders of model files.
    read : callable
        Function that loads a model file, `read_served` unless in tests.
    clock : callable
        Monotonic clock in seconds.

    Attributes
    ----------
    everywhere : callable, optional
        With several worker processes: function that executes `load` and `unload` in all of
        them and returns the changes of this one.
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
        """Call `tell` with the changes after each refresh or request that changed models."""
        self._tell.append(tell)

    # ---------------------------------------------------------------- lookup

    def get(self, name: str | None = None, version: str | None = None) -> Served:
        """Return a model by name (None: the only one) and version (None: the newest).

        Raises
        ------
        NotFoundError
            If the name or version is unknown.
        UnavailableError
            If the model is known but not loaded.
        """
        return self._table.get(name, version)

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the loaded versions of a model, newest first."""
        return tuple(self._table.models.get(name, ()))

    @property
    def served(self) -> Iterator[Served]:
        """All loaded versions of all models."""
        for versions in self._table.models.values():
            yield from versions.values()

    @property
    def ready(self) -> bool:
        """Whether all models found at startup, or ever loaded, are served.

        Unloaded models and models whose file was removed from a folder are not required; nor
        are models added later that failed to load from the start, as they must not take the
        others out of service.  Without any model the repository is not ready.
        """
        return self._table.ready

    def index(self) -> list[Entry]:
        """Return all known models by name: loaded, unloaded or rejected."""
        return list(self._table.entries)

    # --------------------------------------------------------------- changes

    def refresh(self, *, patient: bool = False) -> list[Change]:
        """Check the files and load new and changed ones.

        If a file is rejected, the previous version continues to be served.

        Parameters
        ----------
        patient : bool
            Whether to wait for the next check before removing the model of a missing file.

        Raises
        ------
        DataError
            If two files have the same model name; the first one is kept.
        OSError
            If a folder cannot be read; its models are kept, and all others were checked.
        """
        with self._lock:
            found, troubles = self._places.look()
            if troubles and not self._begun:
                raise troubles[0]
            changes: list[Change] = []
            for name in sorted({*self._names, *found}):
                some = self._refresh_name(name, found.get(name, []), _GONE if patient else 1)
                changes += some
                if some and self._begun:  # publish each model as soon as it is loaded
                    self._publish(some)
            if not self._begun:
                self._begun = True
                self._publish(changes)
        if troubles:
            raise troubles[0]
        return changes

    def load(self, name: str) -> list[Change]:
        """Load a model, or reload it even if its file did not change.

        Raises
        ------
        NotFoundError
            If there is no file of this name.
        InvalidRequestError
            If one of its files cannot be loaded; the previous version continues to be served.
        UnavailableError
            If a worker process does not confirm it.
        """
        return self._do("load", name)

    def unload(self, name: str) -> list[Change]:
        """Unload a model until it is loaded again; its file is kept.

        Raises
        ------
        NotFoundError
            If the model does not exist.
        UnavailableError
            If a worker process does not confirm it.
        """
        return self._do("unload", name)

    def _do(self, what: Do, name: str) -> list[Change]:
        return (self.everywhere or self.do_here)(what, name)

    def do_here(self, what: Do, name: str) -> list[Change]:
        """Load or unload a model in this process only."""
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
        """Return the reasons why explicitly given files cannot be served."""
        with self._lock:
            return [
                slot.reason
                for known in self._names.values()
                for slot in known.slots.values()
                if slot.place.given and slot.served is None and slot.reason
            ]

    def leave_out(self, names: Iterable[str]) -> None:
        """Mark models as unloaded before the first refresh, as in the other processes."""
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
        if not known.slots and known.wanted:  # an unloaded model stays so if its file returns
            del self._names[name]
        return changes

    @staticmethod
    def _sweep(known: Versions, there: set[str | None], looks: int) -> list[Change]:
        """Remove versions whose file was missing in `looks` consecutive checks."""
        changes = []
        for version, slot in list(known.slots.items()):
            slot.missed += version not in there
            if slot.missed >= looks:
                changes.append(Change(slot.name, slot.version, "removed"))
                del known.slots[version]
        return changes

    def _publish(self, changes: list[Change]) -> None:
        """Replace the lookup table atomically and notify the subscribers."""
        self._table = table_of(self._names)
        if changes:
            self.changed_at = time.time()
            for tell in self._tell:
                tell(changes)


# ---------------------------------------------------------------- entries
# State of one model file over time: the loaded model, the last seen content, and reload rules.

Read = Callable[[Path, str, str | None, str], Served]
"""Signature of `read_served`."""

_SETTLED = 2.0
"""Seconds after which an unchanged stamp is trusted.  Before, the file may have been rewritten
within one tick of the file system's clock: 4 ms, on some file systems 1 s or 2 s."""


class Change(NamedTuple):
    """Change of one version of a model; `reason` is the reason of a rejection.

    ``loaded``: new.  ``replaced``: its file changed.  ``kept``: its changed file was rejected and
    the previous version is still served.  ``refused``: rejected, and nothing is served.
    ``removed``: its file was removed.  ``unloaded``: unloaded by request.
    """

    name: str
    version: str
    what: Literal["loaded", "replaced", "kept", "refused", "removed", "unloaded"]
    reason: str = ""


class Slot:
    """File of one model version, and the model loaded from it.

    Parameters
    ----------
    name : str
    place : Place
    vital : bool
        Whether the server is not ready while this version is not loaded.

    Attributes
    ----------
    served : Served, optional
        Model currently served.
    reason : str
        Reason why the current file was rejected; empty if it is served.
    public_reason : str
        Reason for clients, without folders of the server.
    missed : int
        Consecutive checks that did not find the file.
    """

    def __init__(self, name: str, place: Place, *, vital: bool) -> None:
        self.name, self.place, self.vital = name, place, vital
        self.served: Served | None = None
        self.reason = self.public_reason = ""
        self.missed = 0
        self._folder = place.path.parent  # with links resolved, once read
        self._stamp: Stamp | None = None
        self._since = 0.0
        self._settled = False
        self._digest = ""  # of the content that was loaded or rejected last
        self._anew = False

    @property
    def version(self) -> str:
        """Version of the served model, or of its place."""
        return self.served.version if self.served else self.place.version or ""

    def forget(self) -> None:
        """Force the next check to read the file and to report the result."""
        self._lose()
        self._anew = True

    def look(self, read: Read, now: float) -> Change | None:
        """Check the file; load it if its content changed.

        Rejected content is not loaded again.  A file that cannot be opened is retried at each
        check, which is cheap, and reported once.

        Parameters
        ----------
        read : callable
        now : float
            Current time of a monotonic clock in seconds.
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
            # Resolve links, to notice one that is replaced and restored.
            path = Path(os.path.realpath(self.place.path))  # resolve() raises on link cycles
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
        """Load the file; return the model, or the reason why it was rejected."""
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
        """Set the reason of a rejection, and remove the current folders from the public one."""
        self.reason = self.public_reason = reason
        for folder in (self.place.path.parent, self._folder):
            for written in (f"{folder}{os.sep}", repr(f"{folder}{os.sep}")[1:-1]):
                self.public_reason = self.public_reason.replace(written, "")

    def _refused(self) -> Change:
        return Change(self.name, self.version, "kept" if self.served else "refused", self.reason)

    def _lose(self) -> None:
        self._stamp, self._settled, self._digest = None, False, ""


# ---------------------------------------------------------------- lookup table
# Immutable snapshot of the repository, replaced atomically.

State = Literal["READY", "UNAVAILABLE"]


class Entry(NamedTuple):
    """Line of the repository's index."""

    name: str
    version: str
    state: State
    reason: str


@dataclass
class Versions:
    """All versions of one model, by the version of their location."""

    slots: dict[str | None, Slot] = field(default_factory=dict)
    wanted: bool = True
    """False after an unload, until a load."""

    @property
    def newest_first(self) -> list[Slot]:
        """Slots sorted by version number, largest first."""
        order = sorted(self.slots, key=lambda version: int(version or 0), reverse=True)
        return [self.slots[version] for version in order]

    @property
    def why(self) -> str:
        """Reason for clients why no version is served."""
        if not self.wanted:
            return ""
        return next((slot.public_reason for slot in self.slots.values() if slot.reason), "")

    @property
    def complete(self) -> bool:
        """Whether all required versions are loaded."""
        return not self.wanted or all(
            slot.served is not None or not slot.vital for slot in self.slots.values()
        )


class Table(NamedTuple):
    """Snapshot of the repository.

    ``models``: loaded models by name and version, newest first.  ``absent``: names without a
    loaded version, with the reason.
    """

    models: Mapping[str, Mapping[str, Served]] = {}
    absent: Mapping[str, str] = {}
    entries: tuple[Entry, ...] = ()
    ready: bool = False

    def get(self, name: str | None, version: str | None) -> Served:
        """Return a model; see `Repository.get`."""
        if name is None:
            name = self._only()
        versions = self.models.get(name)
        if versions is None:
            raise self.unknown(name)
        if version is None:
            return next(iter(versions.values()))
        found = versions.get(version)
        if found is None:
            raise NotFoundError(
                f"model {name!r} has no version {version!r}; it has: {', '.join(versions)}"
            )
        return found

    def _only(self) -> str:
        names = [*self.models, *self.absent]
        if len(names) == 1:
            return names[0]
        listed = ", ".join(
            f"{name!r}" if name in self.models else f"{name!r} (not loaded)"
            for name in sorted(names)
        )
        if not names:
            raise NotFoundError("this server has no model yet")
        raise InvalidRequestError(
            f"the request does not name a model; give one of {listed}, as in /predict?model=NAME"
        )

    def unknown(self, name: str) -> Exception:
        """Return the error for a name without a loaded version."""
        reason = self.absent.get(name)
        if reason is None:
            return NotFoundError(
                f"there is no model {name!r}; {near_names(name, [*self.models, *self.absent])}"
            )
        return UnavailableError(f"model {name!r} is not loaded" + (f": {reason}" if reason else ""))


def table_of(all_names: Mapping[str, Versions]) -> Table:
    """Build the lookup table."""
    names = {name: known for name, known in sorted(all_names.items()) if known.slots}
    models = {
        name: {slot.served.version: slot.served for slot in known.newest_first if slot.served}
        for name, known in names.items()
    }
    return Table(
        models={name: versions for name, versions in models.items() if versions},
        absent={name: names[name].why for name, versions in models.items() if not versions},
        entries=tuple(
            _entry(slot, known.wanted) for known in names.values() for slot in known.newest_first
        ),
        ready=bool(names) and all(known.complete for known in names.values()),
    )


def _entry(slot: Slot, wanted: bool) -> Entry:
    if slot.served is not None:
        return Entry(slot.name, slot.version, "READY", slot.public_reason)
    reason = slot.public_reason if wanted else "unloaded"
    return Entry(slot.name, slot.version, "UNAVAILABLE", reason)


# ---------------------------------------------------------------- locations
# Files and folders with models.
#
# A folder contains ``NAME.treekit`` and ``NAME.onnx`` files or, as in Triton,
# ``NAME/VERSION/model.treekit`` (or ``.onnx``), where VERSION is an integer without leading
# zeros.  Names that begin with a dot are ignored: drafts, and the folders that the links of a
# Kubernetes ConfigMap point to.

_VERSIONED = "model"
"""Stem of a model file in a version folder."""


class Place(NamedTuple):
    """Location of a model version.

    Attributes
    ----------
    path : Path
    version : str, optional
        Version number; None if the version is the start of the digest.
    given : bool
        Whether the file was given explicitly and is required; files in folders may be removed.
    """

    path: Path
    version: str | None
    given: bool = False


Found = dict[str, list[Place]]
"""Locations of each model by name."""


class Places:
    """Finds models in files and folders.

    Parameters
    ----------
    sources : sequence of Path
        Model files and folders of model files.
    """

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources = sources
        self._last: dict[Path, list[tuple[str, Place]]] = {}
        self._taken: set[Path] = set()

    def look(self) -> tuple[Found, list[Exception]]:
        """Return the current locations of models, and the errors of the search.

        A folder that cannot be read, as on a detached disk, keeps its last known models.  If
        two locations have the same model name, the first one is kept.
        """
        found: Found = {}
        troubles: list[Exception] = []
        pairs: list[tuple[str, Place]] = []
        for source in self._sources:
            try:
                self._last[source] = list(_places_in(source))
            except (DataError, OSError) as error:
                troubles.append(error)
            pairs += self._last.get(source, ())
        for name, place in sorted(pairs, key=lambda pair: pair[1].path not in self._taken):
            twin = _twin(place, found.get(name, ()))
            if twin is None:
                found.setdefault(name, []).append(place)
            elif twin.path != place.path:
                troubles.append(
                    DataError(
                        f"{str(twin.path)!r} and {str(place.path)!r} are both model {name!r}; "
                        "rename one of them"
                    )
                )
        self._taken = {place.path for places in found.values() for place in places}
        return found, troubles


def _twin(place: Place, others: Sequence[Place]) -> Place | None:
    """Return a conflicting location: same version, or one with and one without a version."""
    for other in others:
        if other.version == place.version or None in (other.version, place.version):
            return other
    return None


def _places_in(source: Path) -> Iterator[tuple[str, Place]]:
    """Yield names and locations of the models in a file or folder."""
    if source.suffix in SUFFIXES and not source.is_dir():
        yield source.stem, Place(source, None, given=True)
        return
    if source.exists() and not source.is_dir():
        raise DataError(
            f"{str(source)!r} is not a model; give {' or '.join(SUFFIXES)} files, or folders"
        )
    for path in sorted(source.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from ((path.name, place) for place in _versions_in(path))
        elif path.suffix in SUFFIXES:
            yield path.stem, Place(path, None)


def _versions_in(folder: Path) -> Iterator[Place]:
    for path in sorted(folder.iterdir()):
        name = path.name
        if name.isascii() and name.isdigit() and not name.startswith("0") and path.is_dir():
            for suffix in SUFFIXES:
                file = path / f"{_VERSIONED}{suffix}"
                if file.is_file():
                    yield Place(file, name)
                    break
