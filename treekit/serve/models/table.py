"""What a server has at one time: a table that is never altered, and put in place in one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from treekit.data.table import near_names
from treekit.serve.errors import InvalidRequestError, NotFoundError, UnavailableError
from treekit.serve.models.served import Served
from treekit.serve.models.slots import Slot

__all__ = ["Entry", "Table", "Versions", "table_of"]

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
