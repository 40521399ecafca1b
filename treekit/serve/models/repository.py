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

from treekit.data.table import suggest_names
from treekit.errors import (
    DataError,
    ModelFileAccessError,
    ModelFileError,
    ModelFileNotFoundError,
    TreekitError,
)
from treekit.serve.errors import InvalidRequestError, NotFoundError, UnavailableError
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor, TensorSpec, get_numpy_type

# ---------------------------------------------------------------- loading
# Each model is loaded, validated and tested with a prediction before it is served.

SUFFIX = ".treekit"
"""Suffix of model files."""

_VERSION_DIGITS = 12
_MAX_READS = 3
_TEST_BATCH_ROWS = (1, 2)
"""One row and several rows use different kernels, both compiled here instead of by a request."""

Stamp = tuple[int, ...]
"""Identity of a file's content: device, inode, modification times and size."""


class FileState(NamedTuple):
    """State of a file: SHA-256 of its content, and its stamp."""

    digest: str
    stamp: Stamp


def read_stamp(path: Path) -> Stamp:
    """Return the current stamp of a file; FileNotFoundError if it does not exist."""
    return _make_stamp(path.stat())


def _make_stamp(found: Any) -> Stamp:
    # Includes ctime: a copy that preserves times (cp -p), of the same path and size, may also
    # have the same inode number.
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def read_file_state(path: Path) -> FileState:
    """Return a consistent digest and stamp of a file.

    Raises
    ------
    ModelFileError
        If the file keeps changing.
    ModelFileNotFoundError, ModelFileAccessError
        If the file does not exist or cannot be read; both are also OSErrors.
    """
    try:
        for _ in range(_MAX_READS):
            with path.open("rb") as stream:
                before = _make_stamp(os.fstat(stream.fileno()))
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                if _make_stamp(os.fstat(stream.fileno())) == before:
                    return FileState(digest, before)
    except FileNotFoundError:
        raise ModelFileNotFoundError(f"there is no model file {str(path)!r}") from None
    except OSError as error:
        raise ModelFileAccessError(
            f"cannot read model file {str(path)!r}: {error.strerror or error}"
        ) from error
    raise changing_file_error(path)


def changing_file_error(path: Path) -> ModelFileError:
    """Return the error for a file that changes while it is read."""
    return ModelFileError(
        f"{str(path)!r} changes while it is read; write a complete file, then rename it"
    )


def read_served(path: Path, name: str, version: str | None, digest: str) -> Served:
    """Load the model in a file and test it with a prediction.

    Parameters
    ----------
    path : Path
        A ``.treekit`` file.
    name : str
    version : str, optional
        Default: the first digits of the digest.
    digest : str
        Digest returned by `read_file_state`.

    Raises
    ------
    ModelFileError
        If the file is not a model or the prediction fails.
    """
    try:
        served = _load_served(path, name, version or digest[:_VERSION_DIGITS], digest)
        _check_prediction(served)
    except OSError:
        raise
    except ModelFileError as error:
        raise ModelFileError(_add_path(path, str(error))) from error
    # Any failure of a library on an untrusted file must not end the thread that checks files.
    except Exception as error:
        reason = str(error) if isinstance(error, TreekitError) else f"{error!r}"
        raise ModelFileError(_add_path(path, reason)) from error
    return served


def _add_path(path: Path, reason: str) -> str:
    """Return the reason prefixed with the file, unless it includes it."""
    return reason if str(path) in reason else f"{str(path)!r} cannot be served: {reason}"


def _load_served(path: Path, name: str, version: str, digest: str) -> Served:
    from treekit.model.model_file import load
    from treekit.serve.models.treekit_model import TreekitServed

    return TreekitServed(name, version, digest, load(path))


def _check_prediction(served: Served) -> None:
    """Predict the default outputs, and the leaf (a separate kernel), for sample rows."""
    known = {spec.name for spec in served.outputs}
    wanted = (*served.default_outputs, *({"leaf"} & known))
    for rows in _TEST_BATCH_ROWS:
        tensors = [_make_test_tensor(served, spec, rows) for spec in served.inputs]
        for output in served.compute_outputs(served.parse_inputs(tensors), wanted):
            if not output.cells.size:
                raise ModelFileError(f"its output {output.name!r} of {rows} rows is empty")


def _make_test_tensor(served: Served, spec: TensorSpec, rows: int) -> Tensor:
    """Return cells that every policy accepts: zeros and first categories."""
    shape = tuple(rows if place == 0 and n < 0 else max(n, 1) for place, n in enumerate(spec.shape))
    dtype = get_numpy_type(spec.name, spec.datatype)
    cells: npt.NDArray[Any] = np.zeros(shape, dtype)
    if dtype.hasobject:
        cells[...] = _first_category(served, spec.name)
    return Tensor(spec.name, spec.datatype, cells)


def _first_category(served: Served, name: str) -> str:
    columns = served.require_model().schema.columns
    return next((c.levels[0] for c in columns if c.name == name and c.levels), "")


# ---------------------------------------------------------------- repository

Do = Literal["load", "unload"]

_PATIENT_CHECKS = 2
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
        self._locations = ModelFinder([Path(source) for source in sources])
        self._read, self._clock = read, clock
        self._models: dict[str, ModelVersions] = {}
        self._table = LookupTable()
        self._lock = threading.RLock()
        self._is_started = False
        self._subscribers: list[Callable[[list[Change]], None]] = []
        self.everywhere: Callable[[Do, str], list[Change]] | None = None
        self.changed_at = time.time()

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
            found, troubles = self._locations.find_models()
            if troubles and not self._is_started:
                raise troubles[0]
            changes: list[Change] = []
            for name in sorted({*self._models, *found}):
                some = self._refresh_model(
                    name, found.get(name, []), _PATIENT_CHECKS if patient else 1
                )
                changes += some
                if some and self._is_started:  # publish each model as soon as it is loaded
                    self._publish_table(some)
            if not self._is_started:
                self._is_started = True
                self._publish_table(changes)
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
        return self._change_model("load", name)

    def unload(self, name: str) -> list[Change]:
        """Unload a model until it is loaded again; its file is kept.

        Raises
        ------
        NotFoundError
            If the model does not exist.
        UnavailableError
            If a worker process does not confirm it.
        """
        return self._change_model("unload", name)

    def _change_model(self, what: Do, name: str) -> list[Change]:
        return (self.everywhere or self.do_here)(what, name)

    def do_here(self, what: Do, name: str) -> list[Change]:
        """Load or unload a model in this process only."""
        with self._lock:
            return self._load_here(name) if what == "load" else self._unload_here(name)

    def _load_here(self, name: str) -> list[Change]:
        found, _ = self._locations.find_models()
        if name not in found:
            raise NotFoundError(
                f"there is no file of a model {name!r}; {suggest_names(name, found)}"
            )
        known = self._models.setdefault(name, ModelVersions())
        wanted, known.is_enabled = known.is_enabled, True
        for slot in known.model_entries.values():
            slot.force_reload()
        changes = self._refresh_model(name, found[name], 1)
        refused = [change for change in changes if change.what in ("kept", "refused")]
        if refused and not any(slot.served for slot in known.model_entries.values()):
            known.is_enabled = wanted
        self._publish_table(changes)
        if refused:
            raise InvalidRequestError(f"model {name!r} was not loaded: {known.reason}")
        return changes

    def _unload_here(self, name: str) -> list[Change]:
        known = self._models.get(name)
        if known is None:
            raise self._table.make_error(name)
        known.is_enabled = False
        changes = [
            Change(name, slot.version, "unloaded")
            for slot in known.model_entries.values()
            if slot.served
        ]
        known.model_entries = {
            version: ModelEntry(name, slot.location, is_required=True)
            for version, slot in known.model_entries.items()
        }
        self._publish_table(changes)
        return changes

    def refused_files(self) -> list[str]:
        """Return the reasons why explicitly given files cannot be served."""
        with self._lock:
            return [
                slot.reason
                for known in self._models.values()
                for slot in known.model_entries.values()
                if slot.location.is_explicit and slot.served is None and slot.reason
            ]

    def leave_out(self, names: Iterable[str]) -> None:
        """Mark models as unloaded before the first refresh, as in the other processes."""
        with self._lock:
            for name in names:
                self._models.setdefault(name, ModelVersions()).is_enabled = False

    def _refresh_model(self, name: str, places: list[ModelLocation], looks: int) -> list[Change]:
        known = self._models.setdefault(name, ModelVersions())
        changes = self._remove_missing(known, {place.version for place in places}, looks)
        for place in places:
            slot = known.model_entries.get(place.version)
            if slot is None:
                slot = known.model_entries[place.version] = ModelEntry(
                    name, place, is_required=not self._is_started
                )
            slot.location, slot.n_missed = place, 0
            change = slot.check_file(self._read, self._clock()) if known.is_enabled else None
            if change is not None:
                changes.append(change)
        if (
            not known.model_entries and known.is_enabled
        ):  # an unloaded model stays so if its file returns
            del self._models[name]
        return changes

    @staticmethod
    def _remove_missing(known: ModelVersions, there: set[str | None], looks: int) -> list[Change]:
        """Remove versions whose file was missing in `looks` consecutive checks."""
        changes = []
        for version, slot in list(known.model_entries.items()):
            slot.n_missed += version not in there
            if slot.n_missed >= looks:
                changes.append(Change(slot.name, slot.version, "removed"))
                del known.model_entries[version]
        return changes

    def _publish_table(self, changes: list[Change]) -> None:
        """Replace the lookup table atomically and notify the subscribers."""
        self._table = build_table(self._models)
        if changes:
            self.changed_at = time.time()
            for tell in self._subscribers:
                tell(changes)


# ---------------------------------------------------------------- entries
# State of one model file over time: the loaded model, the last seen content, and reload rules.

Read = Callable[[Path, str, str | None, str], Served]
"""Signature of `read_served`."""

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
    location : Place
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
    """

    def __init__(self, name: str, location: ModelLocation, *, is_required: bool) -> None:
        self.name, self.location, self.is_required = name, location, is_required
        self.served: Served | None = None
        self.reason = self.public_reason = ""
        self.n_missed = 0
        self._folder = location.path.parent  # with links resolved, once read
        self._stamp: Stamp | None = None
        self._stamp_seen_at = 0.0
        self._is_settled = False
        self._digest = ""  # of the content that was loaded or rejected last
        self._is_forced = False

    @property
    def version(self) -> str:
        """Version of the served model, or of its place."""
        return self.served.version if self.served else self.location.version or ""

    def force_reload(self) -> None:
        """Force the next check to read the file and to report the result."""
        self._forget_state()
        self._is_forced = True

    def check_file(self, read: Read, now: float) -> Change | None:
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
            if self._is_settled and read_stamp(self.location.path) == self._stamp:
                return None
            return self._check_content(read, now)
        except (TreekitError, OSError) as error:
            self._forget_state()
            known = self.reason
            self._set_reason(str(error))
            return self._make_rejection() if self._is_forced or self.reason != known else None
        finally:
            self._is_forced = False

    def _check_content(self, read: Read, now: float) -> Change | None:
        for _ in range(_MAX_READS):
            # Resolve links, to notice one that is replaced and restored.
            path = Path(os.path.realpath(self.location.path))  # resolve() raises on link cycles
            self._folder = path.parent
            seen = read_file_state(path)
            if seen.stamp != self._stamp:
                self._stamp, self._stamp_seen_at = seen.stamp, now
            self._is_settled = now - self._stamp_seen_at >= _SETTLED_SECONDS
            if seen.digest == self._digest:
                return None
            if self.served and seen.digest == self.served.digest and not self._is_forced:
                return self._set_served(self.served)
            fresh, reason = self._load_file(read, path, seen.digest)
            if read_file_state(path).digest != seen.digest:
                continue
            if fresh is not None:
                return self._set_served(fresh)
            self._digest = seen.digest
            self._set_reason(reason)
            return self._make_rejection()
        raise changing_file_error(self.location.path)

    def _load_file(self, read: Read, path: Path, digest: str) -> tuple[Served | None, str]:
        """Load the file; return the model, or the reason why it was rejected."""
        try:
            return read(path, self.name, self.location.version, digest), ""
        except OSError:
            raise
        except TreekitError as error:
            return None, str(error)

    def _set_served(self, fresh: Served) -> Change:
        what: Literal["replaced", "loaded"] = "replaced" if self.served else "loaded"
        self.served, self._digest, self.is_required = fresh, fresh.digest, True
        self._set_reason("")
        return Change(self.name, fresh.version, what)

    def _set_reason(self, reason: str) -> None:
        """Set the reason of a rejection, and remove the current folders from the public one."""
        self.reason = self.public_reason = reason
        for folder in (self.location.path.parent, self._folder):
            for written in (f"{folder}{os.sep}", repr(f"{folder}{os.sep}")[1:-1]):
                self.public_reason = self.public_reason.replace(written, "")

    def _make_rejection(self) -> Change:
        return Change(self.name, self.version, "kept" if self.served else "refused", self.reason)

    def _forget_state(self) -> None:
        self._stamp, self._is_settled, self._digest = None, False, ""


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
class ModelVersions:
    """All versions of one model, by the version of their location."""

    model_entries: dict[str | None, ModelEntry] = field(default_factory=dict)
    is_enabled: bool = True
    """False after an unload, until a load."""

    @property
    def newest_first(self) -> list[ModelEntry]:
        """Slots sorted by version number, largest first."""
        order = sorted(self.model_entries, key=lambda version: int(version or 0), reverse=True)
        return [self.model_entries[version] for version in order]

    @property
    def reason(self) -> str:
        """Reason for clients why no version is served."""
        if not self.is_enabled:
            return ""
        return next((slot.public_reason for slot in self.model_entries.values() if slot.reason), "")

    @property
    def is_complete(self) -> bool:
        """Whether all required versions are loaded."""
        return not self.is_enabled or all(
            slot.served is not None or not slot.is_required for slot in self.model_entries.values()
        )


class LookupTable(NamedTuple):
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

    def make_error(self, name: str) -> Exception:
        """Return the error for a name without a loaded version."""
        reason = self.absent.get(name)
        if reason is None:
            return NotFoundError(
                f"there is no model {name!r}; {suggest_names(name, [*self.models, *self.absent])}"
            )
        return UnavailableError(f"model {name!r} is not loaded" + (f": {reason}" if reason else ""))


def build_table(all_names: Mapping[str, ModelVersions]) -> LookupTable:
    """Build the lookup table."""
    names = {name: known for name, known in sorted(all_names.items()) if known.model_entries}
    models = {
        name: {slot.served.version: slot.served for slot in known.newest_first if slot.served}
        for name, known in names.items()
    }
    return LookupTable(
        models={name: versions for name, versions in models.items() if versions},
        absent={name: names[name].reason for name, versions in models.items() if not versions},
        entries=tuple(
            _make_index_entry(slot, known.is_enabled)
            for known in names.values()
            for slot in known.newest_first
        ),
        ready=bool(names) and all(known.is_complete for known in names.values()),
    )


def _make_index_entry(slot: ModelEntry, wanted: bool) -> Entry:
    if slot.served is not None:
        return Entry(slot.name, slot.version, "READY", slot.public_reason)
    reason = slot.public_reason if wanted else "unloaded"
    return Entry(slot.name, slot.version, "UNAVAILABLE", reason)


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
            twin = _find_conflict(place, found.get(name, ()))
            if twin is None:
                found.setdefault(name, []).append(place)
            elif twin.path != place.path:
                troubles.append(
                    DataError(
                        f"{str(twin.path)!r} and {str(place.path)!r} are both model {name!r}; "
                        "rename one of them"
                    )
                )
        self._known_paths = {place.path for places in found.values() for place in places}
        return found, troubles


def _find_conflict(place: ModelLocation, others: Sequence[ModelLocation]) -> ModelLocation | None:
    """Return a conflicting location: same version, or one with and one without a version."""
    for other in others:
        if other.version == place.version or None in (other.version, place.version):
            return other
    return None


def _find_in_source(source: Path) -> Iterator[tuple[str, ModelLocation]]:
    """Yield names and locations of the models in a file or folder."""
    if source.suffix == SUFFIX and not source.is_dir():
        yield source.stem, ModelLocation(source, None, is_explicit=True)
        return
    if source.exists() and not source.is_dir():
        remedy = (
            "convert a tree model with 'treekit import', or serve it with onnxruntime"
            if source.suffix == ".onnx"
            else f"give {SUFFIX} files, or folders"
        )
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
