"""Compile one kernel or function with numba, as LLVM's bitcode with an entry for C.

The parts of numba that are private are used in `treekit.kernel_library` alone; a build fails if
one has moved.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import count, islice
from typing import Any

from treekit.kernel_library.variants import find_place, iterate_kernels, iterate_pointers
from treekit.kernels.library import describe_functions, describe_types


class BuildError(RuntimeError):
    """The library cannot be built; the message names the reason."""


@dataclass(frozen=True)
class Part:
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


def compile_part(part: int | str, usual: bool) -> Part:
    """Compile the kernel at a place of the list, or the function of a name, in this process."""
    compiler = _get_compiler()
    if isinstance(part, str):
        return compiler.compile_pointer(_list_pointers(usual)[part])
    name, arguments = next(islice(iterate_kernels(usual=usual), part, None))
    return compiler.compile_kernel(name, arguments, f"tk_{part}")


@cache
def _list_pointers(usual: bool) -> dict[str, Any]:
    return {str(pointer.name): pointer for pointer in iterate_pointers(usual=usual)}


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

    def compile_kernel(self, name: str, arguments: tuple[Any, ...], symbol: str) -> Part:
        """Compile a kernel for the types of some arguments, with an entry for C."""
        kernel = find_place(name)
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
        return Part(name, symbol, code, version, describe_types(arguments), form, n_words)

    def compile_pointer(self, pointer: Any) -> Part:
        """Compile a function that kernels call by a pointer."""
        made = pointer.compiled._compile_result
        name = made.fndesc.llvm_func_name
        part = self._get_module(made.library).clone()
        part.get_function(name).linkage = "external"  # else dropped if not called
        return Part(pointer.name, name, part.as_bitcode(), self.numba.__version__)

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


# ---------------------------------------------------------------- entries


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
