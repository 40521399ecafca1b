"""Compilation and execution of C artifacts, and their comparison with a fresh export."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError, VerificationError
from treekit.export.c import render_c_files
from treekit.export.literals import list_shipped_folders
from treekit.export.lowering import FORM_REASON
from treekit.model.links import apply_link
from treekit.model.model import Model
from treekit.verify.answers import UNKNOWN_LABEL, Answers
from treekit.verify.probe_values import make_unseen_text
from treekit.verify.runtime import Job, Runtime, make_program_check
from treekit.verify.tree_equivalence import StructureComparison, make_comparison

# ---------------------------------------------------------------- comparison with a fresh export
# Whether C files equal those that treekit writes for a model, byte for byte.  They depend only on
# the model and three settings, which both files contain.  The tests read the trees of written
# files back and compare them on every path.

_FORM_LINE = re.compile(r"^ \* Form: (\w+); (.*)\.$", re.MULTILINE)
_INPUT_LINE = re.compile(r'^#define \w+_INPUT "(\w+)"', re.MULTILINE)
_SETTINGS_BY_CELL: dict[str, dict[str, str]] = {
    "double": {},
    "float": {"input": "float"},
    "uint32_t": {"arithmetic": "integer"},
    "uint64_t": {"arithmetic": "integer"},
}
"""Settings by the type of a row's cells."""


def compare_c_structure(path: Path, model: Model) -> StructureComparison:
    """Compare the files with those that this version of treekit writes for the model."""
    return make_comparison(is_fresh_export(path, model))


def is_fresh_export(path: Path, model: Model) -> bool:
    """Whether a source and its header equal those that this version writes."""
    header = path.with_suffix(".h")
    if not header.is_file():
        return False
    text = header.read_text(encoding="utf-8", errors="replace")
    form, cell = _FORM_LINE.search(text), _INPUT_LINE.search(text)
    if form is None or cell is None or cell[1] not in _SETTINGS_BY_CELL:
        return False
    asked = {"form": form[1] if form[2] == FORM_REASON else "auto"} | _SETTINGS_BY_CELL[cell[1]]
    try:  # with treekit's own templates, even if this machine is configured for others
        written = render_c_files(model, path.stem, list_shipped_folders(), **asked)
    except ExportError:  # this model cannot have been exported with these settings
        return False
    return all(
        normalize_line_ends(path.with_name(name).read_bytes()) == content
        for name, content in written.items()
    )


def normalize_line_ends(content: bytes) -> bytes:
    """Convert the line ends that tools write on Windows to those of treekit."""
    return content.replace(b"\r\n", b"\n")


# ---------------------------------------------------------------- run c


_DRIVER = Path(__file__).with_name("c_driver.c")
_COMPILER_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")
_KEY_BITS = {"double": 0, "float": 0, "uint32_t": 32, "uint64_t": 64}
"""Types of a row's cells, with the bits of a number where cells are keys, else 0."""
_NUMBER_TYPES = {"double": "f8", "int32_t": "i4", "int64_t": "i8"}


@dataclass(frozen=True)
class _Toolchain:
    """A compiler, and the emulator that runs its programs, if any.

    Attributes
    ----------
    compiler : str
    emulator : str
        User-mode emulator of another processor; "" = not needed.
    byte_order : {"<", ">"}
        Byte order.
    """

    compiler: str
    emulator: str = ""
    byte_order: str = np.dtype(np.int32).newbyteorder("=").str[0]

    @property
    def run_prefix(self) -> list[str]:
        return [self.emulator] if self.emulator else []

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        # Static, as the emulator does not find the libraries of its processor.
        return (*_COMPILER_FLAGS, "-static") if self.emulator else _COMPILER_FLAGS


@dataclass(frozen=True)
class _Header:
    """Contents of a generated header: prefix of the functions, and macros by name."""

    prefix: str
    macros: dict[str, str]

    @property
    def cell_type(self) -> str:
        return self.macros.get("INPUT", "double")

    @property
    def number_type(self) -> str:
        return self.macros.get("OUTPUT", "double")

    def convert_sums(self, schema: Schema, out: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Convert integer sums to numbers, as declared by the header."""
        if self.number_type == "double":
            return np.ascontiguousarray(out, dtype=np.float64)
        if "TOTAL" in self.macros:
            return np.asarray(out / int(self.macros["TOTAL"]), dtype=np.float64)
        means = out / int(self.macros["DIVISOR"])
        link: Any = self.macros["LINK"]
        return apply_link(link, np.ldexp(means, int(self.macros["EXPONENT"])), schema.blocks)


def list_c_files(path: Path) -> list[Path]:
    """Return the source and its header."""
    return [path, path.with_suffix(".h")]


def _make_runtime(name: str, machine: _Toolchain) -> Runtime:
    def run_rows(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
        return _run_compiled(job, rows, machine)

    def get_version() -> str:
        text = _read_first_line([machine.compiler, "-dumpfullversion", "-dumpversion"])
        return (
            f"{text}, {_read_first_line([machine.emulator, '--version'])}"
            if machine.emulator
            else text
        )

    return Runtime(name, run_rows, get_version, _make_availability_check(machine))


def _read_first_line(command: list[str]) -> str:
    """Return the first line that a program prints."""
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    return (done.stdout.decode(errors="replace").strip().splitlines() or [""])[0]


def _make_availability_check(machine: _Toolchain) -> Callable[[Path], str]:
    needed = [make_program_check(name) for name in (machine.compiler, machine.emulator) if name]
    return lambda path: next(filter(None, (lacking(path) for lacking in needed)), "")


C_RUNTIMES = (
    _make_runtime("gcc", _Toolchain("gcc")),
    _make_runtime("clang", _Toolchain("clang")),
    _make_runtime("qemu-arm", _Toolchain("arm-linux-gnueabi-gcc", "qemu-arm", "<")),
    _make_runtime("qemu-aarch64", _Toolchain("aarch64-linux-gnu-gcc", "qemu-aarch64", "<")),
    _make_runtime("qemu-s390x", _Toolchain("s390x-linux-gnu-gcc", "qemu-s390x", ">")),
)
"""Native compilers; then an ARM without floating point, a 64-bit ARM, and a big-endian machine."""


def _run_compiled(
    job: Job, rows: npt.NDArray[np.float64], machine: _Toolchain
) -> Iterator[tuple[str, Answers]]:
    """Compile with ``-std=c99 -O2``, check the names, and run rows one by one and in batches."""
    schema, path = job.schema, job.path
    model, header = job.folder / "model", _read_header(job)
    if not model.is_file():
        _compile_driver(job, header, machine, model)
        _check_names(job, [*machine.run_prefix, str(model)])
        _check_codes(job, [*machine.run_prefix, str(model)], machine.byte_order)
    classes = [max(len(output.classes), 1) for output in schema.outputs]
    number = machine.byte_order + _NUMBER_TYPES[header.number_type]
    label_type = f"{machine.byte_order}i4"
    record = np.dtype(
        [("label", label_type, (_count_labels(schema),)), ("number", number, (schema.n_values,))]
    )
    given = rows.astype(f"{machine.byte_order}f8").tobytes()
    for mode in ("single", "batch"):
        answer = job.run_program([*machine.run_prefix, model, mode], given)
        if len(answer) != len(rows) * record.itemsize:
            raise VerificationError(f"{path.name!r} did not return a prediction for every row")
        table = np.frombuffer(answer, dtype=record)
        labels = table["label"].astype(np.int64)
        label = np.broadcast_to(labels, (len(table), len(classes))).copy()
        label[(label < -1) | (label >= classes)] = UNKNOWN_LABEL
        native = table["number"].astype(number[1:])
        yield mode, Answers(label, header.convert_sums(schema, native))


def _count_labels(schema: Schema) -> int:
    """Return the number of labels of one call: one, or one a target if several have classes."""
    return len(schema.outputs) if schema.task == "classification" else 1


def _read_header(job: Job) -> _Header:
    path, schema = job.path.with_suffix(".h"), job.schema
    if not path.is_file():
        raise VerificationError(f"{job.path.name!r} needs its header {path.name!r} in its folder")
    text = path.read_text(encoding="utf-8", errors="replace")
    function = re.search(r"^int (\w+)_predict\(", text, re.MULTILINE)
    if function is None:
        raise VerificationError(f"{path.name!r} is not a header written by treekit")
    start = f"{function[1].upper()}_"
    lines = re.findall(rf'^#define {start}([A-Z_]+) \(?"?([\w.+-]+)', text, re.MULTILINE)
    header = _Header(function[1], dict(lines))
    wanted = _get_sizes(schema)
    if any(header.macros.get(name) != str(size) for name, size in wanted.items()):
        raise VerificationError(f"{path.name!r} differs from the model in columns or classes")
    if header.cell_type not in _KEY_BITS or header.number_type not in _NUMBER_TYPES:
        raise VerificationError(f"{path.name!r} has an unknown input or output type")
    return header


def _get_sizes(schema: Schema) -> dict[str, int]:
    return {
        "FEATURES": schema.n_features,
        "TARGETS": len(schema.outputs),
        "CLASSES": sum(len(output.classes) for output in schema.outputs),
        "OUTPUTS": schema.n_values,
    }


def _compile_driver(job: Job, header: _Header, machine: _Toolchain, model: Path) -> None:
    functions = ("predict", "predict_batch", "level_code", "level_count")
    names = (*functions, "class_name", "feature_name", "target_name")
    macros = [f"-D{name.upper()}={header.prefix}_{name}" for name in names]
    sizes = _get_sizes(job.schema)
    macros += [f"-D{name}={sizes[name]}" for name in ("FEATURES", "TARGETS", "OUTPUTS")]
    macros += [f"-DLABELS={_count_labels(job.schema)}"]
    macros += [f"-DCELL={header.cell_type}", f"-DNUMBER={header.number_type}"]
    if bits := _KEY_BITS[header.cell_type]:
        macros += [f"-DKEY={header.prefix}_key", f"-DBITS={bits}"]
    include = job.path.with_suffix(".h").resolve()
    object_file = job.folder / "model.o"
    job.run_program(
        [machine.compiler, *machine.compiler_flags, "-c", job.path.resolve(), "-o", object_file]
    )
    job.run_program(
        [
            *(machine.compiler, *machine.compiler_flags, *macros),
            *("-include", include, _DRIVER, object_file, "-o", model),
        ],
        what=include.name,
    )


def _check_names(job: Job, start: list[str]) -> None:
    """Compare the names of columns, targets and classes, in UTF-8, up to a NUL as in C strings."""
    schema = job.schema
    names_in_file = job.run_program([*start, "names"])
    targets = [output.name for output in schema.outputs]
    classes = [[str(label) for label in output.classes] for output in schema.outputs]
    wanted = [list(schema.names), *([targets] if schema.more else [])]
    wanted += classes if schema.task == "classification" else [[]]
    expected = b"".join(
        b"".join(_encode_utf8(n) + b"\0" for n in names) + b"\0" for names in wanted
    )
    if names_in_file != expected:
        raise VerificationError(
            f"{job.path.name!r} differs from the model in column or class names"
        )


def _encode_utf8(text: str) -> bytes:
    """Encode text as UTF-8, also lone surrogates, which no C file can contain."""
    return text.encode(errors="surrogatepass")


def _check_codes(job: Job, start: list[str], order: str) -> None:
    """Compare the code of every category, and of a text outside the vocabulary."""
    requests, codes, int_type = [], [], f"{order}i4"
    for f, column in enumerate(job.schema.columns):
        texts = [*column.levels, make_unseen_text(column)] if column.kind == "nominal" else ["x"]
        for code, text in enumerate(texts):
            content = _encode_utf8(text)
            requests.append(np.array([f, len(content)], dtype=int_type).tobytes() + content)
            codes.append(code if code < len(column.levels) else -1)
    codes_in_file = np.frombuffer(
        job.run_program([*start, "codes"], b"".join(requests)), dtype=int_type
    )
    if not np.array_equal(codes_in_file, codes):
        raise VerificationError(
            f"{job.path.name!r} differs from the model in the codes of categories"
        )
