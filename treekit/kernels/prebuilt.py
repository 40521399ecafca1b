"""Machine code that comes with a wheel: recording it at build time, and checking it on use.

A wheel built with ``TREEKIT_PREBUILD=1`` (see ``hatch_build.py``) holds the machine code of the
usual kernels, compiled for a baseline of processors.  It is used where numba would produce the
same code for that baseline; everywhere else the kernels compile on first use.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("machine_code")
"""Folder of the machine code in an installed wheel; absent in a clone."""

BASELINES = {
    **dict.fromkeys(("x86_64", "AMD64"), "x86-64-v3"),
    **dict.fromkeys(("aarch64", "arm64"), "generic"),
}
"""LLVM's name of the processor to compile for, by the name of the machine."""

FEATURES = {
    "x86-64-v3": (
        "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf",
        "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
    ),
    "generic": (),
}  # fmt: skip
"""Features that a processor needs to run code of a baseline, in LLVM's names."""

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Store:
    """A folder of machine code, all compiled for one processor.

    Attributes
    ----------
    folder : Path
    target : tuple of str
        Platform and processor.
    recorded : bool
        Whether the machine code is being recorded, and not only read.
    """

    folder: Path
    target: tuple[str, str]
    recorded: bool = False


# ---------------------------------------------------------------- use


@cache
def find_store() -> Store | None:
    """Return the machine code of the installed wheel, or None if it cannot be used here."""
    if _recording:
        return _recording[0]
    if explain_refusal() is not None:
        return None
    facts = _read_manifest()
    return Store(FOLDER, (str(facts["platform"]), str(facts["processor"])))


def explain_refusal() -> str | None:
    """Return the reason why the machine code of the wheel is not used; None: it is used."""
    from numba.core import config

    if os.environ.get("TREEKIT_MACHINE_CODE") == "0":
        return "TREEKIT_MACHINE_CODE is 0"
    if config.CPU_NAME or config.CPU_FEATURES or not config.ENABLE_AVX:
        return "numba's settings name a processor (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES)"
    facts = _read_manifest()
    if not facts:
        return "this installation brings none"
    return find_mismatch(facts, describe_process(), _list_host_features())


def find_mismatch(
    built: Mapping[str, str], here: Mapping[str, str], features: frozenset[str]
) -> str | None:
    """Compare the facts of machine code with those of a process; return the first difference.

    Parameters
    ----------
    built : mapping
        The manifest: the facts of `describe_process`, and ``processor``.
    here : mapping
    features : frozenset of str
        Features of this machine's processor, in LLVM's names.
    """
    for name, value in here.items():
        if built.get(name) != value:
            return f"{name}: built for {built.get(name)}, here {value}"
    processor = built.get("processor", "")
    needed = FEATURES.get(processor)
    if needed is None:
        return f"processor: built for {processor}, which is unknown"
    missing = [name for name in needed if name not in features]
    return f"processor: {processor} has {', '.join(missing)}, this one has not" if missing else None


def describe_process() -> dict[str, str]:
    """Return the facts that must be equal for machine code to be used."""
    import llvmlite
    import numba
    from llvmlite import binding

    return {
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "python": f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}",
        "platform": binding.get_process_triple(),
        "sources": digest_kernel_sources(),
    }


@cache
def digest_kernel_sources() -> str:
    """Return a digest of the names and contents of all modules of kernels."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name == "library.py":  # no machine code comes of it
            continue
        digest.update(f"{path.name}\0{digest_file(str(path))}\n".encode())
    return digest.hexdigest()


@cache
def digest_file(path: str) -> str:
    """Return a digest of a source file's contents, as they were when it was first asked for."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _read_manifest() -> dict[str, str]:
    """Return the facts of the wheel's machine code; empty if there is none."""
    try:
        facts = json.loads((FOLDER / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _list_host_features() -> frozenset[str]:
    from llvmlite import binding

    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this machine
        return frozenset()
    return frozenset(name for name, present in features.items() if present)


# ---------------------------------------------------------------- recording

_recording: list[Store] = []


def get_baseline() -> str | None:
    """Return the processor to compile wheels for on this kind of machine; None: do not."""
    return BASELINES.get(platform.machine())


def record_machine_code(folder: Path) -> None:
    """Store all machine code compiled from now on in a folder, as a wheel brings it.

    numba must have been set to the baseline by ``NUMBA_CPU_NAME``.
    """
    from numba.core import config

    processor = get_baseline()
    if processor is None or config.CPU_NAME != processor:
        raise RuntimeError(f"NUMBA_CPU_NAME is {config.CPU_NAME}; machine code needs {processor}")
    facts = describe_process()
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**facts, "processor": processor}, indent=2) + "\n"
    (folder / _MANIFEST).write_text(text, encoding="utf-8")
    _recording[:] = [Store(folder, (facts["platform"], processor), recorded=True)]
    find_store.cache_clear()
