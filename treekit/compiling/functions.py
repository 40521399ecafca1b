"""Compile a plugin's Python functions for the kernels.

Functions that numba compiles are as fast as built-in ones.  The same kernel calls others in
the interpreter, and a warning contains the line that cannot be compiled.
"""

from __future__ import annotations

import dis
import math
import re
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from treekit.compiling.identity import compute_fingerprint, copy_for_compilation
from treekit.errors import DataError, PluginError, SettingError, TreekitWarning
from treekit.kernels.compile import LinkedFunction
from treekit.registry.isolation import FOREIGN_ERRORS, describe_error

# ---------------------------------------------------------------- compilation

thread_state = threading.local()
"""State of the tree that is grown in this thread: `table`, `score` and `rng`, for a splitter
called as Python, and `failures`, the errors raised by plugins' Python functions."""


def compile_function(
    function: Any,
    argument_types: tuple[Any, ...],
    origin: Origin,
    name: str,
    returns: type = float,
) -> Any:
    """Return a jitted callable of `argument_types` that runs `function` compiled or as Python.

    Parameters
    ----------
    function : callable
        Plain Python over arrays.
    argument_types : tuple of numba types
    origin : Origin
        Named in the warning and in exceptions of the Python path.
    name : str
        Name of the function in the contract.
    returns : {float, int, bool}
        Required return type.

    Raises
    ------
    PluginError
        If the function compiles but returns another type, or uses an undefined name; or if it
        does not compile and must.
    """
    jitted, complaint = try_compile(function, argument_types, returns, checked=origin.is_foreign)
    if complaint is None:
        return jitted
    core = get_python_function(function)
    if origin.must_compile:
        raise PluginError(f"{name} does not compile: {complaint}")
    if complaint.wrong_type not in ("", "None"):
        raise origin.make_error(
            f"returns {complaint.wrong_type} from {name}, not {_EXPECTED_RETURNS[returns]}"
        )
    if not complaint.wrong_type:  # "None" is numba's type of a function that always raises, too
        warn_of_python(origin, name, core, complaint)
    return _make_python_call(core, origin, name, returns)


def warn_of_python(
    origin: Origin, name: str, function: Callable[..., Any], complaint: CompileFailure
) -> None:
    """Warn that a plugin's function runs as Python.

    Raises
    ------
    PluginError
        If the function uses an undefined name.
    """
    if undefined := re.search(r"name '(\w+)' is not defined", complaint.reason):
        word, code = undefined[1], function.__code__
        uses = (i.positions for i in dis.get_instructions(code) if i.argval == word)
        line = next((use.lineno for use in uses if use), complaint.line or code.co_firstlineno)
        raise origin.make_error(
            f"uses the undefined name {word!r} in {name} ({code.co_filename}, line {line})"
        )
    warnings.warn(
        f"{origin} does not compile and runs as Python, much slower: {complaint}",
        TreekitWarning,
        stacklevel=3,
    )


@dataclass(frozen=True)
class CompileFailure:
    """The reason why numba cannot compile a function, and the line that caused it, if known.

    `wrong_type` names the return type of a function that compiles but returns a wrong type.
    """

    reason: str
    file: str = ""
    line: int = 0
    wrong_type: str = ""

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}" if self.file else self.reason


def try_compile(
    function: Callable[..., Any],
    argument_types: tuple[Any, ...],
    returns: type = float,
    *,
    checked: bool = False,
) -> tuple[Any, CompileFailure | None]:
    """Compile `function` for `argument_types`; on failure return None and numba's reason.

    `checked` adds bounds checks, for functions of plugins: where the number of cells is
    known at compile time, as in a scan, they cost nothing (measured for 2 and 7 cells).
    """
    import numba as nb

    from treekit.kernels.numba_compiler import enable_disk_cache

    core = get_python_function(function)
    if not isinstance(core, types.FunctionType):
        return None, CompileFailure(
            f"it is of type {type(core).__name__}, not a function written with def"
        )
    try:
        copy = copy_for_compilation(core)
        jitted = LinkedFunction(copy, boundscheck=checked)
        mark = compute_fingerprint(copy, checked)
        if mark is not None:
            enable_disk_cache(jitted, mark)
        jitted.compile(argument_types)
        result = jitted.overloads[argument_types].signature.return_type
    except Exception as error:  # noqa: BLE001 - numba has errors outside its own hierarchy
        return None, parse_numba_error(error)
    accepted: dict[type, tuple[type, ...]] = {
        float: (nb.types.Float, nb.types.Integer, nb.types.Boolean),
        int: (nb.types.Integer,),
        bool: (nb.types.Boolean, nb.types.Integer),
    }
    if isinstance(result, accepted[returns]):
        return jitted, None
    if isinstance(result, nb.types.Optional):
        return None, CompileFailure("it returns None on some paths")
    wrong = _describe_type(nb.types.unliteral(result))
    return None, CompileFailure(
        f"it returns {wrong}, not {_EXPECTED_RETURNS[returns]}", wrong_type=wrong
    )


_EXPECTED_RETURNS = {float: "a number", int: "an integer", bool: "true or false"}


def _describe_type(result: Any) -> str:
    import numba as nb

    if isinstance(result, nb.types.NoneType):
        return "None"
    if isinstance(result, nb.types.Array):
        return "an array"
    return "a string" if isinstance(result, nb.types.UnicodeType) else f"a {result}"


def get_python_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function of a dispatcher; other callables are returned unchanged."""
    return getattr(function, "py_func", function)


def parse_numba_error(error: Exception) -> CompileFailure:
    """Extract the innermost line of the plugin and the reason from a numba error."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    if "Cannot modify readonly array" in text or text == _IN_PLACE_BUG:
        text = f"it changes a read-only array, such as its arguments; copy the array first\n{text}"
    # numba lists nested calls innermost first; lines of its own library are not the cause.
    place = re.findall(r"^ *During: .* at (\S.*) \((\d+)\)$", text, re.MULTILINE)
    folder = str(Path(sys.modules["numba"].__file__ or "").parent)
    place = [found for found in place if not found[0].startswith(folder)][:1]
    place = place or re.findall(r'File "([^"]*)", line (\d+)', text)
    place += re.findall(r"Raised from (.+) \((\d+)\)", text)
    reason = _extract_reason(text) or repr(error)
    file, line = place[-1] if place else ("", 0)
    reason = re.sub(r" (?:at 0x[0-9a-f]+|from '[^']*')(?=>)", "", reason)
    return CompileFailure(reason, file, int(line))


_IN_PLACE_BUG = "'NoneType' object has no attribute 'args'"
"""numba's own error for an operation such as `+=` on a read-only array (numba 0.68)."""


def _extract_reason(text: str) -> str:
    """Return the first line of a numba message that states the cause, not only its location."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Failed in")]
    if not lines or not lines[0].startswith("No implementation"):
        return lines[0] if lines else ""
    rejected = False
    for line in lines:
        own = re.sub(r"^\w*Error: ", "", line)
        rejected |= line.startswith("Rejected as")
        vague = own.startswith(("Rejected as", "Failed in", "No implementation", ">>>"))
        vague |= bool(re.match(r"There are|- Of which|Over|Intr|With|No m", own))
        if rejected and not vague:
            return own
    call = next((line.removeprefix(">>> ") for line in lines if line.startswith(">>> ")), "")
    return f"numba has no {call}" if call else lines[0]


def _make_python_call(
    function: Callable[..., Any], origin: Origin, name: str, returns: type
) -> Any:
    """Return a jitted callable of one to four arguments that takes the GIL and calls Python."""
    import numba as nb

    failed = {float: float("nan"), int: -2, bool: False}[returns]
    kind = {float: nb.types.float64, int: nb.types.int64, bool: nb.types.boolean}[returns]

    def call_guarded(*arguments: Any) -> Any:
        if thread_state.failures:
            return failed
        try:
            return call_checked(origin, name, function, *arguments, returns=returns)
        except Exception as error:  # noqa: BLE001 - raised again when the kernel has returned
            thread_state.failures.append(error)
            return failed

    @nb.njit
    def call_python(*arguments):  # type: ignore[no-untyped-def]
        with nb.objmode(result=kind):
            result = call_guarded(*arguments)
        return result

    return call_python


# ---------------------------------------------------------------- checked calls
# Calls of plugin functions as plain Python, with validation of their return values.
#
# The compiled path has its own guards in the kernels; the messages are the same.

MAX_SHOWN_CHARACTERS = 300
"""Maximum number of characters of statistics in a message."""


@dataclass(frozen=True)
class Origin:
    """The component and distribution that a function comes from.

    With `must_compile`, a function that does not compile is an error, not a warning.
    """

    kind: str
    name: str
    distribution: str = ""
    must_compile: bool = False

    def __str__(self) -> str:
        place = f" (from {self.distribution})" if self.distribution else ""
        return f"{self.kind} {self.name!r}{place}"

    @property
    def is_foreign(self) -> bool:
        """Whether the component comes from a plugin, not from treekit itself."""
        return not self.distribution.startswith("treekit ")

    def make_error(self, cause: str) -> PluginError:
        """Return an error that names the plugin."""
        return PluginError(f"{self} {cause}; training was stopped and no model was made")


def format_statistics(arguments: tuple[Any, ...]) -> str:
    """Format statistics for a message, truncated to `MAX_SHOWN_CHARACTERS`."""
    parts = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
    text = " and ".join(repr(part) for part in parts)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def check_return_value(value: Any, returns: type, infinite: bool = False) -> float:
    """Validate and convert a return value.

    Parameters
    ----------
    returns : {float, int, bool}
        Required type: a number, an integer, or true or false.
    infinite : bool
        Whether a number may be ``inf``.

    Raises
    ------
    TypeError, ValueError
        With a message that continues a sentence whose subject is the plugin.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    known: Any = {
        float: (int, float, np.integer, np.floating, np.bool_),
        int: (int, np.integer),
        bool: (bool, np.bool_, int, np.integer),
    }[returns]
    if not isinstance(value, known) or (returns is int and isinstance(value, bool)):
        expected = _EXPECTED_RETURNS[returns]
        got = "None" if value is None else f"a {type(value).__name__}"
        got = "an array" if isinstance(value, np.ndarray) else got
        raise TypeError(f"returned {got}, not {expected},")
    if returns is float and not math.isfinite(value) and not (infinite and value == math.inf):
        raise ValueError("returned NaN" if math.isnan(value) else "returned an infinite number")
    number: float = returns(value)
    return number


def call_checked(
    origin: Origin,
    name: str,
    function: Callable[..., Any],
    *arguments: Any,
    returns: type = float,
    infinite: bool = False,
) -> float:
    """Call a plugin's function `name` and return its validated result.

    Raises
    ------
    PluginError
        If the function raises, or returns anything but a number; the message shows the
        line that raised and the arguments.
    DataError, SettingError
        If the function itself raises one: its message is for the user.
    """
    function = getattr(function, "py_func", function)
    given = f"; the statistics it was given were {format_statistics(arguments)}"
    try:
        with np.errstate(all="ignore"):  # as in compiled code
            # Copies: the kernel's arrays may live in a stack frame.
            value = function(
                *[make_read_only(np.copy(a)) if isinstance(a, np.ndarray) else a for a in arguments]
            )
    except (DataError, PluginError, SettingError):
        raise
    except FOREIGN_ERRORS as error:
        # The arguments come last: they may be long, and the exception's message matters more.
        place = describe_place(error, function)
        raise origin.make_error(
            f"raised {describe_error(error)} in {name}{place}{given}"
        ) from error
    try:
        return check_return_value(value, returns, infinite)
    except (TypeError, ValueError) as error:
        raise origin.make_error(f"{error} from {name}{given}") from error


def describe_place(error: BaseException, function: Callable[..., Any]) -> str:
    """Return `` (FILE, line N)``, the innermost line of the function's file that raised."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" ({file}, line {lines[-1]})" if lines else ""


def make_read_only(record: Any) -> Any:
    """Return a read-only view of an array, or of a record of arrays and records."""
    if isinstance(record, np.ndarray):
        view = record.view()
        view.flags.writeable = False
        return view
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return type(record)(*map(make_read_only, record))
    if is_dataclass(record) and not isinstance(record, type):
        own = {field.name: getattr(record, field.name) for field in fields(record)}
        arrays = {k: v for k, v in own.items() if isinstance(v, np.ndarray | tuple)}
        return replace(record, **{name: make_read_only(value) for name, value in arrays.items()})
    return record
