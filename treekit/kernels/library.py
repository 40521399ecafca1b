"""The library of kernels: machine code that was built with the package.

A variant is a kernel compiled for one type of each argument.  `treekit.kernel_library.build`
compiles the variants of `treekit.kernel_library.variants` into one shared library.  Each has an
entry ``int32 entry(words, results)``: `words` are the arguments as 64-bit words, an array as the
address of its Python object; the result is written to `results`, and 0 is returned.  ctypes loads
and calls it; an object file that no linker has made a library is loaded by llvmlite.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from treekit.kernels.function_pointers import FunctionPointer

# ---------------------------------------------------------------- names of types and functions
# The build and the loader name a variant by the types of its arguments, and a built-in function
# by its code and its closure.


def describe_types(value: Any) -> str:
    """Describe the type of an argument or of a record: ``Rows(u4*,u4*,f8**)``.

    An array is written as its dtype and a star for each dimension, then ``F`` if it is
    Fortran-contiguous or ``A`` if it is not contiguous, and ``r`` if it is read-only.  A named
    tuple is written as its name and its fields; a Python int, float or bool as i8, f8 or b.
    """
    if isinstance(value, np.ndarray):
        flags = value.flags
        order = "" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        frozen = "" if flags.writeable else "r"
        return f"{value.dtype.str[1:]}{'*' * value.ndim}{order}{frozen}"
    if isinstance(value, tuple):
        name = type(value).__name__ if hasattr(value, "_fields") else ""
        return f"{name}({','.join(map(describe_types, value))})"
    if value is None or isinstance(value, FunctionPointer):
        return "None" if value is None else value.kind
    if isinstance(value, bool | np.bool_):
        return "b"
    if isinstance(value, np.generic):
        return value.dtype.str[1:]
    if isinstance(value, int | float):
        return "i8" if isinstance(value, int) else "f8"
    return "rng" if isinstance(value, np.random.Generator) else type(value).__name__


def copy_types(value: Any) -> Any:
    """Return a value of the same types, with arrays of one cell."""
    if isinstance(value, np.ndarray):
        is_transposed = value.flags.f_contiguous and not value.flags.c_contiguous
        copy = np.zeros((1,) * value.ndim, value.dtype, "F" if is_transposed else "C")
        copy.flags.writeable = value.flags.writeable
        return copy
    if isinstance(value, tuple):
        parts = map(copy_types, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def describe_function(function: Callable[..., Any]) -> str:
    """Return the name of a function of treekit, without the package."""
    return f"{function.__module__.removeprefix('treekit.')}.{function.__qualname__}"


def describe_functions(*values: Any) -> str | None:
    """Describe functions of treekit and plain values; None if there is anything else.

    A closure is described with the values of its cells: two functions of one description have the
    same machine code, as long as the sources are those of the library.
    """
    parts = [_describe_value(value) for value in values]
    return None if None in parts else ",".join(map(str, parts))


def _describe_value(value: Any) -> str | None:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple):
        inner = describe_functions(*value)
        return None if inner is None else f"({inner})"
    core = getattr(value, "py_func", value)
    # A function made by exec has no module.
    if not isinstance(core, FunctionType) or not str(core.__module__).startswith("treekit."):
        return None
    if core.__closure__ is None:
        return describe_function(core)
    try:
        inner = describe_functions(*(cell.cell_contents for cell in core.__closure__))
    except ValueError:  # a cell is not bound yet
        return None
    return None if inner is None else f"{describe_function(core)}[{inner}]"


# ---------------------------------------------------------------- files

FOLDER = Path(__file__).with_name("machine_code")
"""Folder of the library in an installation or a clone; absent before the first build."""

MANIFEST, SHARED, OBJECT = "library.json", "kernels.so", "kernels.o"

_ROOT = Path(__file__).parents[1]
_SOURCES = (
    "kernels/*.py", "*/kernels/*.py", "*/kernels.py",
    "compiling/criterion.py", "compiling/splitter.py",
    "components/criteria.py", "components/pruners.py", "contracts.py",
)  # fmt: skip
"""The files that machine code depends on."""

_NOT_COMPILED = frozenset({"compile.py", "library.py", "numba_compiler.py"})


@cache
def digest_sources() -> str:
    """Return a digest of the sources of all kernels and built-in components."""
    digest = hashlib.blake2b(digest_size=16)
    for pattern in _SOURCES:
        for path in sorted(_ROOT.glob(pattern)):
            if path.name not in _NOT_COMPILED:
                name = path.relative_to(_ROOT).as_posix()
                digest.update(f"{name}\0{digest_file(str(path))}\n".encode())
    return digest.hexdigest()


@cache
def digest_file(path: str) -> str:
    """Return a digest of a source file's contents, as they were when it was first asked for."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class Library:
    """A loaded library.

    Attributes
    ----------
    manifest : dict
        As written by `treekit.kernel_library.build`.
    addresses : sequence of int
        Of the entries and of the functions that kernels call by pointers.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.manifest = manifest
        if (folder / SHARED).exists():
            if sys.platform.startswith("linux"):
                _load_mathematics()
            code = ctypes.CDLL(str(folder / SHARED))

            def locate(name: str) -> int:
                return ctypes.addressof(ctypes.c_char.in_dll(code, name))

        else:
            code, locate = _load_object(folder / OBJECT)
        self._code = code  # never unloaded: arrays may own its memory
        n = int(manifest["n_addresses"])
        self.addresses = (ctypes.c_uint64 * n).from_address(locate("tk_table"))
        ctypes.c_int64.from_address(locate("tk_header")).value = object.__basicsize__
        self.release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(locate("tk_release"))
        self.pointers: Mapping[str, int] = manifest["pointers"]

    def find_variant(self, kernel: str, arguments: tuple[Any, ...]) -> Variant | None:
        """Return the variant of a kernel for the types of arguments, if there is one."""
        variants = self.manifest["kernels"].get(kernel)
        if not variants:
            return None
        form = find_form(variants, describe_types(arguments))
        return None if form is None else Variant(self, kernel, *variants[form])

    def is_built_by_this_numba(self) -> bool:
        """Return whether functions compiled here have the convention of the library's."""
        import numba

        return bool(numba.__version__ == self.manifest["numba"])

    def find_pointer(self, name: str) -> int:
        """Return the address of a built-in function; 0 if it is not in the library."""
        at = self.pointers.get(name, -1)
        return int(self.addresses[at]) if at >= 0 else 0


def find_form(forms: Collection[str], types: str) -> str | None:
    """Return the types, among those of a kernel's variants, that fit those of arguments, or None.

    A variant for arrays that are not contiguous also takes contiguous ones.  Whether an array is
    read-only does not matter: kernels do not write to arrays that may be.
    """
    name = types.replace("*r", "*")
    if name in forms:
        return name
    return next((form for form in forms if _accepts_gaps(form, name)), None)


def _accepts_gaps(form: str, name: str) -> bool:
    """Check whether a variant differs from the types of arguments by arrays with gaps only."""
    parts = form.split(","), name.split(",")
    if "*A" not in form or len(parts[0]) != len(parts[1]):
        return False
    return all(
        a == b or ("*A" in a and a.replace("*A", "*") == b.replace("*F", "*"))
        for a, b in zip(*parts, strict=True)
    )


def _load_mathematics() -> None:
    """Load the C library's mathematics for the library of kernels, which names no other library."""
    with suppress(OSError):  # musl has them in its C library
        ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)


def _load_object(path: Path) -> tuple[Any, Callable[[str], int]]:
    """Load an object file by llvmlite, on a machine that had no linker."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target)
    engine.add_object_file(binding.ObjectFileRef.from_data(path.read_bytes()))
    engine.finalize_object()
    return engine, engine.get_global_value_address


_loaded: list[Library | None] = []

_missing: set[str] = set()


def note_missing(name: str) -> None:
    """Add a variant that this process called and the library lacks."""
    _missing.add(name)


def list_missing() -> list[str]:
    """Return the variants that this process called and the library lacks: ``name(types)``."""
    return sorted(_missing)


def get_library() -> Library | None:
    """Return the library of this installation; None if there is none that fits."""
    if not _loaded:
        _loaded.append(_load(find_folder()) if explain_absence() is None else None)
    return _loaded[0]


def find_folder() -> Path:
    """Return the folder of the library."""
    return Path(os.environ.get("TREEKIT_KERNEL_FOLDER") or FOLDER)


@cache
def explain_absence() -> str | None:
    """Return the reason why no library is used, or None."""
    if os.environ.get("TREEKIT_KERNELS") == "none":
        return "TREEKIT_KERNELS is none"
    manifest = _read_manifest(find_folder())
    if not manifest:
        return "no library has been built"
    if manifest.get("sources") != digest_sources():
        return "the sources of kernels have changed since the library was built"
    if manifest.get("platform") != [sys.platform, os.uname().machine if os.name == "posix" else ""]:
        return "the library was built for another platform"
    if not is_supported(manifest["processor"], _describe_processor()):
        return f"this processor lacks instructions of {manifest['processor']}, such as AVX2"
    return (
        None
        if _has_known_arrays()
        else "this Python or numpy stores arrays in another layout than the library reads"
    )


def is_supported(processor: str, description: str) -> bool:
    """Return whether a processor has the instructions that a library was built for, or may have.

    Parameters
    ----------
    processor : str
        LLVM's name of what the library was built for.
    description : str
        The start of ``/proc/cpuinfo``; empty on systems other than Linux.
    """
    if processor != "x86-64-v3" or not description:
        return True
    lines = (line.partition(":") for line in description.splitlines())
    flags = next((value for name, _, value in lines if name.strip() == "flags"), "")
    return set(flags.split()) >= _V3_FEATURES


_V3_FEATURES = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
"""Features of x86-64-v3 in the words of Linux."""


def _describe_processor() -> str:
    """Return the start of ``/proc/cpuinfo``: a large machine has hundreds of cores."""
    if not sys.platform.startswith("linux"):
        return ""
    with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        return file.read(8192)


def _load(folder: Path) -> Library | None:
    return Library(folder, _read_manifest(folder))


@cache
def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _has_known_arrays() -> bool:
    """Check that an array object begins as numpy's headers have it: data, n, shape, strides."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        return False
    array, start = np.zeros((3, 5), np.uint16), object.__basicsize__
    data, n, shape, strides = struct.unpack("QqQQ", ctypes.string_at(id(array) + start, 32))
    if data != array.__array_interface__["data"][0] or n & 0xFFFFFFFF != array.ndim:
        return False
    stored = (tuple((ctypes.c_int64 * 2).from_address(at)) for at in (shape, strides))
    return tuple(stored) == (array.shape, array.strides)


# ---------------------------------------------------------------- calls


class Variant:
    """A kernel for one type of each argument.

    Parameters
    ----------
    library : Library
    kernel : str
    at : int
        Place of its entry among the library's addresses.
    form : list
        Types of its result, see `_restore`.
    n_results : int
        Number of words of its result.
    """

    def __init__(
        self, library: Library, kernel: str, at: int, form: list[Any], n_results: int
    ) -> None:
        self.library, self.kernel = library, kernel
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)
        self.entry = kind(library.addresses[at])
        self.form = _prepare_form(form)
        self.results = ctypes.c_int64 * max(n_results, 1)
        self.pack: Callable[..., bytes] | None = None

    def call(self, words: list[Any]) -> Any:
        """Call the kernel with the words of its arguments, which the caller keeps alive."""
        if self.pack is None:
            codes = ("d" if isinstance(word, float) else "Q" for word in words)
            self.pack = struct.Struct("".join(codes)).pack
        results = self.results()
        status = self.entry(self.pack(*words), ctypes.addressof(results))
        if status:
            raise _read_exception(self.kernel, status, results[0])
        return _restore(self.form, results, 0, self.library)[0]


def bind_words(
    variant: Variant, words: list[Any], kept: tuple[Any, ...]
) -> Callable[[Any, Any], Any]:
    """Return a variant as a function of its first and last argument, which are arrays.

    Parameters
    ----------
    words : list
        Of the arguments between them.
    kept : tuple
        The objects that `words` refer to, which must live as long as the function.
    """
    codes = ("d" if isinstance(word, float) else "Q" for word in words)
    pack = struct.Struct(f"Q{''.join(codes)}Q").pack
    entry, results = variant.entry, variant.results

    def call(first: Any, last: Any, _: Any = kept) -> Any:
        answer = results()
        status = entry(pack(id(first), *words, id(last)), ctypes.addressof(answer))
        if status:
            raise _read_exception(variant.kernel, status, answer[0])
        return answer[0]

    return call


def flatten(values: Iterable[Any], types: list[Any], words: list[Any]) -> None:
    """Append the types of arguments to one list, and their words to another.

    Equal lists of types have the same variant.
    """
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            types.append(value.dtype)
            types.append(value.ndim + (value.flags.num & 0x103) * 32)
            words.append(id(value))
        elif kind is int:
            types.append(int)
            words.append(value & 0xFFFFFFFFFFFFFFFF)
        elif kind is float:
            types.append(float)
            words.append(value)
        elif value is None:
            types.append(None)
        elif isinstance(value, tuple):
            types.append(kind)
            if kind is tuple:
                types.append(len(value))
            flatten(value, types, words)
        elif kind is FunctionPointer:
            types.append(value.kind)
            words += value.find_words()
        elif isinstance(value, np.ndarray):
            types.append(value.dtype)
            types.append(value.ndim + (value.flags.num & 0x103) * 32)
            words.append(id(value))
        elif isinstance(value, bool | np.bool_):
            types.append(bool)
            words.append(int(value))
        elif isinstance(value, np.floating):
            types.append(value.dtype)
            words.append(float(value))
        elif isinstance(value, np.integer):
            types.append(value.dtype)
            words.append(int(value) & 0xFFFFFFFFFFFFFFFF)
        elif isinstance(value, np.random.Generator):
            types.append(np.random.Generator)
            words += _find_generator(value)
        else:
            types.append(kind)


def _find_generator(generator: np.random.Generator) -> list[int]:
    """Return the addresses in a generator's interface for C: its state, and three functions."""
    interface = generator.bit_generator.ctypes
    state, *functions, bits = interface.state_address, *interface[2:5], interface.bit_generator
    return [state, *(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in (*functions, bits))]


def _prepare_form(form: list[Any]) -> tuple[Any, ...]:
    """Prepare the form of a result for `_restore`: dtypes and record classes."""
    kind, *others = form
    if kind == "a":
        name, n = others
        return "a", np.dtype(name), n
    if kind == "t":
        place, parts = others
        record = tuple if place is None else getattr(import_module(place[0]), place[1])
        return "t", record, [_prepare_form(part) for part in parts]
    return tuple(form)


def _restore(form: tuple[Any, ...], words: Any, at: int, library: Library) -> tuple[Any, int]:
    """Return the result of a form from the words at a place, and the place behind it.

    Forms are ``("a", dtype, dimensions)`` of an array, ``("t", record, forms)`` of a record or
    tuple, and ``("n",)``, ``("i",)``, ``("u",)``, ``("f",)`` and ``("b",)`` of None and numbers.
    """
    kind = form[0]
    if kind == "a":
        _, dtype, n = form
        end = at + 3 + n
        owner, parent, data, *shape = words[at:end]
        return _make_array(library, dtype, owner, parent, data, tuple(shape)), end
    if kind == "t":
        parts = []
        for each in form[2]:
            part, at = _restore(each, words, at, library)
            parts.append(part)
        return (tuple(parts) if form[1] is tuple else form[1](*parts)), at
    if kind == "n":
        return None, at
    word = words[at]
    if kind == "f":
        return struct.unpack("d", struct.pack("q", word))[0], at + 1
    if kind == "b":
        return bool(word & 1), at + 1
    return (word & 0xFFFFFFFFFFFFFFFF if kind == "u" else word), at + 1


class _Memory:
    """Memory that a kernel allocated; numpy's arrays over it keep this object."""

    def __init__(self, library: Library, owner: int, interface: dict[str, Any]) -> None:
        self._library, self._owner = library, owner
        self.__array_interface__ = interface

    def __del__(self) -> None:
        self._library.release(self._owner)


class _Part:
    """A part of an argument, which it keeps."""

    def __init__(self, argument: Any, interface: dict[str, Any]) -> None:
        self._argument = argument
        self.__array_interface__ = interface


def _make_array(
    library: Library, dtype: Any, owner: int, parent: int, data: int, shape: tuple[int, ...]
) -> Any:
    """Return a new array, or the argument that a kernel returned, or a part of it."""
    if not owner:
        argument = ctypes.cast(parent, ctypes.py_object).value
        start = argument.__array_interface__["data"][0]
        if (start, argument.shape) == (data, shape):
            return argument
    interface = {"data": (data, False), "shape": shape, "typestr": dtype.str, "version": 3}
    array = np.asarray(_Memory(library, owner, interface) if owner else _Part(argument, interface))
    return array if dtype.names is None else array.view(dtype)


def _read_exception(kernel: str, status: int, place: int) -> BaseException:
    """Return the exception that a plugin's function raised, or that there was no memory."""
    if status > 0 and place:
        data, size, _, _, dynamic = struct.unpack("QixxxxQQi", ctypes.string_at(place, 36))
        if not dynamic:
            kind, arguments, *_ = pickle.loads(ctypes.string_at(data, size))  # noqa: S301 - of numba
            return kind(*(arguments or ()))
    return RuntimeError(f"{kernel} ended with status {status}")
