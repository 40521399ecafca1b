"""Compile a criterion once for all values of its numeric settings.

A number that a plugin's function reads from its closure is a constant for numba: every value of
a grid would compile anew.  Here functions read such numbers from memory.  The machine code is
compiled once, and loaded for each set of values with its own copy of them, which two trainings
at a time do not share; kernels call it by the same pointers as code with constants.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import CellType, FunctionType
from typing import Any

from llvmlite import binding, ir
from numba import njit, types
from numba.core.imputils import lower_constant
from numba.extending import typeof_impl

from treekit.compiling.criterion import CompiledCriterion, compile_criterion
from treekit.compiling.functions import Origin, get_python_function
from treekit.compiling.identity import (
    NumberArgument,
    compute_identity,
    find_templates,
    get_package,
)
from treekit.contracts import CriterionFunctions
from treekit.kernels.function_pointers import FunctionPointer
from treekit.kernels.intrinsics import CompiledPointer
from treekit.kernels.numba_compiler import KernelDispatcher

MAX_NUMBERS = 64
"""Largest number of arguments of a criterion; further numbers are constants."""

_MEMORY = "treekit_settings"
"""Symbol of the numbers, 8 bytes each, in the machine code."""

# ---------------------------------------------------------------- numbers of functions


def compile_for_all_values(
    functions: CriterionFunctions,
    cells: int,
    dense: bool,
    origin: Origin,
    settings: Mapping[str, Any],
    **options: Any,
) -> CompiledCriterion:
    """Compile a plugin's criterion as `compile_criterion` does, or reuse code for other numbers.

    Treats as arguments all floats in the closures of the functions and of their helpers, and
    the ints that are settings read by name.  Other ints, such as a number of classes, stay
    constants, which are faster.  Results equal those compiled with constants, bit for bit.
    What does not compile with arguments is compiled with constants.

    Parameters
    ----------
    settings : mapping
        Values of the criterion's settings by name.
    functions, cells, dense, origin, **options
        See `treekit.compiling.criterion.compile_criterion`.
    """
    marks = _Marks(settings)
    called = replace(functions, loss=None, leaf_value=None)  # the others are called as Python
    marked = marks.mark_record(replace(called, extras=marks.mark_record(functions.extras)))
    code = marks.values and _get_code(marked, cells, dense, origin, options)
    if not code or any(marks.values[at] in _FOLDED_EXPONENTS for at in code.exponents):
        return compile_criterion(functions, cells, dense, origin, **options)
    return CompiledCriterion(code.load(marks.values), origin, functions)


class _Marks:
    """Copies of functions with a `NumberArgument` for each number, and the numbers in order."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.values: list[int | float] = []
        self.copies: dict[Any, Any] = {}

    def mark_record(self, record: Any) -> Any:
        """Return a copy of a record, with its functions marked."""
        own = {name: value for name, value in vars(record).items() if callable(value)}
        return replace(record, **{name: self.mark_function(value) for name, value in own.items()})

    def mark_function(self, function: Any) -> Any:
        """Return a copy of a function; the function itself if it has no numbers."""
        function = get_python_function(function)
        if not isinstance(function, FunctionType) or not function.__closure__:
            return function
        if function in self.copies:
            return self.copies[function]
        self.copies[function] = function  # a recursive one reads constants
        cells = tuple(
            self._mark_cell(name, cell, get_package(function))
            for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True)
        )
        if any(a is not b for a, b in zip(cells, function.__closure__, strict=True)):
            copy = FunctionType(
                function.__code__, function.__globals__, function.__name__,
                function.__defaults__, cells,
            )  # fmt: skip
            copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
            copy.__kwdefaults__ = function.__kwdefaults__
            copy.__dict__.update(function.__dict__)
            self.copies[function] = copy
        return self.copies[function]

    def _mark_cell(self, name: str, cell: CellType, package: str) -> CellType:
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            return cell
        marked = value
        if isinstance(value, FunctionType) and get_package(value) == package:
            marked = value if find_templates(value) else self.mark_function(value)
        elif self._is_argument(name, value) and len(self.values) < MAX_NUMBERS:
            marked = NumberArgument(len(self.values), int if isinstance(value, int) else float)
            self.values.append(value)
        return cell if marked is value else CellType(marked)

    def _is_argument(self, name: str, value: Any) -> bool:
        if type(value) is int:
            known = self.settings.get(name)
            return type(known) is int and value == known and -(2**63) <= value < 2**63
        return isinstance(value, float)


@typeof_impl.register(NumberArgument)
def _find_type(value: NumberArgument, _: Any) -> Any:
    return types.int64 if value.kind is int else types.float64


@lower_constant(types.int64)
@lower_constant(types.float64)
def _lower_number(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Lower a number: a constant as numba does, an argument as a load from its place."""
    own = context.get_value_type(kind)
    if not isinstance(value, NumberArgument):
        return own(value)
    module, words = builder.module, ir.ArrayType(ir.IntType(64), MAX_NUMBERS)
    memory = module.globals.get(_MEMORY)
    if memory is None:
        memory = ir.GlobalVariable(module, words, _MEMORY)
        memory.linkage, memory.initializer = "common", words(None)  # LLVM must not assume zeros
    index = ir.IntType(32)
    with builder.goto_entry_block():
        place = builder.gep(memory, [index(0), index(value.place)], inbounds=True)
        number = builder.load(builder.bitcast(place, own.as_pointer()))
    # Without this, a load is repeated after each store to an array.
    number.set_metadata("invariant.load", module.add_metadata([]))
    return number


# ---------------------------------------------------------------- code and numbers

_FOLDED_EXPONENTS = frozenset({-1.0, -0.5, 0.0, 0.5, 1.0, 2.0})
"""Constant exponents for which LLVM calls no ``pow``, whose result may differ in the last bit."""

_POWER = re.compile(r"\bcall .*@(?:llvm\.)?(?:pow|exp2|exp10|ldexp)[f.(]")
_EXPONENT = re.compile(r"\bcall double @(?:llvm\.pow\.f64|pow)\(double [^,]+, double (\S+)\)")
_PLACE = re.compile(
    rf"ptr (?:getelementptr inbounds(?: nuw)? \(i8, ptr )?@{_MEMORY}(?:, i64 (\d+)\))?, align"
)

_NEEDS_CONSTANTS = re.compile(
    r" = load [^@\n]*@_ZN08NumbaEnv| (?:fast|reassoc|arcp|contract|afn) (?:\w+ )*(?:double|<)"
)
"""Code that must be compiled with constants: it uses Python objects, as ``print`` does, or fast
mathematics, whose results depend on which values are constant."""


@dataclass(frozen=True)
class _Code:
    """A criterion compiled for arguments.

    Attributes
    ----------
    criterion : CompiledCriterion
        Its code in numba's memory is never called.
    machine_code : bytes
        Object file of all functions that read numbers.
    readers : dict of str to CompiledPointer
        Of the fields of the pointers that read numbers.
    exponents : frozenset of int
        Places of the numbers that are exponents.
    """

    criterion: CompiledCriterion
    machine_code: bytes
    readers: dict[str, CompiledPointer]
    exponents: frozenset[int]

    def load(self, values: list[int | float]) -> Any:
        """Load the machine code for some numbers, and return the pointers."""
        loaded = _LoadedCode(self.machine_code, values)
        parts: dict[str, Any] = {
            name: FunctionPointer(
                getattr(self.criterion.pointers, name).kind, partial(_LoadedPointer, made, loaded)
            )
            for name, made in self.readers.items()
        }
        return self.criterion.pointers._replace(**parts)


_codes: dict[Any, _Code | None] = {}
_lock = threading.RLock()

MAX_CACHED_CODES = 64


def _get_code(
    functions: CriterionFunctions, cells: int, dense: bool, origin: Origin, options: dict[str, Any]
) -> _Code | None:
    """Return the code of marked functions; None if they need constants."""
    try:
        key = origin, compute_identity(functions), cells, dense, tuple(options.items())
        hash(key)
    except (TypeError, ValueError):  # a part cannot be compared
        return None
    with _lock:  # a second training waits for the code of the first
        if key not in _codes:
            if len(_codes) >= MAX_CACHED_CODES:
                del _codes[next(iter(_codes))]
            try:
                strict = replace(origin, must_compile=True)
                made = compile_criterion(functions, cells, dense, strict, **options)
                _codes[key] = _combine_code(made)
            except Exception:  # noqa: BLE001 - with constants its error or warning is shown
                _codes[key] = None
        return _codes[key]


def _combine_code(criterion: CompiledCriterion) -> _Code | None:
    """Return the code of all pointers that read numbers; None if bits could differ."""
    readers, whole = {}, binding.parse_assembly("")
    for name, pointer in criterion.pointers._asdict().items():
        if not isinstance(pointer, FunctionPointer) or pointer.name is not None:
            continue
        made = pointer.compiled
        result = made._compile_result
        module = result.library._get_module_for_linking().clone()
        if any(each.name == _MEMORY for each in module.global_variables):
            readers[name] = made
            described = result.fndesc
            for symbol in (described.llvm_cfunc_wrapper_name, described.llvm_func_name):
                # Others are dropped unless these call them.
                module.get_function(symbol).linkage = "external"
            whole.link_in(module)
    if not readers:
        return None
    text = str(whole)
    exponents = _find_exponents(text)
    if exponents is None or _NEEDS_CONSTANTS.search(text):
        return None
    triple, processor, features = result.library.codegen.magic_tuple()
    target = binding.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=processor, features=features, opt=3, jit=True)
    return _Code(criterion, machine.emit_object(whole), readers, exponents)


def _find_exponents(text: str) -> frozenset[int] | None:
    """Return the places of the numbers that are exponents in optimised code.

    None if an exponent is neither a constant nor a number as it is: computed from constants it
    could be one of `_FOLDED_EXPONENTS`.
    """
    places: set[int] = set()
    for body in text.split("\ndefine ")[1:]:
        for line in filter(_POWER.search, body.splitlines()):
            found = _EXPONENT.search(line)
            if found is None or not _add_places(found[1], body, places, set()):
                return None
    return frozenset(places)


def _add_places(value: str, body: str, places: set[int], seen: set[str]) -> bool:
    """Add the places that an exponent is read from; return False if it is computed.

    LLVM repeats the load in several blocks, merges values (``phi``) and copies them (``freeze``).
    A merged constant counts as computed.
    """
    if not value.startswith("%") or value in seen:
        return True
    seen.add(value)
    definition = re.search(rf"^ *{re.escape(value)} = (\S+) double,? (.*)$", body, re.MULTILINE)
    if definition is None or definition[1] not in ("load", "phi", "freeze"):
        return False
    if definition[1] == "load":
        place = _PLACE.match(definition[2])
        places.update([int(place[1] or 0) // 8] if place else [])
        return place is not None
    merged = re.findall(r"\[ (\S+), ", definition[2]) or [definition[2]]
    return all(each.startswith("%") and _add_places(each, body, places, seen) for each in merged)


class _LoadedCode:
    """Machine code in memory, with its numbers; it lives as long as a pointer to it."""

    def __init__(self, machine_code: bytes, values: list[int | float]) -> None:
        machine = binding.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._engine.add_object_file(binding.ObjectFileRef.from_data(machine_code))
        self._engine.finalize_object()
        start = self._engine.get_global_value_address(_MEMORY)
        for at, value in enumerate(values):
            kind = ctypes.c_int64 if isinstance(value, int) else ctypes.c_double
            kind.from_address(start + 8 * at).value = value

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of a function."""
        return int(self._engine.get_function_address(name))


class _LoadedPointer(CompiledPointer):
    """A compiled pointer whose code is loaded for some numbers."""

    def __init__(self, made: CompiledPointer, loaded: _LoadedCode) -> None:
        KernelDispatcher.__init__(self, made.py_func, no_cfunc_wrapper=False)  # compiles nothing
        self.pointer_signature = made.pointer_signature
        self._compile_result = made._compile_result._replace(library=loaded)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return _call_pointer(self, *arguments)


@njit
def _call_pointer(pointer, *arguments):  # type: ignore[no-untyped-def]
    return pointer(*arguments)
