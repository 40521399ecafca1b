"""Link the compiled parts as one library that needs the C library only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from treekit.kernel_library.entries import BuildError, Part


class JoinedModule:
    """The module that the parts are linked into."""

    def __init__(self) -> None:
        from llvmlite import binding

        self.binding = binding
        self.names: list[str] = []
        self.whole = binding.parse_assembly(f'target triple = "{binding.get_process_triple()}"')
        self.whole.name = "treekit"

    def add(self, part: Part) -> int:
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


# ---------------------------------------------------------------- linker


def link(source: Path, target: Path) -> bool:
    """Link an object as a shared library by the first linker that works; False: there is none.

    On Linux the library names no other one: its few functions of the C library are those of the
    process, of any release (`treekit.kernels.library` loads the mathematics).
    """
    files = ["-shared", "-o", str(target), str(source)]
    alone = [] if sys.platform == "darwin" else ["-nostdlib", "-Wl,-s", "-Wl,--build-id=none"]
    for name in find_linkers():
        command = [name, *(["-s"] if name == "ld" else alone), *files]
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        if done.returncode == 0 and target.exists():
            return True
    return False


def find_linkers() -> list[str]:
    """Return the names of the linkers on this machine, in the order in which they are tried."""
    return [name for name in ("cc", "gcc", "clang", "ld") if shutil.which(name)]
