"""Build the library of kernels: machine code of all variants, with a plain C entry for each.

usage: python -m treekit.kernel_library.build [--usual] [--into DIR] [--no-linker] [--cache]
           [--verbose]

numba compiles the variants of `treekit.kernel_library.variants` in several processes; their LLVM
modules are linked as one library.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import version
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from treekit.kernel_library.entries import BuildError, Part, compile_part
from treekit.kernel_library.link import JoinedModule, find_linkers, link
from treekit.kernel_library.variants import iterate_kernels, iterate_pointers
from treekit.kernels.library import FOLDER, MANIFEST, OBJECT, SHARED, digest_file, digest_sources

_BASELINES = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3"}
"""Processor to build for, by the name of the machine; others: LLVM's generic one."""


def build(
    folder: Path,
    *,
    usual: bool = False,
    use_linker: bool = True,
    report: Callable[[str], object] = bool,
) -> dict[str, Any]:
    """Build the library into a folder, and return its manifest, the contents of ``library.json``.

    Parameters
    ----------
    folder : Path
    usual : bool
        Build only what ``treekit demo`` and ``treekit serve`` call.
    use_linker : bool
        Otherwise, or without a linker, the object file is kept.
    report : callable
        Called with the name of each kernel, and of each function that kernels call by pointer.

    Raises
    ------
    BuildError
        If numba has been imported, or the library does not work on this machine.
    """
    if "numba" in sys.modules:
        raise BuildError("numba has been imported before its processor was set")
    settings = {"NUMBA_CPU_NAME": _choose_processor(), "NUMBA_CPU_FEATURES": ""}
    os.environ |= settings | {"NUMBA_DISABLE_INTEL_SVML": "1", "TREEKIT_KERNELS": "none"}
    joined = JoinedModule()
    kernels: dict[str, dict[str, Any]] = {}
    pointers: dict[str, int] = {}
    release = ""
    for part in _compile_parts(usual=usual):
        report(part.name)
        at, release = joined.add(part), part.numba
        if part.types is None:
            pointers[part.name] = at
        else:
            kernels.setdefault(part.name, {})[part.types] = [at, part.form, part.n_words]
    report("machine code")
    code = joined.emit()
    manifest = {
        "numba": release,
        "platform": [sys.platform, platform.machine()],
        "processor": settings["NUMBA_CPU_NAME"],
        "variants": "usual" if usual else "all",
        "sources": digest_sources(),
        "n_addresses": len(joined.names),
        "kernels": kernels,
        "pointers": pointers,
    }
    _write(folder, code, manifest, use_linker=use_linker)
    _try_library(folder)
    return manifest


MAX_PROCESSES = 4
"""Largest number of processes that compile: each takes up to 1 GB of memory."""


def _compile_parts(*, usual: bool) -> Iterator[Part]:
    """Compile all parts in several processes, and yield them in the order of the lists."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    n_processes = min(MAX_PROCESSES, available or 1)
    # Those that take longest come first, so that no process has to wait for another's last one.
    parts: list[Any] = [pointer.name for pointer in iterate_pointers(usual=usual)]
    parts += range(sum(1 for _ in iterate_kernels(usual=usual)))
    with ProcessPoolExecutor(n_processes, get_context("spawn")) as pool:
        yield from pool.map(compile_part, parts, repeat(usual))


def _choose_processor() -> str:
    """Return the processor to build for: a baseline, or LLVM's generic one of an older machine."""
    from llvmlite import binding

    wanted = _BASELINES.get(platform.machine(), "generic")
    if wanted != "x86-64-v3":
        return wanted
    try:
        host = binding.get_host_cpu_features()
    except RuntimeError:
        return "x86-64"
    needed = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
    return wanted if all(host.get(feature) for feature in needed) else "x86-64"


def _write(folder: Path, code: bytes, manifest: dict[str, Any], *, use_linker: bool) -> None:
    """Link the object, if there is a linker, and write the files; the manifest comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (MANIFEST, SHARED, OBJECT):
        (folder / name).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        source, target = Path(made, OBJECT), Path(made, SHARED)
        source.write_bytes(code)
        linked = use_linker and link(source, target)
        shutil.move(target if linked else source, folder / (SHARED if linked else OBJECT))
        text = json.dumps(manifest, separators=(",", ":")) + "\n"
        Path(made, MANIFEST).write_text(text, encoding="utf-8")
        shutil.move(Path(made, MANIFEST), folder / MANIFEST)


# ---------------------------------------------------------------- finished libraries

MAX_KEPT = 4
"""Maximum number of libraries in the user's cache; the oldest are deleted first."""


def build_once(folder: Path, **options: Any) -> dict[str, Any]:
    """Copy the library from the user's cache (`~/.cache/treekit` on Linux), or build it into both.

    Parameters and result are those of `build`.
    """
    kept = _find_kept(options)
    if kept is not None and _copy_library(kept, folder):
        found: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return found
    made = build(folder, **options)
    if kept is not None:
        with suppress(OSError):
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=kept.parent) as own:
                if _copy_library(folder, Path(own, kept.name)):
                    Path(own, kept.name).rename(kept)
            others = sorted(kept.parent.glob("library-*"), key=lambda path: path.stat().st_mtime)
            for old in others[:-MAX_KEPT]:
                shutil.rmtree(old, ignore_errors=True)
    return made


_TRY = """
import sys
import numpy as np
from treekit.kernels import library
from treekit.kernels.pruning import sum_leaves_below
from treekit.model.tree import Split

kind = np.array([Split.THRESHOLD, Split.LEAF, Split.LEAF], np.uint8)
first, count = np.array([1, 0, 0], np.int32), np.array([2, 0, 0], np.int32)
found = sum_leaves_below(kind, first, count, np.array([0.0, 1.0, 2.0]))
sys.exit(library.explain_absence() or found[0] != 3.0 or "numba" in sys.modules)
"""


def _try_library(folder: Path) -> None:
    """Load the library in a process of its own, and call a kernel."""
    settings = {"TREEKIT_KERNEL_FOLDER": str(folder.resolve()), "TREEKIT_KERNELS": "all"}
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", _TRY], env=os.environ | settings | {"PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        (folder / MANIFEST).unlink()
        raise BuildError(f"the library does not work here: {done.stderr.strip()[-500:]}")


def _find_kept(options: Mapping[str, Any]) -> Path | None:
    """Return the folder in the user's cache for what a library depends on; None: no cache."""
    own = Path(__file__).parent.glob("*.py")
    facts = (
        digest_sources(), sorted(digest_file(str(path)) for path in own), version("numba"),
        version("llvmlite"), sys.platform, platform.machine(), _choose_processor(),
        options.get("usual"), options.get("use_linker"), find_linkers(),
    )  # fmt: skip
    name = f"library-{blake2b(repr(facts).encode(), digest_size=8).hexdigest()}"
    try:
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # the user has no home
        return None
    return Path(base, "treekit", name)


def _copy_library(source: Path, folder: Path) -> bool:
    """Copy a library, the manifest last; return False if there is none."""
    code = [source / name for name in (SHARED, OBJECT) if (source / name).exists()]
    if not code or not (source / MANIFEST).exists():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for name in (MANIFEST, SHARED, OBJECT):
        (folder / name).unlink(missing_ok=True)
    for path in (*code, source / MANIFEST):
        shutil.copyfile(path, folder / path.name)
    return True


# ---------------------------------------------------------------- command


def main() -> None:
    """Build the library, and print its size and the time."""
    parser = argparse.ArgumentParser("python -m treekit.kernel_library.build")
    parser.add_argument("--into", metavar="DIR", default=str(FOLDER))
    parser.add_argument("--usual", action="store_true", help="leave out the rarer variants")
    parser.add_argument("--no-linker", action="store_true", help="keep the object file")
    parser.add_argument("--cache", action="store_true", help="take or keep it in the user's cache")
    parser.add_argument("--verbose", action="store_true", help="show each kernel")
    given = parser.parse_args()
    start, folder = time.process_time(), Path(given.into)

    def show(name: str) -> None:
        sys.stderr.write(f"{time.process_time() - start:7.1f} s  {name[:100]}\n")

    report = show if given.verbose else bool
    make = build_once if given.cache else build
    made = make(folder, usual=given.usual, use_linker=not given.no_linker, report=report)
    files = [folder / name for name in (SHARED, OBJECT)]
    size = sum(path.stat().st_size for path in files if path.exists())
    n_kernels = sum(map(len, made["kernels"].values()))
    sys.stdout.write(
        f"{n_kernels} kernels and {len(made['pointers'])} functions, {size / 1e3:.0f} kB, in "
        f"{time.process_time() - start:.1f} s of CPU: {folder}\n"
    )


if __name__ == "__main__":
    main()
