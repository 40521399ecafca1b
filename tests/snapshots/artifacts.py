"""Digests of all artifacts of the stored models, ``artifacts.txt``, and eight as text, `GOLDEN`.

    python -m tests.snapshots.artifacts NAME FOLDER

writes the artifacts of a model, each form into its own folder, to compare two versions of
treekit with ``diff -r``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from unittest import mock

import treekit
from tests.snapshots import FOLDER, GOLDEN
from tests.snapshots.answers import read_sections, write_sections
from tests.snapshots.make_models import MODELS, model_path
from treekit.model.model import Model
from treekit.rules import RuleList

__all__ = [
    "ARTIFACTS",
    "FORMS",
    "LIBRARIES",
    "digest_lines",
    "golden",
    "group_of",
    "installed_versions",
    "recorded_versions",
    "stored_lines",
    "text",
    "uses",
    "write_artifacts",
]

ARTIFACTS = FOLDER / "artifacts.txt"

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "onnx": ("onnx", "triton"),
    "protobuf": ("onnx", "triton"),
    "sqlglot": ("sql", "document form=sql"),
    "treekit-sql": ("sql", "document form=sql"),
    "treekit-interchange": ("document form=dmn", "document form=pmml"),
    "treekit-plot": ("picture",),
}
"""Libraries whose version can change bytes, with prefixes of the affected forms."""

# In memory if possible: writing to disk takes as long as rendering.
_SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_STEM = "Model"
_PLACEHOLDER = "VERSION"

_LANGUAGE_FORMS: tuple[dict[str, Any], ...] = ({"form": "if_else"}, {"form": "table"})
_EXPORTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "onnx": (
        {},
        {"inputs": "columns"},
        {"target_runtime": "1.24", "leaf": True, "decision_path": True},
        {"zipmap": True},
    ),
    "triton": ({"version": 2, "max_batch_size": 8, "batch_delay": 100, "threads": 0},),
    "c": (
        {},
        {"form": "if_else"},
        {"form": "if_else", "arithmetic": "integer"},
        {"form": "hybrid"},
        {"form": "hybrid", "input": "float"},
        {"form": "table"},
        {"form": "table", "input": "float"},
        {"form": "table", "arithmetic": "integer"},
        {"form": "compact"},
        {"form": "compact", "arithmetic": "integer"},
    ),
    "python": ({}, *_LANGUAGE_FORMS),
    "javascript": ({}, *_LANGUAGE_FORMS),
    "java": ({}, {"form": "if_else", "package": "org.example"}, {"form": "table"}),
    "rust": ({}, *_LANGUAGE_FORMS),
    "go": ({}, {"form": "if_else", "package": "example"}, {"form": "table"}),
    "sql": (
        {"dialect": "duckdb", "form": "readable"},
        {"dialect": "sqlite", "form": "case"},
        {"dialect": "sqlite", "form": "table", "refuse": "error"},
        {"dialect": "duckdb", "form": "expression"},
        {"dialect": "duckdb", "form": "table", "keys": "id"},
        {"dialect": "postgres", "form": "case", "refuse": "error"},
        {"dialect": "postgres", "form": "table"},
    ),
    "rules": ({}, {"language": "zh"}),
}
"""Settings of each target; each combination gives different bytes."""

_LISTS: tuple[dict[str, Any], ...] = ({"join": False}, {"decisions": True})
"""Settings of `Model.rules`; the target "rules" covers the default."""

_DOCUMENTS: tuple[dict[str, Any], ...] = (
    {"form": "markdown", "language": "zh"},
    {"form": "html"},
    *({"form": form} for form in ("json", "csv", "sql", "sql-duckdb", "sql-postgres")),
    *({"form": form} for form in ("dmn", "pmml", "pmml-rules")),
)
_PICTURES: tuple[dict[str, Any], ...] = (
    {"suffix": ".svg"},
    {"suffix": ".dot"},
    {"suffix": ".svg", "language": "zh", "max_depth": 1},
)

Write = Callable[[Model, Path], Any]
"""Function that writes one form of a model into a folder."""


def _export(target: str, **settings: Any) -> Write:
    return lambda model, folder: treekit.export(model, target, folder / _STEM, **settings)


def _rule_list(**settings: Any) -> Write:
    return lambda model, folder: treekit.write_rules(
        model.rules(**settings), folder / _STEM, form="text"
    )


def _document(**settings: Any) -> Write:
    return lambda model, folder: treekit.write_rules(
        _rules_of(model), folder / _STEM, model=model, **settings
    )


@lru_cache(maxsize=1)
def _rules_of(model: Model) -> RuleList:
    """Make the rules of a model, once for all its documents."""
    return model.rules()


def _picture(suffix: str, language: str = "en", **settings: Any) -> Write:
    return lambda model, folder: treekit.write_rules(
        _rules_of(model),
        folder / (_STEM + suffix),
        suffix[1:],
        language=language,
        settings=settings,
        model=model,
    )


def _forms() -> Iterator[tuple[str, Write]]:
    for target, choices in _EXPORTS.items():
        yield from ((_name(target, own), _export(target, **own)) for own in choices)
    yield from ((_name("list", own), _rule_list(**own)) for own in _LISTS)
    yield from ((_name("document", own), _document(**own)) for own in _DOCUMENTS)
    yield from ((_name("picture", own), _picture(**own)) for own in _PICTURES)


def _name(target: str, settings: Mapping[str, Any]) -> str:
    return " ".join([target, *(f"{name}={value}" for name, value in settings.items())])


FORMS: Mapping[str, Write] = dict(_forms())
"""All forms of artifacts by name, which is the target and its settings."""


def golden(name: str) -> str:
    """Return the text of an artifact of `GOLDEN`; the stored one for other library versions."""
    form, model = GOLDEN[name], treekit.load(model_path("trained_cost_complexity"))
    recorded = recorded_versions()
    if uses(form, [one for one, own in installed_versions().items() if own != recorded[one]]):
        return (FOLDER / name).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as place:
        refusal = _write(form, model, Path(place))
        assert not refusal, refusal
        files = sorted(path for path in Path(place).rglob("*") if path.is_file())
        own = [path for path in files if path.suffix == Path(name).suffix]
        (path,) = own or files
        return _without_version(path).decode("utf-8")


def text() -> str:
    """Return the text of ``artifacts.txt``: a section per model, a line per group of forms.

    Lines of groups whose library is not installed are kept.
    """
    absent = [library for library, found in installed_versions().items() if found == "none"]
    kept, recorded = stored_lines(), recorded_versions()
    versions = [
        (library, recorded[library] if library in absent else found)
        for library, found in installed_versions().items()
    ]
    head = "First 16 hexadecimal digits of the SHA-256 of all artifacts of a model for a target.\n"
    head += "Written by: python -m tests.snapshots\n"
    head += "Versions: " + ", ".join(f"{library} {installed}" for library, installed in versions)
    sections = {}
    for name in MODELS:
        lines = digest_lines(treekit.load(model_path(name)), without=absent)
        lines |= {group: line for group, line in kept.get(name, {}).items() if uses(group, absent)}
        groups = dict.fromkeys(map(group_of, FORMS))
        sections[name] = [f"{group} | {lines[group]}" for group in groups if group in lines]
    return write_sections(head, sections)


def stored_lines() -> dict[str, dict[str, str]]:
    """Read the line of each group of forms of each model from ``artifacts.txt``."""
    sections = read_sections(ARTIFACTS)
    return {name: dict(line.split(" | ", 1) for line in lines) for name, lines in sections.items()}


def installed_versions() -> dict[str, str]:
    """Return the version of each library of `LIBRARIES`."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "none"
    return found


def recorded_versions() -> dict[str, str]:
    """Return the library versions recorded in ``artifacts.txt``."""
    with ARTIFACTS.open(encoding="utf-8") as lines:
        recorded = next(line for line in lines if line.startswith("# Versions: "))
    pairs = recorded.removeprefix("# Versions: ").strip().split(", ")
    return dict(pair.rsplit(" ", 1) for pair in pairs)


def uses(form: str, libraries: Collection[str]) -> bool:
    """Whether the version of one of the libraries can change the bytes of a form or group."""
    return any(form.startswith(LIBRARIES[library]) for library in libraries)


def group_of(form: str) -> str:
    """Return the group of a form: its target, and for a document the library that makes it."""
    prefixes = (prefix for prefixes in LIBRARIES.values() for prefix in prefixes)
    return next(
        (prefix for prefix in prefixes if form.startswith(prefix)), form.split(maxsplit=1)[0]
    )


def digest_lines(
    model: Model, without: Collection[str] = (), made_by: Collection[str] = ()
) -> dict[str, str]:
    """Return the digest of each group of forms of a model, and the number of refused forms.

    Parameters
    ----------
    model : Model
    without : collection of str
        Libraries whose forms are skipped.
    made_by : collection of str
        Libraries; the forms of others are skipped, too.
    """
    lines: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as place:
        for number, form in enumerate(FORMS):
            if uses(form, without) or (made_by and not uses(form, made_by)):
                continue
            folder = Path(place, str(number))
            refusal = _write(form, model, folder)
            digests = refusal or " ".join(_digests(folder))
            lines.setdefault(group_of(form), []).append(f"{form} | {digests}")
    return {group: _summarise(found) for group, found in lines.items()}


def _summarise(lines: list[str]) -> str:
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    refused = sum(" | refused: " in line for line in lines)
    return f"{digest}, {refused} of {len(lines)} refused" if refused else digest


def write_artifacts(model: Model, folder: Path) -> None:
    """Write all artifacts of a model, each form into its own folder."""
    for form in FORMS:
        own = folder / form.replace(" ", ",")
        if refusal := _write(form, model, own):
            own.mkdir(parents=True, exist_ok=True)
            (own / "refused.txt").write_text(f"{refusal}\n", encoding="utf-8")


def _write(form: str, model: Model, folder: Path) -> str:
    """Write one form of a model; return the error if it cannot be exported."""
    try:
        with mock.patch("os.fsync", _skip):  # unnecessary for temporary files
            FORMS[form](model, folder)
    except treekit.TreekitError as error:
        return f"refused: {ascii(str(error))[1:-1]}"
    return ""


def _skip(file: int) -> None:
    """Do nothing, as a replacement for `os.fsync`."""


def _digests(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(_without_version(path)).hexdigest()
            yield f"{path.relative_to(folder).as_posix()} {digest[:16]}"


def _without_version(path: Path) -> bytes:
    """Read a file, replacing treekit's version by a placeholder."""
    content = path.read_bytes()
    if path.suffix != ".onnx":
        return content.replace(f'"{treekit.__version__}"'.encode(), f'"{_PLACEHOLDER}"'.encode())
    import onnx

    proto = onnx.load_from_string(content)
    proto.producer_version = _PLACEHOLDER
    for prop in proto.metadata_props:
        if prop.key == "treekit.version":
            prop.value = _PLACEHOLDER
    neutral: bytes = proto.SerializeToString(deterministic=True)
    return neutral


if __name__ == "__main__":
    chosen, place = sys.argv[1:]
    write_artifacts(treekit.load(model_path(chosen)), Path(place))
