"""Compiler intrinsics of the kernels, numba's types of plugin functions, and their pointers.

Importing this module imports numba; kernels name its intrinsics by
`treekit.kernels.function_pointers`.
"""

from __future__ import annotations

import numba as nb
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from treekit.kernels.numba_compiler import KernelDispatcher, enable_disk_cache
from treekit.kernels.records import CriterionPointers

CELLS_TYPE = types.Array(types.float64, 1, "C")
MATRIX_TYPE = types.Array(types.float64, 2, "C")
FROZEN_CELLS = CELLS_TYPE.copy(readonly=True)
FROZEN_MATRIX = MATRIX_TYPE.copy(readonly=True)
CODES_TYPE = types.Array(types.uint32, 1, "C")
_F8 = types.float64
SCORE_SIGNATURE = _F8(FROZEN_CELLS, FROZEN_MATRIX)
NODE_VALUE_SIGNATURE = _F8(CELLS_TYPE)
BRANCH_SCORE_SIGNATURE = _F8(CELLS_TYPE, MATRIX_TYPE, types.int64)
CATEGORY_KEYS_SIGNATURE = types.void(MATRIX_TYPE, types.int64, types.int64, CELLS_TYPE)
CHOICE_SIGNATURE = types.int64(CELLS_TYPE, CELLS_TYPE, CELLS_TYPE)
PENALTY_SIGNATURE = _F8(types.int64, _F8)
CUTS_SIGNATURE = types.void(MATRIX_TYPE, types.int64, CELLS_TYPE, CELLS_TYPE)
ROW_SCAN_SIGNATURE = types.int64(
    CODES_TYPE, CODES_TYPE, CODES_TYPE, MATRIX_TYPE, types.int64, CELLS_TYPE, CELLS_TYPE, _F8, _F8,
    CELLS_TYPE,
)  # fmt: skip
BEFORE_SIGNATURE = types.boolean(CELLS_TYPE, MATRIX_TYPE, CELLS_TYPE, MATRIX_TYPE)

SIGNATURES = {
    "cuts": CUTS_SIGNATURE,
    "branch_score": BRANCH_SCORE_SIGNATURE,
    "keys": CATEGORY_KEYS_SIGNATURE,
    "choice": CHOICE_SIGNATURE,
    "penalty": PENALTY_SIGNATURE,
    "score": SCORE_SIGNATURE,
    "value": NODE_VALUE_SIGNATURE,
    "row_scan": ROW_SCAN_SIGNATURE,
    "before": BEFORE_SIGNATURE,
}
"""Signature of each kind of function that kernels call by a pointer, except ``find``."""


POINTERS_TYPE = types.NamedTuple(
    [
        types.FunctionType(CUTS_SIGNATURE),
        types.FunctionType(BRANCH_SCORE_SIGNATURE),
        types.FunctionType(CATEGORY_KEYS_SIGNATURE),
        types.FunctionType(CHOICE_SIGNATURE),
        types.FunctionType(PENALTY_SIGNATURE),
        types.int64,
        types.boolean,
        types.boolean,
        types.FunctionType(SCORE_SIGNATURE),
        types.FunctionType(NODE_VALUE_SIGNATURE),
        types.FunctionType(NODE_VALUE_SIGNATURE),
        types.boolean,
        types.FunctionType(ROW_SCAN_SIGNATURE),
        types.boolean,
    ],
    CriterionPointers,
)
"""The type of a criterion's pointers; every criterion has it."""


class CompiledPointer(KernelDispatcher):
    """A function compiled for one signature, typed by that signature alone.

    `cache` is for functions at module level; closures are cached under a `mark`, see
    `treekit.kernels.numba_compiler.enable_disk_cache`.  `options` are those of numba's compiler.
    """

    def __init__(self, function, signature, cache=False, mark=None, **options):
        super().__init__(function, no_cfunc_wrapper=False, **options)
        self.pointer_signature = signature
        if cache or mark is not None:
            enable_disk_cache(self, mark)
        self.compile(signature)
        self.disable_compile()
        self._compile_result = self.overloads[signature.args]

    def get_compile_result(self, sig):
        """Return the only compile result; numba's lookup normalises `sig` at every call."""
        return self._compile_result

    @property
    def _numba_type_(self):
        return types.FunctionType(self.pointer_signature)

    def find_addresses(self):
        """Return the addresses by the C convention and by numba's."""
        made, library = self._compile_result.fndesc, self._compile_result.library
        names = made.llvm_cfunc_wrapper_name, made.llvm_func_name
        return tuple(library.get_pointer_to_function(name) for name in names)


# ---------------------------------------------------------------- intrinsics


@intrinsic
def allocate_stack_matrix(typingctx, rows, columns):
    """Allocate a (rows, columns) float64 array in the stack frame; both must be literals.

    A heap array, sliced for the user's function, costs 5 to 8 times the evaluation
    of a two-cell criterion (reference counts); this one, of a shape known at compile
    time, is kept in registers.  Never return it or keep a view of it.
    """
    if not (isinstance(rows, types.IntegerLiteral) and isinstance(columns, types.IntegerLiteral)):
        return None
    shape = (rows.literal_value, columns.literal_value)
    return MATRIX_TYPE(rows, columns), _allocate_stack_array(MATRIX_TYPE, shape)


@intrinsic
def allocate_stack_cells(typingctx, cells):
    """Allocate a (cells,) float64 array in the stack frame; see `allocate_stack_matrix`."""
    if not isinstance(cells, types.IntegerLiteral):
        return None
    return CELLS_TYPE(cells), _allocate_stack_array(CELLS_TYPE, (cells.literal_value,))


def _allocate_stack_array(array_type, shape):
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
def borrow_arrays(typingctx, record):
    """Return the same array, or record of arrays, without reference counts.

    Counts are atomic: in a loop that passes records of many arrays they cost
    more than the work itself, and threads contend for them.  The caller must keep
    the arrays alive.
    """

    def codegen(context, builder, signature, args):
        return _drop_owners(context, builder, signature.args[0], args[0])

    return record(record), codegen


def _drop_owners(context, builder, kind, value):
    """Return a value whose arrays have no owner, by the types of a record's fields."""
    if isinstance(kind, types.BaseTuple):
        for at, field in enumerate(kind.types):
            part = _drop_owners(context, builder, field, builder.extract_value(value, at))
            value = builder.insert_value(value, part, at)
    elif isinstance(kind, types.Array):
        view = make_array(kind)(context, builder, value)
        view.meminfo, view.parent = view.meminfo.type(None), view.parent.type(None)
        return view._getvalue()
    return value


@intrinsic
def borrow_row(typingctx, matrix, row):
    """Return a row of a C-contiguous matrix without reference counts; see `borrow_arrays`."""
    kind = types.Array(matrix.dtype, 1, "C")

    def codegen(context, builder, signature, args):
        view = make_array(signature.args[0])(context, builder, args[0])
        step, item = cgutils.unpack_tuple(builder, view.strides)
        place = context.cast(builder, args[1], signature.args[1], types.intp)
        start = builder.add(builder.ptrtoint(view.data, step.type), builder.mul(place, step))
        array = make_array(kind)(context, builder)
        populate_array(
            array,
            data=builder.inttoptr(start, view.data.type),
            shape=[cgutils.unpack_tuple(builder, view.shape)[1]],
            strides=[item],
            itemsize=view.itemsize,
            meminfo=None,
        )
        return array._getvalue()

    return kind(matrix, row), codegen


@intrinsic
def freeze_array(typingctx, array):
    """Return the same array with a read-only type: code that writes to it does not compile."""
    frozen = array.copy(readonly=True)

    def codegen(context, builder, signature, args):
        context.nrt.incref(builder, signature.args[0], args[0])
        return args[0]

    return frozen(array), codegen


@intrinsic
def find_lowest_bit(typingctx, word):
    """Return the position of the lowest set bit of a nonzero uint64."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return nb.uint64(nb.uint64), codegen


@intrinsic
def prefetch_row(typingctx, array, row):
    """Prefetch the memory at the start of a row of a C-contiguous array."""

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
def count_bits(typingctx, word):
    """Count the set bits of a uint64."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return nb.uint64(nb.uint64), codegen


@intrinsic
def copy_words(typingctx, source, at, first, to, second, also_to):
    """Copy the four words at ``source[at]`` to ``first[to]`` and ``second[also_to]``."""

    def codegen(context, builder, signature, args):
        four = ir.VectorType(ir.IntType(64), 4)

        def find_place(array, index):
            view = make_array(signature.args[array])(context, builder, args[array])
            return builder.bitcast(builder.gep(view.data, [args[index]]), four.as_pointer())

        moved = builder.load(find_place(0, 1))
        moved.align = 8
        for array, index in ((2, 3), (4, 5)):
            builder.store(moved, find_place(array, index)).align = 8
        return context.get_dummy_value()

    return types.none(source, at, first, to, second, also_to), codegen


@intrinsic
def add_pair(typingctx, sums, at, pairs, row):
    """Add ``pairs[row]``, of a C-contiguous (rows, 2) float64 matrix, to ``sums[at : at + 2]``.

    It is one addition of vectors.  LLVM would not make it of two, as the arrays might overlap.
    """

    def codegen(context, builder, signature, args):
        two = ir.VectorType(ir.DoubleType(), 2)

        def find_place(array, index):
            view = make_array(signature.args[array])(context, builder, args[array])
            return builder.bitcast(builder.gep(view.data, [index]), two.as_pointer())

        place = find_place(0, args[1])
        added = find_place(2, builder.shl(args[3], args[3].type(1)))
        parts = [builder.load(place), builder.load(added)]
        for part in parts:
            part.align = 8
        builder.store(builder.fadd(*parts), place).align = 8
        return context.get_dummy_value()

    return types.none(sums, at, pairs, row), codegen


@intrinsic
def load_cell(typingctx, matrix, row, column):
    """Return a cell of a C-contiguous float64 matrix without a bounds check."""

    def codegen(context, builder, signature, args):
        view = make_array(signature.args[0])(context, builder, args[0])
        step = cgutils.unpack_tuple(builder, view.strides)[0]
        start = builder.ptrtoint(view.data, step.type)
        place = builder.inttoptr(builder.add(start, builder.mul(args[1], step)), view.data.type)
        return builder.load(builder.gep(place, [args[2]]))

    return nb.float64(matrix, row, column), codegen


@intrinsic
def store_cell(typingctx, cells, at, number):
    """Set a cell of a float64 array without a bounds check."""

    def codegen(context, builder, signature, args):
        view = make_array(signature.args[0])(context, builder, args[0])
        builder.store(args[2], builder.gep(view.data, [args[1]]))
        return context.get_dummy_value()

    return types.none(cells, at, number), codegen


@intrinsic
def read_bits(typingctx, number):
    """Return the bits of a float64 as an int64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return nb.int64(nb.float64), codegen


@intrinsic
def write_bits(typingctx, bits):
    """Return the float64 with the bits of an int64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return nb.float64(nb.int64), codegen
