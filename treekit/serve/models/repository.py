"""Repository of served models: locate, load, replace and unload model files.

Lookups read one immutable table without a lock; a change replaces the table atomically.  Requests
in progress keep the model they started with, so a reload never drops a request or mixes versions,
and loading in a thread may take any time.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from treekit.data.table import suggest_names
from treekit.errors import (
    DataError,
    ModelFileAccessError,
    ModelFileError,
    ModelFileNotFoundError,
    TreekitError,
)
from treekit.model.model_file import parse_model_file
from treekit.serve.errors import InvalidRequestError, NotFoundError, UnavailableError
from treekit.serve.models.model_copies import ModelCopies, ModelCopy
from treekit.serve.models.served_model import Served

# ---------------------------------------------------------------- loading
# Each model is loaded, validated and tested with a prediction before it is served.  A file is read
# once: what is loaded are the bytes of which the digest was computed.

SUFFIX = ".treekit"
"""Suffix of model files."""

_VERSION_DIGITS = 12
_TEST_BATCH_ROWS = (1, 2)
"""One row and several rows use different kernels, both compiled here instead of by a request."""

Stamp = tuple[int, ...]
"""Identity of a file's content: device, inode, modification times and size."""


def _make_stamp(found: Any) -> Stamp:
    # Includes ctime: a copy that preserves times (cp -p), of the same path and size, may also
    # have the same inode number.
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def read_file(path: Path) -> tuple[Stamp, bytes]:
    """Return the stamp and the content of a file.

    Raises
    ------
    ModelFileError
        If the file changes while it is read.
    ModelFileNotFoundError, ModelFileAccessError
        If the file does not exist or cannot be read; both are also OSErrors.
    """
    try:
        with path.open("rb") as stream:
            stamp = _make_stamp(os.fstat(stream.fileno()))
            data = stream.read()
            is_changed = _make_stamp(os.fstat(stream.fileno())) != stamp
    except FileNotFoundError:
        raise ModelFileNotFoundError(f"there is no model file {str(path)!r}") from None
    except OSError as error:
        raise ModelFileAccessError(
            f"cannot read model file {str(path)!r}: {error.strerror or error}"
        ) from error
    if is_changed:
        raise ModelFileError(
            f"{str(path)!r} changes while it is read; write a complete file, then rename it"
        )
    return stamp, data


def read_served(data: bytes, path: Path, name: str, version: str | None, digest: str) -> Served:
    """Load the model in the content of a file and test it with a prediction.

    Parameters
    ----------
    data : bytes
    path : Path
        For error messages.
    name : str
    version : str, optional
        Default: the first digits of the digest.
    digest : str
        SHA-256 of `data`.

    Raises
    ------
    ModelFileError
        If the file is not a model or the prediction fails.
    """
    try:
        served = Served(
            name, version or digest[:_VERSION_DIGITS], digest, parse_model_file(data, path)
        )
        for rows in _TEST_BATCH_ROWS:
            inputs = served.parse_inputs(served.make_sample_inputs(rows))
            served.compute_outputs(inputs, (*served.default_outputs, "leaf"))  # a separate kernel
    # Any failure of a library on an untrusted file must not end the thread that checks files.
    except Exception as error:
        reason = str(error) if isinstance(error, TreekitError) else f"{error!r}"
        if str(path) not in reason:
            reason = f"{str(path)!r} cannot be served: {reason}"
        raise ModelFileError(reason) from error
    return served


# ---------------------------------------------------------------- repository

Do = Literal["load", "unload"]

_PATIENT_CHECKS = 2
"""Consecutive checks without the file after which a patient refresh removes its model, so that
tools that remove and rewrite a file cause no failed requests."""

_READING_SECONDS = 1.0
"""Seconds that a patient refresh waits in all for files to be read."""

_MAX_LATE_READINGS = 4
"""Files being read with which a patient refresh begins no further ones after its time."""


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
    copies : ModelCopies, optional
        Copies of the files of served models, for workers that start later.
    """

    def __init__(
        self,
        sources: Iterable[str | Path],
        read: Read = read_served,
        clock: Callable[[], float] = time.monotonic,
        copies: ModelCopies | None = None,
    ) -> None:
        self._locations = ModelFinder([Path(source) for source in sources])
        self._read, self._clock, self._copies = read, clock, copies
        self._entries: dict[str, dict[str | None, ModelEntry]] = {}
        self._unloaded: set[str] = set()
        self._table = LookupTable()
        self._lock = threading.RLock()
        self._is_started = False
        self._subscribers: list[Callable[[list[Change]], None]] = []

    def subscribe(self, tell: Callable[[list[Change]], None]) -> None:
        """Call `tell` with the changes after each refresh or request that changed models."""
        self._subscribers.append(tell)

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

        Not required are unloaded models, models whose file was removed from a folder, and models
        added later that were never loaded, so that one bad file does not stop the others.  False
        if no model is known, or none is served and one was not unloaded.
        """
        return self._table.ready

    def index(self, *, ready: bool = False) -> list[IndexEntry]:
        """Return all known models by name: loaded, unloaded or rejected; or only `ready` ones."""
        return [entry for entry in self._table.entries if entry.state == "READY" or not ready]

    # --------------------------------------------------------------- changes

    def restore(self) -> None:
        """Load the copies, before the first refresh, as if this worker had served them before."""
        for copy in self._copies.read_all() if self._copies else ():
            name, path = os.fsdecode(copy.name), Path(os.fsdecode(copy.path))
            entry = ModelEntry(name, ModelLocation(path, copy.version, copy.is_explicit))
            if entry.restore(self._read, copy.data):
                self._entries.setdefault(name, {})[copy.version] = entry
                self._locations.remember(name, entry.location)

    def refresh(self, *, patient: bool = False) -> list[Change]:
        """Check the files and load new and changed ones.

        If a file is rejected, the previous version continues to be served.

        Parameters
        ----------
        patient : bool
            If True, leave removing the model of a missing file, and loading a file that takes
            long to read, to the next check, so that other models are not delayed.

        Raises
        ------
        DataError
            If two files have the same model name; the first one is kept.
        OSError
            If a folder cannot be read; its models are kept, and all others were checked.
        """
        # Restored models may have been served for long: their files may be gone for a moment.
        is_restored = not self._is_started and bool(self._entries)
        checks = _PATIENT_CHECKS if patient or is_restored else 1
        deadline = time.monotonic() + _READING_SECONDS if patient else None
        with self._lock:
            found, troubles = self._locations.find_models()
            if troubles and not self._is_started and not self._entries:
                raise troubles[0]
            changes: list[Change] = []
            for name in sorted({*self._entries, *found}):
                was_reading = bool(self._list_readings(name))
                some = self._refresh_model(name, found.get(name, []), checks, deadline)
                changes += some
                if self._is_started and (some or was_reading or self._list_readings(name)):
                    self._publish_table(some)  # each model as soon as it is loaded
            if not self._is_started:
                self._is_started = True
                self._publish_table(changes)
        if troubles:
            raise troubles[0]
        return changes

    def load(self, name: str, seconds: float = math.inf) -> list[Change]:
        """Load a model, or reload it even if its file did not change.

        Parameters
        ----------
        name : str
        seconds : float
            Seconds to wait for its files to be read.

        Raises
        ------
        NotFoundError
            If there is no file of this name.
        InvalidRequestError
            If one of its files cannot be loaded; the previous version continues to be served.
        UnavailableError
            If its files are still being read; a later request or check completes that.
        """
        stop = time.monotonic() + seconds
        with self._lock:
            found, _ = self._locations.find_models()
            if name not in found:
                raise NotFoundError(
                    f"there is no file of a model {name!r}; {suggest_names(name, found)}"
                )
            was_unloaded = name in self._unloaded
            self._unloaded.discard(name)
            for entry in self._list_entries(name):
                if entry.reading is None or not entry.is_forced:  # else of an earlier request
                    entry.force_reload()
            changes = self._refresh_model(name, found[name], 1, 0.0)
            readings = self._list_readings(name)
        left = None if seconds == math.inf else max(stop - time.monotonic(), 0.0)
        if wait(readings, left).not_done:
            raise UnavailableError(
                f"model {name!r} is not loaded yet: its file is still being read; ask again later"
            )
        with self._lock:
            changes += self._complete_readings(name)
            entries = self._list_entries(name)
            refused = [entry.public_reason for entry in entries if entry.reason]
            if refused and was_unloaded and not any(entry.served for entry in entries):
                self._unloaded.add(name)
            self._publish_table(changes)
            if refused:
                raise InvalidRequestError(f"model {name!r} was not loaded: {refused[0]}")
            return changes

    def unload(self, name: str) -> list[Change]:
        """Unload a model until it is loaded again; its file is kept.

        Raises
        ------
        NotFoundError
            If the model does not exist.
        """
        with self._lock:
            entries = self._list_entries(name)
            if not entries and name not in self._unloaded:
                raise self._table.make_error(name)
            self._unloaded.add(name)
            changes = [Change(name, own.version, "unloaded") for own in entries if own.served]
            for entry in entries:
                entry.forget()
                entry.is_required = True
            self._publish_table(changes)
            return changes

    def _list_entries(self, name: str) -> list[ModelEntry]:
        return list(self._entries.get(name, {}).values())

    def _list_all_entries(self) -> list[ModelEntry]:
        return [entry for own in self._entries.values() for entry in own.values()]

    def refused_files(self) -> list[str]:
        """Return the reasons why explicitly given files cannot be served."""
        with self._lock:
            return [
                entry.reason
                for entry in self._list_all_entries()
                if entry.location.is_explicit and entry.served is None and entry.reason
            ]

    def _list_readings(self, name: str) -> list[Future[Content]]:
        return [entry.reading for entry in self._list_entries(name) if entry.reading]

    def _count_readings(self) -> int:
        return sum(entry.reading is not None for entry in self._list_all_entries())

    def _complete_readings(self, name: str) -> list[Change]:
        """Use the content of the files of a model that have been read."""
        entries = [own for own in self._list_entries(name) if own.reading and own.reading.done()]
        some = [own.check_file(self._read, self._clock(), self._copies, 0.0) for own in entries]
        return [change for change in some if change is not None]

    def _refresh_model(
        self, name: str, places: list[ModelLocation], checks: int, deadline: float | None
    ) -> list[Change]:
        """Check the files of a model, and remove versions that `checks` checks did not find.

        Files that are not read at the `deadline` are left to the next check.
        """
        changes = []
        entries = self._entries.setdefault(name, {})
        there = {place.version for place in places}
        for version, entry in list(entries.items()):
            entry.n_missed = 0 if version in there else entry.n_missed + 1
            if entry.n_missed >= checks:
                changes.append(Change(name, entry.version, "removed"))
                del entries[version]
                if self._copies is not None:
                    self._copies.remove(name, version)
        for place in places:
            if place.version not in entries:
                entries[place.version] = ModelEntry(name, place, is_required=not self._is_started)
            entry = entries[place.version]
            entry.location = place
            if name in self._unloaded:  # stays so if its file returns
                continue
            is_late = deadline is not None and 0.0 < deadline < time.monotonic()
            if not is_late or entry.reading or self._count_readings() < _MAX_LATE_READINGS:
                change = entry.check_file(self._read, self._clock(), self._copies, deadline)
                changes += [] if change is None else [change]
        if not entries:
            del self._entries[name]
        return changes

    def _publish_table(self, changes: list[Change]) -> None:
        """Replace the lookup table atomically and notify the subscribers."""
        self._table = build_table(self._list_all_entries(), self._unloaded)
        for tell in self._subscribers if changes else ():
            tell(changes)


# ---------------------------------------------------------------- entries
# State of one model file over time: the loaded model, the last seen content, and reload rules.

Read = Callable[[bytes, Path, str, str | None, str], Served]
"""Signature of `read_served`."""


class Content(NamedTuple):
    """Content of a model file, and the model in it.

    Attributes
    ----------
    folder : Path
        Folder of the file, with links resolved.
    stamp : tuple of int
    digest : str
    data : bytes
    served : Served or TreekitError, optional
        The model or the reason of its rejection; None if it was known and not loaded again.
    """

    folder: Path
    stamp: Stamp
    digest: str
    data: bytes
    served: Served | TreekitError | None


def _read_content(read: Read, location: ModelLocation, name: str, known: set[str]) -> Content:
    """Read a file and load the model in it unless its digest is one of those `known`."""
    path = Path(os.path.realpath(location.path))  # resolve() raises on link cycles
    stamp, data = read_file(path)
    digest = hashlib.sha256(data).hexdigest()
    served: Served | TreekitError | None = None
    if digest not in known:
        try:
            served = read(data, path, name, location.version, digest)
        except TreekitError as error:
            served = error
    return Content(path.parent, stamp, digest, data, served)


def _run_in_thread(function: Callable[..., Content], *given: Any) -> Future[Content]:
    """Call a function in a thread of its own, which does not delay the end of the process."""
    future: Future[Content] = Future()

    def run() -> None:
        try:
            future.set_result(function(*given))
        except BaseException as error:  # noqa: BLE001 - raised again where the result is used
            future.set_exception(error)

    threading.Thread(target=run, name="treekit-read", daemon=True).start()
    return future


_SETTLED_SECONDS = 2.0
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


class ModelEntry:
    """File of one model version, and the model loaded from it.

    Parameters
    ----------
    name : str
    location : ModelLocation
    is_required : bool
        Whether the server is not ready while this version is not loaded.

    Attributes
    ----------
    served : Served, optional
        Model currently served.
    reason : str
        Reason why the current file was rejected; empty if it is served.
    public_reason : str
        Reason for clients, without folders of the server.
    n_missed : int
        Consecutive checks that did not find the file.
    reading : Future, optional
        The content, while it is read in a thread.
    is_forced : bool
        Whether the next check reports its result in any case.
    """

    _stamp: Stamp | None
    _digest: str  # of the content that was loaded or rejected last

    def __init__(self, name: str, location: ModelLocation, *, is_required: bool = True) -> None:
        self.name, self.location, self.is_required = name, location, is_required
        self.n_missed = 0
        self.reading: Future[Content] | None = None
        self._folder = location.path.parent  # with links resolved, once read
        self._stamp_seen_at = 0.0
        self.forget()

    def forget(self) -> None:
        """Forget the model and the content of the file."""
        self.served: Served | None = None
        self.reason = self.public_reason = ""
        self.force_reload()

    @property
    def version(self) -> str:
        """Version of the served model, or of its place."""
        return self.served.version if self.served else self.location.version or ""

    def force_reload(self) -> None:
        """Force the next check to read the file and to report the result."""
        self._forget_content()
        self.is_forced = True

    def restore(self, read: Read, data: bytes) -> bool:
        """Load the content that was served last; return whether that succeeded."""
        digest = hashlib.sha256(data).hexdigest()
        try:
            self._set_served(
                read(data, self.location.path, self.name, self.location.version, digest)
            )
        except TreekitError:
            return False
        return True

    def check_file(
        self,
        read: Read,
        now: float,
        copies: ModelCopies | None = None,
        deadline: float | None = None,
    ) -> Change | None:
        """Check the file; load it if its content changed.

        Rejected content is not loaded again.  A file that cannot be opened is retried at each
        check, which is cheap, and reported once.

        Parameters
        ----------
        read : callable
        now : float
            Current time of a monotonic clock in seconds.
        copies : ModelCopies, optional
            Copies, to which a loaded file is added.
        deadline : float, optional
            Time of `time.monotonic` until which to wait for the file to be read; the next check
            completes what takes longer.
        """
        try:
            if self.reading is None:
                if self._is_settled and _make_stamp(self.location.path.stat()) == self._stamp:
                    return None
                known = {self._digest}
                if self.served is not None and not self.is_forced:
                    known.add(self.served.digest)
                given = (read, self.location, self.name, known)
                if deadline is None:
                    return self._use_content(_read_content(*given), now, copies)
                self.reading = _run_in_thread(_read_content, *given)
            seconds = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not wait([self.reading], seconds).done:
                return None
            done, self.reading = self.reading, None
            return self._use_content(done.result(), now, copies)
        except (TreekitError, OSError) as error:
            self._forget_content()
            known_reason = self.reason
            self._set_reason(str(error))
            is_new = self.is_forced or self.reason != known_reason
            self.is_forced = False
            return self._make_rejection() if is_new else None

    def _use_content(
        self, content: Content, now: float, copies: ModelCopies | None
    ) -> Change | None:
        self._folder, self.is_forced = content.folder, False
        if content.stamp != self._stamp:
            self._stamp, self._stamp_seen_at = content.stamp, now
        self._is_settled = now - self._stamp_seen_at >= _SETTLED_SECONDS
        if content.digest == self._digest:
            return None
        self._digest = content.digest
        if content.served is None:
            return self._set_served(self.served) if self.served else None
        if isinstance(content.served, TreekitError):
            self._set_reason(str(content.served))
            return self._make_rejection()
        if copies is not None:
            name, place = os.fsencode(self.name), self.location
            own = os.fsencode(place.path)
            copies.save(ModelCopy(name, place.version, own, place.is_explicit, content.data))
        return self._set_served(content.served)

    def _set_served(self, fresh: Served) -> Change:
        what: Literal["replaced", "loaded"] = "replaced" if self.served else "loaded"
        self.served, self._digest, self.is_required = fresh, fresh.digest, True
        self._set_reason("")
        return Change(self.name, fresh.version, what)

    def _set_reason(self, reason: str) -> None:
        """Set the reason of a rejection, and remove the current folders from the public one."""
        self.reason = self.public_reason = reason
        path = self.location.path
        # Links are resolved again: a link whose target is gone was never read.
        resolved = Path(os.path.realpath(path)).parent
        folders = {path.parent, path.parent.absolute(), self._folder, resolved}
        for folder in sorted(folders, key=lambda own: -len(str(own))):
            for written in (f"{folder}{os.sep}", repr(f"{folder}{os.sep}")[1:-1]):
                self.public_reason = self.public_reason.replace(written, "")

    def _make_rejection(self) -> Change:
        return Change(self.name, self.version, "kept" if self.served else "refused", self.reason)

    def _forget_content(self) -> None:
        self._stamp, self._is_settled, self._digest = None, False, ""
        self.reading = None


# ---------------------------------------------------------------- lookup table
# Immutable snapshot of the repository, replaced atomically.


State = Literal["READY", "UNAVAILABLE"]


class IndexEntry(msgspec.Struct, frozen=True):
    """Line of the repository's index."""

    name: str
    version: str
    state: State
    reason: str


class LookupTable(NamedTuple):
    """Snapshot of the repository; ``models``: loaded ones by name and version, newest first."""

    models: Mapping[str, Mapping[str, Served]] = {}
    entries: tuple[IndexEntry, ...] = ()
    ready: bool = False

    def get(self, name: str | None, version: str | None) -> Served:
        """Return a model; see `Repository.get`."""
        if name is None:
            name = self._get_only_name()
        versions = self.models.get(name)
        if versions is None:
            raise self.make_error(name)
        if version is None:
            return next(iter(versions.values()))
        found = versions.get(version)
        if found is None:
            raise NotFoundError(
                f"model {name!r} has no version {version!r}; it has: {', '.join(versions)}"
            )
        return found

    def _get_only_name(self) -> str:
        names = self._list_names()
        if len(names) == 1:
            return names[0]
        listed = ", ".join(
            f"{name!r}" if name in self.models else f"{name!r} (not loaded)" for name in names
        )
        if not names:
            raise NotFoundError("this server has no model yet")
        raise InvalidRequestError(
            f"the request does not name a model; give one of {listed}, as in /predict?model=NAME"
        )

    def _list_names(self) -> list[str]:
        return sorted({*self.models, *(entry.name for entry in self.entries)})

    def make_error(self, name: str) -> Exception:
        """Return the error for a name without a loaded version."""
        reasons = [entry.reason for entry in self.entries if entry.name == name]
        if not reasons:
            hint = suggest_names(name, self._list_names())
            return NotFoundError(f"there is no model {name!r}; {hint}")
        reason = next((f": {own}" for own in reasons if own not in ("", "unloaded")), "")
        return UnavailableError(f"model {name!r} is not loaded{reason}")


def build_table(all_entries: Iterable[ModelEntry], unloaded: Collection[str]) -> LookupTable:
    """Build the lookup table of entries; `ready` does not need those named in `unloaded`."""
    order = sorted(all_entries, key=lambda own: (own.name, -int(own.location.version or 0)))
    models: dict[str, dict[str, Served]] = {}
    entries, ready = [], bool(order)
    for entry in order:
        reason = entry.public_reason
        if entry.served is not None:
            models.setdefault(entry.name, {})[entry.served.version] = entry.served
        elif entry.name in unloaded:
            reason = "unloaded"
        else:
            ready = ready and not entry.is_required
            if entry.reading is not None:
                reason = reason or "its file is still being read"
        state: State = "UNAVAILABLE" if entry.served is None else "READY"
        entries.append(IndexEntry(entry.name, entry.version, state, reason))
    is_waiting = not models and any(entry.name not in unloaded for entry in order)
    return LookupTable(models, tuple(entries), ready and not is_waiting)


# ---------------------------------------------------------------- locations
# Files and folders with models.
#
# A folder contains ``NAME.treekit`` files or, as in Triton, ``NAME/VERSION/model.treekit``, where
# VERSION is an integer without leading zeros.  Names that begin with a dot are ignored: drafts,
# and the folders that the links of a Kubernetes ConfigMap point to.

_VERSIONED_STEM = "model"
"""Stem of a model file in a version folder."""


class ModelLocation(NamedTuple):
    """Location of a model version.

    Attributes
    ----------
    path : Path
    version : str, optional
        Version number; None if the version is the start of the digest.
    is_explicit : bool
        Whether the file was given explicitly and is required; files in folders may be removed.
    """

    path: Path
    version: str | None
    is_explicit: bool = False


LocationsByName = dict[str, list[ModelLocation]]
"""Locations of each model by name."""


class ModelFinder:
    """Finds models in files and folders.

    Parameters
    ----------
    sources : sequence of Path
        Model files and folders of model files.
    """

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources = sources
        self._last_found: dict[Path, list[tuple[str, ModelLocation]]] = {}
        self._known_paths: set[Path] = set()

    def remember(self, name: str, location: ModelLocation) -> None:
        """Add a location to those last found."""
        self._known_paths.add(location.path)
        for source in self._sources:
            if location.path.is_relative_to(source):
                self._last_found.setdefault(source, []).append((name, location))

    def find_models(self) -> tuple[LocationsByName, list[Exception]]:
        """Return the current locations of models, and the errors of the search.

        A folder that cannot be read, as on a detached disk, keeps its last known models.  If
        two locations have the same model name, the first one is kept.
        """
        found: LocationsByName = {}
        troubles: list[Exception] = []
        pairs: list[tuple[str, ModelLocation]] = []
        for source in self._sources:
            try:
                self._last_found[source] = list(_find_in_source(source))
            except (DataError, OSError) as error:
                troubles.append(error)
            pairs += self._last_found.get(source, ())
        for name, place in sorted(pairs, key=lambda pair: pair[1].path not in self._known_paths):
            known = found.setdefault(name, [])
            # Of the same version, or one with and one without a version.
            twins = [own for own in known if None in (own.version, place.version)]
            twins += [own for own in known if own.version == place.version]
            if not twins:
                known.append(place)
            elif (twin := twins[0]).path != place.path:
                troubles.append(
                    DataError(
                        f"{str(twin.path)!r} and {str(place.path)!r} are both model {name!r}; "
                        "rename one of them"
                    )
                )
        self._known_paths = {place.path for places in found.values() for place in places}
        return found, troubles


def _find_in_source(source: Path) -> Iterator[tuple[str, ModelLocation]]:
    """Yield names and locations of the models in a file or folder."""
    if source.suffix == SUFFIX and not source.is_dir():
        yield source.stem, ModelLocation(source, None, is_explicit=True)
        return
    if source.exists() and not source.is_dir():
        remedy = f"give {SUFFIX} files, or folders"
        if source.suffix == ".onnx":
            remedy = "convert a tree model with 'treekit import', or serve it with onnxruntime"
        raise DataError(f"{str(source)!r} is not a model file of treekit; {remedy}")
    for path in sorted(source.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from ((path.name, place) for place in _find_versions(path))
        elif path.suffix == SUFFIX:
            yield path.stem, ModelLocation(path, None)


def _find_versions(folder: Path) -> Iterator[ModelLocation]:
    for path in sorted(folder.iterdir()):
        name = path.name
        if name.isascii() and name.isdigit() and not name.startswith("0") and path.is_dir():
            file = path / f"{_VERSIONED_STEM}{SUFFIX}"
            if file.is_file():
                yield ModelLocation(file, name)
