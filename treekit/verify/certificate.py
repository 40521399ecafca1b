"""The outcome of a verification, for machines: digests, counts and versions as JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treekit.errors import VerificationError
from treekit.model.model import Model
from treekit.model.tree import DTYPES
from treekit.verify.report import Report

__all__ = ["CERTIFICATE_VERSION", "certificate", "file_sha256", "model_sha256", "write_certificate"]

CERTIFICATE_VERSION = 1

_TOLD_ONLY = ("value", "gain")
"""What the nodes of a tree say besides; the answers follow from the leaves' integers."""


_OF_RULES = ("surrogate_above", "surrogate_lost")


def model_sha256(model: Model) -> str:
    """Digest of all that decides the answers: schema, policies, splits and leaf integers."""
    # ASCII with escapes: names may hold what UTF-8 cannot.
    digest = hashlib.sha256(ascii(msgspec.to_builtins(model.schema)).encode())
    digest.update(f"{model.missing} {model.unknown} {model.n_trees} {model.exponent}".encode())
    digest.update(
        f"{model.voting} {None if model.costs is None else model.costs.tolist()}".encode()
    )
    if (model.combine, model.link) != ("mean", "identity"):  # the digests of others stay
        digest.update(f"{model.combine} {model.link}".encode())
    for tree in model.trees:
        for name in DTYPES:
            if name in _TOLD_ONLY or (name == "weight" and model.missing != "fractional"):
                continue
            if name in _OF_RULES and not tree.one_sided:  # the digests of others stay
                continue
            array = getattr(tree, name)
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    digest.update(np.ascontiguousarray(model.units, "<i8").tobytes())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Digest of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def certificate(report: Report) -> dict[str, Any]:
    """Gather all of a report as plain values."""
    coverage = report.coverage
    shown, never, given_up = coverage.wrong_turns
    bits, tried = coverage.last_bits
    return {
        "format": "treekit certificate",
        "version": CERTIFICATE_VERSION,
        "equal": report.equal,
        "model_sha256": report.model_sha256,
        "artifacts": [
            msgspec.to_builtins(artifact) | {"equal": artifact.equal}
            for artifact in report.artifacts
        ],
        "probes": report.probes,
        "coverage": {
            "complete": coverage.complete,
            "cut": coverage.cut,
            "parts": [msgspec.to_builtins(part) for part in coverage.parts],
            "wrong_turns": {"shown": shown, "never_shown": never, "undecided": given_up},
            "last_bits_of_sums": {"shown": bits, "tried": tried},
            "unreachable_nodes": [list(place) for place in coverage.unreachable],
        },
        "versions": report.versions,
        "lowering": report.lowering,
        "untried": [msgspec.to_builtins(untried) for untried in report.untried],
    }


def _finite(value: Any) -> Any:
    """Infinities, which JSON lacks, as text."""
    if isinstance(value, float) and math.isinf(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def write_certificate(report: Report, path: Path) -> None:
    """Write the certificate as JSON: all of it, or nothing.

    Raises
    ------
    VerificationError
        If the disk refuses.
    """
    content = json.dumps(_finite(certificate(report)), indent=2, allow_nan=False).encode()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with draft.open("xb") as stream:
            stream.write(content + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        raise VerificationError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
