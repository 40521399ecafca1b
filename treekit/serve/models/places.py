"""Where models are: files and folders that a server is told, and what lies in them.

A folder holds ``NAME.treekit`` and ``NAME.onnx`` files, or, as Triton has it,
``NAME/VERSION/model.treekit`` (or ``.onnx``), VERSION being a whole number without leading
zeros.  Names that begin with a dot are nobody's: drafts, and the folders behind the links of
a Kubernetes ConfigMap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from treekit.errors import DataError
from treekit.serve.models.loading import SUFFIXES

__all__ = ["Place", "Places"]

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
