"""The models of a server: loaded, replaced, unloaded and given out.

Where they lie is `treekit.serve.models.repository`' to know, when to read a file anew
`treekit.serve.models.repository`'.

Nothing here waits or serves.  Whoever asks reads one table that is never altered, and takes
no lock; a change puts another in its place in one step.  Whoever holds a model goes on with
it: so a reload neither loses nor mixes an answer, and a thread may load for as long as it
takes.
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
# A model file as a model in service: read, checked and asked once before it answers anybody.

SUFFIXES = (".treekit", ".onnx")

_VERSION_DIGITS = 12
_TRIES = 3
_PROBE_ROWS = (1, 2)
"""One row and several have kernels of their own, which are compiled now and not by a client."""

Stamp = tuple[int, ...]
"""What tells a file from the one that was there before: device, inode, changes, bytes."""


class Seen(NamedTuple):
    """A file as it was at one time: SHA-256 of its bytes, and its stamp."""

    digest: str
    stamp: Stamp


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file now; FileNotFoundError if there is none."""
    return _stamp(path.stat())


def _stamp(found: Any) -> Stamp:
    # The time of the last change of the inode, too: a copy that keeps its times (cp -p) in the
    # place, and of the size, of another may well have its number.
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def look_at(path: Path) -> Seen:
    """The digest and the stamp of a file, both of one content.

    Raises
    ------
    ModelFileError
        If it is being written all the time.
    ModelFileNotFoundError, ModelFileAccessError
        If it is not there, or cannot be read; these are OSErrors, too.
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
    """The refusal of a file that is not the same before and after it was read."""
    return ModelFileError(f"{str(path)!r} changes while it is read; write it whole, then rename it")


def read_served(path: Path, name: str, version: str | None, digest: str) -> Served:
    """The model in a file, once it has answered a row.

    Parameters
    ----------
    path : Path
        A ``.treekit`` or ``.onnx`` file.
    name : str
    version : str, optional
        Default: the first digits of the digest.
    digest : str
        As `look_at` has it.

    Raises
    ------
    ModelFileError
        If it is no model, or none that answers.
    """
    try:
        served = _read(path, name, version or digest[:_VERSION_DIGITS], digest)
        _ask(served)
    except OSError:
        raise
    except ModelFileError as error:
        raise ModelFileError(_named(path, str(error))) from error
    # Whatever a stranger's file does to a library must not end the thread that looks at files.
    except Exception as error:
        reason = str(error) if isinstance(error, TreekitError) else f"{error!r}"
        raise ModelFileError(_named(path, reason)) from error
    return served


def _named(path: Path, reason: str) -> str:
    """The reason, with the file that it is about."""
    return reason if str(path) in reason else f"{str(path)!r} cannot be served: {reason}"


def _read(path: Path, name: str, version: str, digest: str) -> Served:
    if path.suffix == ".onnx":
        from treekit.serve.models.onnx_model import read_onnx_served

        return read_onnx_served(path, name, version, digest)
    from treekit.model.model_file import load
    from treekit.serve.models.treekit_model import TreekitServed

    return TreekitServed(name, version, digest, load(path))


def _ask(served: Served) -> None:
    """Ask for the usual outputs, and the leaf, which has a kernel of its own, of made-up rows."""
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
        # A strange graph may refuse a row of zeros and empty texts, and be right to.


def _cells(served: Served, spec: Spec, rows: int) -> Tensor:
    """Cells that every policy takes: zeros, and first levels of a vocabulary."""
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
"""Looks in a row that do not find a file, after which a patient one takes its model away:
tools that remove a file and then write it anew lose no answer."""


class Repository:
    """Models by name and version.

    Parameters
    ----------
    sources : iterable of Path
        Model files, and folders of them.
    read : callable
        `treekit.serve.models.repository.read_served`, or what does the same in a test.
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


# ---------------------------------------------------------------- slots
# One model file over time: what it gave, what was last seen of it, and when to read it anew.

Read = Callable[[Path, str, str | None, str], Served]
"""`treekit.serve.models.repository.read_served`, or what does the same in a test."""

_SETTLED = 2.0
"""Seconds after which a stamp that is still the same is believed.  Before, the file may have
been written again within one tick of its clock: 4 ms, and 1 s or 2 s on some file systems."""


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


# ---------------------------------------------------------------- table
# What a server has at one time: a table that is never altered, and put in place in one step.

State = Literal["READY", "UNAVAILABLE"]


class Entry(NamedTuple):
    """A line of the repository's index."""

    name: str
    version: str
    state: State
    reason: str


@dataclass
class Versions:
    """All versions of one model, by the version of their place."""

    slots: dict[str | None, Slot] = field(default_factory=dict)
    wanted: bool = True
    """False after an unload, until a load."""

    @property
    def newest_first(self) -> list[Slot]:
        """The newest is the one of the largest number."""
        order = sorted(self.slots, key=lambda version: int(version or 0), reverse=True)
        return [self.slots[version] for version in order]

    @property
    def why(self) -> str:
        """Why nothing of this name answers, as clients have it."""
        if not self.wanted:
            return ""
        return next((slot.public_reason for slot in self.slots.values() if slot.reason), "")

    @property
    def complete(self) -> bool:
        """Whether all answers that is to."""
        return not self.wanted or all(
            slot.served is not None or not slot.vital for slot in self.slots.values()
        )


class Table(NamedTuple):
    """What is true at one time.

    ``models``: what answers, by name and version, the newest version first.  ``absent``: names
    of which nothing answers, and why.
    """

    models: Mapping[str, Mapping[str, Served]] = {}
    absent: Mapping[str, str] = {}
    entries: tuple[Entry, ...] = ()
    ready: bool = False

    def get(self, name: str | None, version: str | None) -> Served:
        """See `treekit.serve.models.repository.Repository.get`."""
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
            raise NotFoundError("there is no model on this server yet")
        raise InvalidRequestError(
            f"the request names no model; there are: {listed}; say which, as in /predict?model=NAME"
        )

    def unknown(self, name: str) -> Exception:
        """What is raised for a name of which nothing answers."""
        reason = self.absent.get(name)
        if reason is None:
            return NotFoundError(
                f"there is no model {name!r}; {near_names(name, [*self.models, *self.absent])}"
            )
        return UnavailableError(f"model {name!r} is not loaded" + (f": {reason}" if reason else ""))


def table_of(all_names: Mapping[str, Versions]) -> Table:
    """The table of these models, by name."""
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


# ---------------------------------------------------------------- places
# Where models are: files and folders that a server is told, and what lies in them.
#
# A folder holds ``NAME.treekit`` and ``NAME.onnx`` files, or, as Triton has it,
# ``NAME/VERSION/model.treekit`` (or ``.onnx``), VERSION being a whole number without leading
# zeros.  Names that begin with a dot are nobody's: drafts, and the folders behind the links of
# a Kubernetes ConfigMap.

_VERSIONED = "model"
"""Stem of a file in a folder of versions."""


class Place(NamedTuple):
    """Where a version of a model is.

    Attributes
    ----------
    path : Path
    version : str, optional
        None: named by its digest.
    given : bool
        Whether the server was told this very file: then it is missed where it is not there.
        One in a folder may go.
    """

    path: Path
    version: str | None
    given: bool = False


Found = dict[str, list[Place]]
"""Places of each model, by its name."""


class Places:
    """Looks for models again and again.

    Parameters
    ----------
    sources : sequence of Path
        Model files, and folders of them.
    """

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources = sources
        self._last: dict[Path, list[tuple[str, Place]]] = {}
        self._taken: set[Path] = set()

    def look(self) -> tuple[Found, list[Exception]]:
        """Where models are now, and what keeps from seeing more.

        A folder that cannot be read, as when a disk is away, is taken as it was last seen.
        Where two places would be one model, the one that was there first stays.
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
    """A place of the same version; a model has a file, or versions, and not both."""
    for other in others:
        if other.version == place.version or None in (other.version, place.version):
            return other
    return None


def _places_in(source: Path) -> Iterator[tuple[str, Place]]:
    """Names and places of the models in a file or folder."""
    if source.suffix in SUFFIXES and not source.is_dir():
        yield source.stem, Place(source, None, given=True)
        return
    if source.exists() and not source.is_dir():
        raise DataError(
            f"{str(source)!r} is no model: give {' or '.join(SUFFIXES)} files, or folders"
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
