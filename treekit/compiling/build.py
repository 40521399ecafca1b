"""Build the library of kernels: machine code of all variants, with a plain C entry for each.

usage: python -m treekit.compiling.build [--into DIR] [--no-linker]

numba compiles the variants of `treekit.compiling.variants` in several processes; their optimised
modules are linked and emitted as one object, which needs the C library only.  The parts of numba
that are private are used here alone, and a build fails if one has moved.
"""

from __future__ import annotations

import argparse
import importlib
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
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import count, islice, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from treekit.kernels.library import (
    FOLDER,
    MANIFEST,
    OBJECT,
    SHARED,
    describe_functions,
    describe_types,
    digest_file,
    digest_sources,
)  # fmt: skip

_BASELINES = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3"}
"""Processor to build for, by the name of the machine; others: LLVM's generic one."""


class BuildError(RuntimeError):
    """The library cannot be built; the message names the reason."""


def build(
    folder: Path,
    *,
    usual: bool = False,
    use_linker: bool = True,
    report: Callable[[str], object] = bool,
) -> dict[str, Any]:
    """Build the library into a folder, and return its manifest.

    With `usual` only the variants of common trainings are built.  `report` is called with the name
    of each kernel and function.

    Raises
    ------
    BuildError
    """
    if "numba" in sys.modules:
        raise BuildError("numba has been imported before its processor was set")
    settings = {"NUMBA_CPU_NAME": _choose_processor(), "NUMBA_CPU_FEATURES": ""}
    os.environ |= settings | {"NUMBA_DISABLE_INTEL_SVML": "1", "TREEKIT_KERNELS": "none"}
    joined = _Joined()
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
    return manifest


# ---------------------------------------------------------------- compilation of the parts


@dataclass(frozen=True)
class _Part:
    """The code of one variant of a kernel, or of one function that kernels call.

    Attributes
    ----------
    name : str
        Name of the kernel or function in the manifest.
    symbol : str
        Name of the entry or function in the code.
    code : bytes
        LLVM's bitcode.
    numba : str
        Release of numba.
    types : str or None
        Of a kernel's arguments; None: a function.
    form, n_words
        Of a kernel's result; see `treekit.kernels.library`.
    """

    name: str
    symbol: str
    code: bytes
    numba: str
    types: str | None = None
    form: list[Any] | None = None
    n_words: int = 0


MAX_PROCESSES = 4
"""Largest number of processes that compile: each takes 500 MB of memory."""


def _compile_parts(*, usual: bool) -> Iterator[_Part]:
    """Compile all parts in several processes, and yield them in the order of the lists."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    n_processes = min(MAX_PROCESSES, available or 1)
    from treekit.compiling.variants import iterate_kernels, iterate_pointers

    # Those that take longest come first, so that no process has to wait for another's last one.
    parts: list[Any] = [pointer.name for pointer in iterate_pointers(usual=usual)]
    parts += range(sum(1 for _ in iterate_kernels(usual=usual)))
    with ProcessPoolExecutor(n_processes, get_context("spawn")) as pool:
        yield from pool.map(_compile_part, parts, repeat(usual))


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


def _compile_part(part: int | str, usual: bool) -> _Part:
    """Compile the kernel at a place of the list, or the function of a name, in this process."""
    compiler = _get_compiler()
    if isinstance(part, str):
        return compiler.compile_pointer(_list_pointers(usual)[part])
    from treekit.compiling.variants import iterate_kernels

    name, arguments = next(islice(iterate_kernels(usual=usual), part, None))
    return compiler.compile_kernel(name, arguments, f"tk_{part}")


@cache
def _list_pointers(usual: bool) -> dict[str, Any]:
    from treekit.compiling.variants import iterate_pointers

    return {pointer.name: pointer for pointer in iterate_pointers(usual=usual)}


@cache
def _get_compiler() -> _Compiler:
    return _Compiler()


class _Compiler:
    """numba in this process, with the parts of it that are private."""

    def __init__(self) -> None:
        import numba
        from llvmlite import binding, ir

        try:
            from numba.core import cgutils
            from numba.core.bytecode import FunctionIdentity
            from numba.core.registry import cpu_target
            from numba.np.arrayobj import make_array, populate_array
        except ImportError as error:
            raise BuildError(f"a private part of numba has moved: {error}") from error
        self.ir, self.binding, self.cgutils, self.numba = ir, binding, cgutils, numba
        self.context = cpu_target.target_context
        self.make_array, self.populate_array = make_array, populate_array
        importlib.import_module("treekit.kernels.numba_compiler")  # sets the ids that follow
        # Functions of numba have an id of their own in each process.
        FunctionIdentity._unique_ids = count(os.getpid() << 32)
        _name_functions_alike(FunctionIdentity)

    def compile_kernel(self, name: str, arguments: tuple[Any, ...], symbol: str) -> _Part:
        """Compile a kernel for the types of some arguments, with an entry for C."""
        module, _, function = name.rpartition(".")
        kernel = getattr(importlib.import_module(f"treekit.kernels.{module}"), function)
        types = tuple(map(self.numba.typeof, arguments))
        kernel.targetoptions["no_cpython_wrapper"] = True
        try:
            kernel.compile(types)
        except Exception as error:
            raise BuildError(f"{name} does not compile for {types}: {error}") from error
        found = kernel.overloads.get(types)
        if found is None:
            raise BuildError(f"numba compiled {name} for other types than {types}")
        whole = self.binding.parse_assembly("")
        form, n_words = self._add_entry(whole, symbol, found)
        whole.link_in(self._get_module(found.library), preserve=True)
        code, version = whole.as_bitcode(), self.numba.__version__
        return _Part(name, symbol, code, version, describe_types(arguments), form, n_words)

    def compile_pointer(self, pointer: Any) -> _Part:
        """Compile a function that kernels call by a pointer."""
        made = pointer.compiled._compile_result
        name = made.fndesc.llvm_func_name
        part = self._get_module(made.library).clone()
        part.get_function(name).linkage = "external"  # what is `linkonce` and not called is dropped
        return _Part(pointer.name, name, part.as_bitcode(), self.numba.__version__)

    def _get_module(self, library: Any) -> Any:
        try:
            return library._get_module_for_linking()
        except AttributeError as error:
            raise BuildError(f"a private part of numba has moved: {error}") from error

    def _add_entry(self, whole: Any, name: str, made: Any) -> tuple[list[Any], int]:
        """Add ``int32 name(words, results)``, which calls a compiled function."""
        ir, context, described = self.ir, self.context, made.fndesc
        module = ir.Module(name)
        word = ir.IntType(64).as_pointer()
        entry = ir.Function(module, ir.FunctionType(ir.IntType(32), [word, word]), name)
        builder = ir.IRBuilder(entry.append_basic_block())
        header = ir.GlobalVariable(module, ir.IntType(64), "tk_header")
        words = _Words(self, builder, entry.args[0], builder.load(header))
        function = context.declare_function(module, described)
        arguments = [words.read(kind) for kind in described.argtypes]
        status, value = context.call_conv.call_function(
            builder, function, described.restype, described.argtypes, arguments
        )
        results = _Words(self, builder, entry.args[1], None)
        with builder.if_then(builder.not_(status.is_ok), likely=False):
            builder.store(builder.ptrtoint(status.excinfoptr, ir.IntType(64)), entry.args[1])
            builder.ret(status.code)
        form = results.write(described.restype, value)
        builder.ret(ir.Constant(ir.IntType(32), 0))
        text = self.cgutils.normalize_ir_text(str(module))
        whole.link_in(self.binding.parse_assembly(text))
        return form, results.n


def _name_functions_alike(identity: Any) -> None:
    """Let numba give a function of treekit the same symbol in every process.

    The linker then keeps one copy of a helper that several processes compiled.
    """
    make = identity.from_function.__func__

    def from_function(kind: Any, function: Any) -> Any:
        made = make(kind, function)
        described = describe_functions(made.func)
        if described is not None:
            text = f"{described} {made.firstlineno}"
            made.unique_id = int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")
            made.unique_name = f"{made.func_qualname}${made.unique_id}"
        return made

    identity.from_function = classmethod(from_function)


# ---------------------------------------------------------------- the library


def _write(folder: Path, code: bytes, manifest: dict[str, Any], *, use_linker: bool) -> None:
    """Link the object, if there is a linker, and write the files; the manifest comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (MANIFEST, SHARED, OBJECT):
        (folder / name).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        source, target = Path(made, OBJECT), Path(made, SHARED)
        source.write_bytes(code)
        linked = use_linker and _link(source, target)
        shutil.move(target if linked else source, folder / (SHARED if linked else OBJECT))
        text = json.dumps(manifest, separators=(",", ":")) + "\n"
        Path(made, MANIFEST).write_text(text, encoding="utf-8")
        shutil.move(Path(made, MANIFEST), folder / MANIFEST)


def _link(source: Path, target: Path) -> bool:
    """Link an object as a shared library by the first linker that works; False: there is none.

    On Linux the library names no other one: its few functions of the C library are those of the
    process, of any release (`treekit.kernels.library` loads the mathematics).
    """
    files = ["-shared", "-o", str(target), str(source)]
    alone = [] if sys.platform == "darwin" else ["-nostdlib", "-Wl,-s", "-Wl,--build-id=none"]
    for name in _find_linkers():
        command = [name, *(["-s"] if name == "ld" else alone), *files]
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        if done.returncode == 0 and target.exists():
            return True
    return False


def _find_linkers() -> list[str]:
    return [name for name in ("cc", "gcc", "clang", "ld") if shutil.which(name)]


class _Joined:
    """The module that the parts are linked into."""

    def __init__(self) -> None:
        from llvmlite import binding

        self.binding = binding
        self.names: list[str] = []
        self.whole = binding.parse_assembly(f'target triple = "{binding.get_process_triple()}"')
        self.whole.name = "treekit"

    def add(self, part: _Part) -> int:
        """Add a part, and return the place of its address."""
        if part.symbol not in self.names:
            self.whole.link_in(self.binding.parse_bitcode(part.code))
            self.names.append(part.symbol)
        return self.names.index(part.symbol)

    def emit(self) -> bytes:
        """Return the object: a table of all addresses, and what they need."""
        binding = self.binding
        addresses = ", ".join(f'ptr @"{name}"' for name in self.names)
        declared = "\n".join(f'declare void @"{name}"()' for name in dict.fromkeys(self.names))
        n = len(self.names)
        table = f"@tk_table = constant [{n} x ptr] [{addresses}]\n{declared}\n"
        self.whole.link_in(binding.parse_assembly(table))
        self.whole.link_in(binding.parse_assembly(_RUNTIME + _make_stubs()))
        for function in self.whole.functions:
            if not function.is_declaration:
                kept = function.name == "tk_release"
                function.linkage = "external" if kept else "internal"
        for variable in self.whole.global_variables:
            if not variable.is_declaration and variable.name not in ("tk_table", "tk_header"):
                variable.linkage = "internal"
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        target = binding.Target.from_triple(binding.get_process_triple())
        processor = os.environ["NUMBA_CPU_NAME"]
        machine = target.create_target_machine(
            cpu=processor, features="", opt=3, reloc="pic", codemodel="default"
        )
        tuning = binding.create_pipeline_tuning_options(speed_level=0)
        passes = binding.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        passes.run(self.whole, binding.create_pass_builder(machine, tuning))
        self.whole.verify()
        needed = {f.name for f in self.whole.functions if f.is_declaration} - _LIBC
        needed |= {v.name for v in self.whole.global_variables if v.is_declaration}
        unknown = sorted(name for name in needed if not name.startswith("llvm."))
        if unknown:
            raise BuildError(f"kernels need functions that nothing provides: {', '.join(unknown)}")
        return bytes(machine.emit_object(self.whole))


class _Words:
    """Reads arguments from a block of words, or writes results to one."""

    def __init__(self, module: _Compiler, builder: Any, start: Any, header: Any) -> None:
        self.module, self.builder, self.start, self.header = module, builder, start, header
        self.n = 0
        self.word = module.ir.IntType(64)

    def _find_place(self) -> Any:
        place = self.builder.gep(self.start, [self.module.ir.Constant(self.word, self.n)])
        self.n += 1
        return place

    def _take(self) -> Any:
        return self.builder.load(self._find_place())

    def _load_at(self, address: Any, offset: int) -> Any:
        place = self.builder.add(address, self.module.ir.Constant(self.word, offset))
        return self.builder.load(self.builder.inttoptr(place, self.word.as_pointer()))

    def read(self, kind: Any) -> Any:
        """Return the value of a type."""
        from numba import types
        from numba.core import cgutils

        builder, ir, context = self.builder, self.module.ir, self.module.context
        if isinstance(kind, types.Array):
            return self._read_array(kind)
        if isinstance(kind, types.BaseTuple):
            value = context.get_value_type(kind)(ir.Undefined)
            for at, part in enumerate(kind.types):
                value = builder.insert_value(value, self.read(part), at)
            return value
        if isinstance(kind, types.NoneType):
            return context.get_dummy_value()
        if isinstance(kind, types.FunctionType):
            pointer = cgutils.create_struct_proxy(kind)(context, builder)
            for name in ("c_addr", "py_addr", "jit_addr"):
                setattr(pointer, name, builder.inttoptr(self._take(), ir.IntType(8).as_pointer()))
            return pointer._getvalue()
        if isinstance(kind, types.NumPyRandomGeneratorType):
            return self._read_generator(kind)
        if isinstance(kind, types.Float):
            number = builder.bitcast(self._take(), ir.DoubleType())
            return number if kind.bitwidth == 64 else builder.fptrunc(number, ir.FloatType())
        if isinstance(kind, types.Boolean):
            return builder.trunc(self._take(), ir.IntType(1))
        if isinstance(kind, types.Integer):
            word = self._take()
            return word if kind.bitwidth == 64 else builder.trunc(word, ir.IntType(kind.bitwidth))
        raise BuildError(f"an argument of type {kind} cannot be passed")

    def _read_array(self, kind: Any) -> Any:
        """Return the array of an object: numpy's headers let extensions read its first fields."""
        from numba import types
        from numba.np.numpy_support import as_dtype

        builder, context = self.builder, self.module.context
        array = self.module.make_array(kind)(context, builder)
        own = self._take()
        fields = builder.add(own, self.header)
        shape, strides = self._load_at(fields, 16), self._load_at(fields, 24)
        size = as_dtype(kind.dtype).itemsize
        self.module.populate_array(
            array,
            data=builder.inttoptr(self._load_at(fields, 0), array.data.type),
            shape=[self._load_at(shape, 8 * at) for at in range(kind.ndim)],
            strides=[self._load_at(strides, 8 * at) for at in range(kind.ndim)],
            itemsize=context.get_constant(types.intp, size),
            meminfo=None,
            parent=builder.inttoptr(own, array.parent.type),
        )
        return array._getvalue()

    def _read_generator(self, kind: Any) -> Any:
        from numba.core import cgutils

        builder, context = self.builder, self.module.context
        generator = cgutils.create_struct_proxy(kind)(context, builder)
        bits_type = context.data_model_manager[kind].get_type("bit_generator")
        bits = cgutils.create_struct_proxy(bits_type)(context, builder)
        state = self._take()
        bits.state_address = bits.state = state
        bits.fnptr_next_uint64, bits.fnptr_next_uint32 = self._take(), self._take()
        bits.fnptr_next_double, bits.bit_generator = self._take(), self._take()
        bits.parent = bits.parent.type(None)
        generator.bit_generator = bits._getvalue()
        generator.meminfo = generator.meminfo.type(None)
        generator.parent = generator.parent.type(None)
        return generator._getvalue()

    def write(self, kind: Any, value: Any) -> list[Any]:
        """Write a value, and return its form; see `treekit.kernels.library`."""
        from numba import types
        from numba.core import cgutils
        from numba.np.numpy_support import as_dtype

        builder, context = self.builder, self.module.context
        if isinstance(kind, types.Array):
            if kind.layout != "C":
                raise BuildError(f"a result of type {kind} cannot be returned: it may have gaps")
            array = self.module.make_array(kind)(context, builder, value)
            for part in (array.meminfo, array.parent, array.data):
                self._put(part)
            for extent in cgutils.unpack_tuple(builder, array.shape):
                self._put(extent)
            dtype = as_dtype(kind.dtype)
            return ["a", dtype.str if dtype.names is None else _describe_fields(dtype), kind.ndim]
        if isinstance(kind, types.BaseTuple):
            record = getattr(kind, "instance_class", None)
            place = None if record is None else [record.__module__, record.__qualname__]
            parts = [
                self.write(part, builder.extract_value(value, at))
                for at, part in enumerate(kind.types)
            ]
            return ["t", place, parts]
        if isinstance(kind, types.NoneType):
            return ["n"]
        self._put(value)
        if isinstance(kind, types.Float):
            return ["f"]
        if isinstance(kind, types.Boolean):
            return ["b"]
        if isinstance(kind, types.Integer):
            return ["i" if kind.signed else "u"]
        raise BuildError(f"a result of type {kind} cannot be returned")

    def _put(self, value: Any) -> None:
        ir, builder = self.module.ir, self.builder
        if isinstance(value.type, ir.PointerType):
            value = builder.ptrtoint(value, self.word)
        elif isinstance(value.type, ir.DoubleType):
            value = builder.bitcast(value, self.word)
        elif isinstance(value.type, ir.FloatType):
            value = builder.bitcast(builder.fpext(value, ir.DoubleType()), self.word)
        elif value.type.width < 64:
            value = builder.sext(value, self.word)
        builder.store(value, self._find_place())


def _describe_fields(dtype: Any) -> dict[str, Any]:
    """Return a structured dtype as plain values."""
    fields = [(*dtype.fields[name][:2],) for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [kind.str for kind, _ in fields],
        "offsets": [offset for _, offset in fields],
        "itemsize": dtype.itemsize,
    }


# ---------------------------------------------------------------- runtime
# What machine code of numba needs besides the C library: memory with a count of references.

_RUNTIME = """
%memory = type { i64, ptr, ptr, ptr, i64, ptr }
@tk_header = global i64 16
@PyExc_RuntimeError = global ptr null

declare ptr @malloc(i64)
declare void @free(ptr)
declare void @abort()

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %step = zext i32 %align to i64
  %with = add i64 %size, %step
  %all = add i64 %with, 48
  %start = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %start, null
  br i1 %none, label %failed, label %made
failed:
  ret ptr null
made:
  %at = ptrtoint ptr %start to i64
  %behind = add i64 %at, 47
  %above = add i64 %behind, %step
  %mask = sub i64 0, %step
  %place = and i64 %above, %mask
  %data = inttoptr i64 %place to ptr
  call void @tk_fill(ptr %start, ptr null, ptr null, ptr %data, i64 %size)
  ret ptr %start
}

define ptr @NRT_MemInfo_alloc(i64 %size) {
  %start = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 16)
  ret ptr %start
}

define ptr @NRT_Allocate(i64 %size) {
  %start = call ptr @malloc(i64 %size)
  ret ptr %start
}

define void @NRT_Free(ptr %start) {
  call void @free(ptr %start)
  ret void
}

declare double @nextafter(double, double)
declare float @nextafterf(float, float)

define double @numba_nextafter(double %a, double %b) {
  %c = call double @nextafter(double %a, double %b)
  ret double %c
}

define float @numba_nextafterf(float %a, float %b) {
  %c = call float @nextafterf(float %a, float %b)
  ret float %c
}

define void @tk_fill(ptr %start, ptr %end, ptr %info, ptr %data, i64 %size) {
  store i64 1, ptr %start
  %1 = getelementptr %memory, ptr %start, i32 0, i32 1
  store ptr %end, ptr %1
  %2 = getelementptr %memory, ptr %start, i32 0, i32 2
  store ptr %info, ptr %2
  %3 = getelementptr %memory, ptr %start, i32 0, i32 3
  store ptr %data, ptr %3
  %4 = getelementptr %memory, ptr %start, i32 0, i32 4
  store i64 %size, ptr %4
  %5 = getelementptr %memory, ptr %start, i32 0, i32 5
  store ptr null, ptr %5
  ret void
}

define ptr @NRT_MemInfo_new_varsize_dtor(i64 %size, ptr %end) {
  %data = call ptr @malloc(i64 %size)
  %start = call ptr @malloc(i64 48)
  %a = icmp eq ptr %data, null
  %b = icmp eq ptr %start, null
  %none = or i1 %a, %b
  br i1 %none, label %failed, label %made
failed:
  call void @free(ptr %data)
  call void @free(ptr %start)
  ret ptr null
made:
  call void @tk_fill(ptr %start, ptr @tk_end_variable, ptr %end, ptr %data, i64 %size)
  ret ptr %start
}

define void @tk_end_variable(ptr %data, i64 %size, ptr %end) {
  %none = icmp eq ptr %end, null
  br i1 %none, label %last, label %items
items:
  call void %end(ptr %data)
  br label %last
last:
  call void @free(ptr %data)
  ret void
}

define void @NRT_MemInfo_call_dtor(ptr %start) {
  %1 = getelementptr %memory, ptr %start, i32 0, i32 1
  %end = load ptr, ptr %1
  %none = icmp eq ptr %end, null
  br i1 %none, label %last, label %first
first:
  %2 = getelementptr %memory, ptr %start, i32 0, i32 2
  %info = load ptr, ptr %2
  %3 = getelementptr %memory, ptr %start, i32 0, i32 3
  %data = load ptr, ptr %3
  %4 = getelementptr %memory, ptr %start, i32 0, i32 4
  %size = load i64, ptr %4
  call void %end(ptr %data, i64 %size, ptr %info)
  br label %last
last:
  call void @free(ptr %start)
  ret void
}

define void @tk_release(ptr %start) {
  %before = atomicrmw sub ptr %start, i64 1 monotonic
  %was = icmp eq i64 %before, 1
  br i1 %was, label %last, label %used
last:
  call void @NRT_MemInfo_call_dtor(ptr %start)
  ret void
used:
  ret void
}

; Kernels reshape contiguous arrays only.
define i32 @numba_attempt_nocopy_reshape(
    i64 %n, ptr %shape, ptr %strides, i64 %new, ptr %new_shape, ptr %new_strides, i64 %item,
    i32 %fortran) {
start:
  br label %test
test:
  %at = phi i64 [ %new, %start ], [ %before, %one ]
  %step = phi i64 [ %item, %start ], [ %next, %one ]
  %done = icmp eq i64 %at, 0
  br i1 %done, label %end, label %one
one:
  %before = sub i64 %at, 1
  %place = getelementptr i64, ptr %new_strides, i64 %before
  store i64 %step, ptr %place
  %extents = getelementptr i64, ptr %new_shape, i64 %before
  %extent = load i64, ptr %extents
  %next = mul i64 %step, %extent
  br label %test
end:
  ret i32 1
}
"""

_NEVER_CALLED = (
    "PyImport_ImportModule", "PyLong_AsVoidPtr", "PyObject_CallFunctionObjArgs",
    "PyObject_GetAttrString", "Py_DecRef", "numba_gil_ensure", "numba_gil_release",
    "numba_unpickle", "PyErr_SetString", "PyObject_Hash", "PyTuple_Pack",
    "PyUnicode_FromKindAndData",
)  # fmt: skip
"""What numba calls for a null function pointer, and to make the arguments of an exception."""

_LIBC = frozenset(
    {
        "abort", "malloc", "free", "memcpy", "memmove", "memset", "log", "log10", "log2", "log1p",
        "exp", "expm1", "pow", "sqrt", "fmod", "floor", "ceil", "ldexp", "frexp", "erf", "erfc",
        "lgamma", "tgamma", "atan2", "sin", "cos", "tan", "nextafter", "nextafterf",
    }
)  # fmt: skip
"""What the C library and its mathematics provide."""


def _make_stubs() -> str:
    return "".join(
        f"define void @{name}() {{\n  call void @abort()\n  unreachable\n}}\n"
        for name in _NEVER_CALLED
    )


# ---------------------------------------------------------------- finished libraries

MAX_KEPT = 4
"""Maximum number of libraries in the user's cache; the oldest are deleted first."""


def build_once(folder: Path, **options: Any) -> dict[str, Any]:
    """Copy the library from the user's cache, or build it and keep a copy there.

    The parameters are those of `build`.
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


def _find_kept(options: Mapping[str, Any]) -> Path | None:
    """Return the folder in the user's cache for what a library depends on; None: no cache."""
    own = Path(__file__).parent.glob("*.py")
    facts = (
        digest_sources(), sorted(digest_file(str(path)) for path in own), version("numba"),
        version("llvmlite"), sys.platform, platform.machine(), _choose_processor(),
        options.get("usual"), options.get("use_linker"), _find_linkers(),
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
    parser = argparse.ArgumentParser("python -m treekit.compiling.build")
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
