"""First-class functions: how a plugin's Python reaches a kernel cached on disk.

A kernel that takes a jitted function as a plain argument is compiled anew for
each function.  One that takes a `Pointer` is compiled for its *signature*, so
the cached machine code serves functions it has never seen, and an exception
raised inside passes through.
"""

from __future__ import annotations

import numba as nb
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, typeof_impl
from numba.np.arrayobj import make_array, populate_array

from treekit.kernels.compile import Compiled, keep

__all__ = [
    "CELLS",
    "MATRIX",
    "Pointer",
    "bit_count",
    "borrowed",
    "highest_bit",
    "lowest_bit",
    "prefetch",
    "read_only",
    "stack_cells",
    "stack_matrix",
]

CELLS = types.Array(types.float64, 1, "C")
MATRIX = types.Array(types.float64, 2, "C")


class Pointer(Compiled):
    """A function compiled for one signature, typed by that signature alone.

    `cache` is for functions at module level; closures are kept under a `mark`, see
    `treekit.kernels.compile.keep`.
    """

    def __init__(self, function, signature, cache=False, mark=None):
        super().__init__(function)
        self.pointer_signature = signature
        if cache or mark is not None:
            keep(self, mark)
        self.compile(signature)
        self.disable_compile()
        self._only = self.overloads[signature.args]

    def get_compile_result(self, sig):
        """The one compile result; numba's own look-up normalises `sig` at every call."""
        return self._only


@typeof_impl.register(Pointer)
def _typeof_pointer(value, context):
    return types.FunctionType(value.pointer_signature)


@intrinsic
def stack_matrix(typingctx, rows, columns):
    """A (rows, columns) float64 array in the stack frame; both must be literals.

    An array from the heap, sliced for the user's function, costs 5 to 8 times
    the evaluation of a two-cell criterion (reference counts); this one, of a
    shape that the compiler knows, is kept in registers.
    Never return it or keep a view of it.
    """
    if not (isinstance(rows, types.IntegerLiteral) and isinstance(columns, types.IntegerLiteral)):
        return None
    shape = (rows.literal_value, columns.literal_value)
    return MATRIX(rows, columns), _stack_array(MATRIX, shape)


@intrinsic
def stack_cells(typingctx, cells):
    """A (cells,) float64 array in the stack frame; see `stack_matrix`."""
    if not isinstance(cells, types.IntegerLiteral):
        return None
    return CELLS(cells), _stack_array(CELLS, (cells.literal_value,))


def _stack_array(array_type, shape):
    size = 1
    strides: list[int] = []
    for extent in reversed(shape):
        strides.insert(0, 8 * size)
        size *= extent

    def codegen(context, builder, signature, args):
        data = cgutils.alloca_once(builder, ir.ArrayType(ir.DoubleType(), size))
        array = make_array(array_type)(context, builder)
        populate_array(
            array,
            data=builder.bitcast(data, ir.DoubleType().as_pointer()),
            shape=[context.get_constant(types.intp, extent) for extent in shape],
            strides=[context.get_constant(types.intp, stride) for stride in strides],
            itemsize=context.get_constant(types.intp, 8),
            meminfo=None,
        )
        return array._getvalue()

    return codegen


@intrinsic
def borrowed(typingctx, array):
    """The same array without its reference count.

    Counts are atomic: in a loop that passes records of many arrays they cost
    more than the work, and threads would share them.  The caller must keep
    the array alive.
    """

    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        view = make_array(array_type)(context, builder, args[0])
        nothing = view.meminfo.type(None)
        populate_array(
            view,
            data=view.data,
            shape=view.shape,
            strides=view.strides,
            itemsize=view.itemsize,
            meminfo=nothing,
            parent=view.parent.type(None),
        )
        return view._getvalue()

    return array(array), codegen


@intrinsic
def read_only(typingctx, array):
    """The same array, typed so that code which writes to it does not compile."""
    frozen = array.copy(readonly=True)

    def codegen(context, builder, signature, args):
        context.nrt.incref(builder, signature.args[0], args[0])
        return args[0]

    return frozen(array), codegen


@intrinsic
def lowest_bit(typingctx, word):
    """Position of the lowest set bit of a uint64 that is not 0."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return nb.uint64(nb.uint64), codegen


@intrinsic
def highest_bit(typingctx, word):
    """Position of the highest set bit of a uint64 that is not 0."""

    def codegen(context, builder, signature, args):
        zeros = builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))
        return builder.sub(ir.Constant(ir.IntType(64), 63), zeros)

    return nb.uint64(nb.uint64), codegen


@intrinsic
def prefetch(typingctx, array, row):
    """Ask for the memory at the start of a row of a C-contiguous array, to be read soon."""

    def codegen(context, builder, signature, args):
        view = make_array(signature.args[0])(context, builder, args[0])
        step = cgutils.unpack_tuple(builder, view.strides)[0]
        at = builder.ptrtoint(view.data, step.type)
        place = builder.inttoptr(
            builder.add(at, builder.mul(args[1], step)), ir.IntType(8).as_pointer()
        )
        number = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            fnty=ir.FunctionType(ir.VoidType(), [place.type, number, number, number]),
        )
        read, everywhere, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [place, read, everywhere, data])
        return context.get_dummy_value()

    return types.none(array, row), codegen


@intrinsic
def bit_count(typingctx, word):
    """How many bits of a uint64 are set."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return nb.uint64(nb.uint64), codegen
