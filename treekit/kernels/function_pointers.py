"""Function pointers for plugin functions, and names of compiler intrinsics.

A kernel that takes a jitted function as an argument is compiled again for each
function.  A kernel that takes a `FunctionPointer` is compiled for its *signature*: the
machine code works with any function of that signature, and exceptions raised inside
propagate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# ---------------------------------------------------------------- pointers


class FunctionPointer:
    """A function of one signature, which kernels call by its address.

    Parameters
    ----------
    kind : str
        Name of its signature in `treekit.kernels.intrinsics.SIGNATURES`, or ``find``.
    compile_function : callable
        Returns the function compiled by numba, a `treekit.kernels.intrinsics.CompiledPointer`.
    name : str, optional
        Name of a built-in function in the library of kernels.  Without a name the function is
        compiled at once, so that errors and warnings of a plugin appear early.
    make_signature : callable, optional
        Returns numba's signature of a ``find``.

    Attributes
    ----------
    origin : treekit.compiling.functions.Origin or None
        Named in errors.
    """

    def __init__(
        self,
        kind: str,
        compile_function: Callable[[], Any],
        name: str | None = None,
        make_signature: Callable[[], Any] | None = None,
    ) -> None:
        self.kind, self.name = kind, name
        self._compile_function = compile_function
        self._make_signature = make_signature
        self._compiled: Any = None
        self._words: tuple[int, int, int] | None = None
        self.origin: Any = None
        if name is None:
            self._compiled = compile_function()

    @property
    def compiled(self) -> Any:
        """The function compiled by numba."""
        if self._compiled is None:
            self._compiled = self._compile_function()
        return self._compiled

    def find_words(self) -> tuple[int, int, int]:
        """Return its addresses by the C convention, as a Python object, and by numba's."""
        if self._words is None:
            from treekit.kernels.library import get_library, note_missing

            library, address = get_library(), 0
            if self.name is not None and library is not None:
                address = library.find_pointer(self.name)
                if not address:
                    note_missing(self.name)
            if address:
                self._words = 0, 0, address
            elif library is None:
                return 0, 0, 0
            else:
                by_c, by_numba = self.compiled.find_addresses()
                same = library.is_built_by_this_numba()
                self._words = (by_c, 0, by_numba) if same else (by_c, 0, 0)
        return self._words

    @property
    def pointer_signature(self) -> Any:
        """numba's signature of the function."""
        if self._compiled is not None:
            return self._compiled.pointer_signature
        if self._make_signature is not None:
            return self._make_signature()
        from treekit.kernels.intrinsics import SIGNATURES

        return SIGNATURES[self.kind]

    @property
    def _numba_type_(self) -> Any:
        from numba import types

        return types.FunctionType(self.pointer_signature)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.compiled(*arguments)


def compile_pointers(value: Any) -> Any:
    """Return a record, or any other argument of a kernel, with pointers as numba takes them."""
    if isinstance(value, FunctionPointer):
        return value.compiled
    if isinstance(value, tuple):
        parts = [compile_pointers(part) for part in value]
        if all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


# ---------------------------------------------------------------- intrinsics


class Intrinsic:
    """A compiler intrinsic of `treekit.kernels.intrinsics`; numba takes it for the intrinsic."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @property
    def intrinsic(self) -> Any:
        """The intrinsic of numba."""
        from treekit.kernels import intrinsics

        return getattr(intrinsics, self.__name__)

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        intrinsic, context = self.intrinsic, cpu_target.typing_context
        context.refresh()
        return context.resolve_value_type(intrinsic)

    def __call__(self, *arguments: Any) -> Any:
        """Raise an error: only compiled code calls an intrinsic."""
        raise TypeError(f"{self.__name__} is for compiled code")

    def __repr__(self) -> str:
        """Return the name of the intrinsic."""
        return f"<intrinsic {self.__name__}>"


allocate_stack_matrix = Intrinsic("allocate_stack_matrix")
"""Allocate a (rows, columns) float64 array in the stack frame; both must be literals."""

allocate_stack_cells = Intrinsic("allocate_stack_cells")
"""Allocate a (cells,) float64 array in the stack frame; see `allocate_stack_matrix`."""

borrow_arrays = Intrinsic("borrow_arrays")
"""Return the same array, or record of arrays, without reference counts."""

borrow_row = Intrinsic("borrow_row")
"""Return a row of a C-contiguous matrix without reference counts; see `borrow_arrays`."""

freeze_array = Intrinsic("freeze_array")
"""Return the same array with a read-only type: code that writes to it does not compile."""

find_lowest_bit = Intrinsic("find_lowest_bit")
"""Return the position of the lowest set bit of a nonzero uint64."""

prefetch_row = Intrinsic("prefetch_row")
"""Prefetch the memory at the start of a row of a C-contiguous array."""

count_bits = Intrinsic("count_bits")
"""Count the set bits of a uint64."""

copy_words = Intrinsic("copy_words")
"""Copy the four words at ``source[at]`` to ``first[to]`` and ``second[also_to]``."""

add_pair = Intrinsic("add_pair")
"""Add ``pairs[row]``, of a C-contiguous (rows, 2) float64 matrix, to ``sums[at : at + 2]``."""

load_cell = Intrinsic("load_cell")
"""Return a cell of a C-contiguous float64 matrix without a bounds check."""

store_cell = Intrinsic("store_cell")
"""Set a cell of a float64 array without a bounds check."""

read_bits = Intrinsic("read_bits")
"""Return the bits of a float64 as an int64."""

write_bits = Intrinsic("write_bits")
"""Return the float64 with the bits of an int64."""
