"""Compilation and execution of C artifacts, and their comparison with a fresh export."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.export.c import export_c
from treekit.export.literals import list_shipped_folders
from treekit.model.fixed_point import make_exponent, scale_units
from treekit.model.links import apply_link
from treekit.model.model import Model
from treekit.verify.answers import (
    REFUSED,
    UNKNOWN_LABEL,
    Answers,
    parse_plain_predictions,
    parse_predictions,
)
from treekit.verify.fresh_export import equals_export, find_source_settings
from treekit.verify.probe_values import list_category_texts
from treekit.verify.runtime import Job, Runtime, read_version

_INPUT_LINE = re.compile(r'^#define \w+_INPUT "(\w+)"', re.MULTILINE)
_SETTINGS_BY_CELL: dict[str, dict[str, str]] = {
    "double": {},
    "float": {"input": "float"},
    "uint32_t": {"arithmetic": "integer"},
    "uint64_t": {"arithmetic": "integer"},
}
"""Settings by the type of a row's cells."""


def is_fresh_c(path: Path, model: Model) -> bool:
    """Return whether this version of treekit writes the same source and header for the model."""
    header = path.with_suffix(".h")
    text = header.read_text(encoding="utf-8", errors="replace") if header.is_file() else ""
    asked, cell = find_source_settings(text), _INPUT_LINE.search(text)
    if asked is None or (cell is not None and cell[1] not in _SETTINGS_BY_CELL):
        return False
    if cell is not None:  # the complete interface
        asked |= _SETTINGS_BY_CELL[cell[1]]
    # With treekit's own templates, even if this machine is configured for others.
    templates = str(list_shipped_folders()[0])
    return equals_export(path, lambda: export_c(model, path.stem, templates=templates, **asked))


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
    def compile_command(self) -> list[str | Path]:
        """The compiler and its flags; an emulator finds no shared libraries and needs `-static`."""
        return [self.compiler, *_COMPILER_FLAGS, *(["-static"] if self.emulator else [])]

    def run(self, job: Job, mode: str, content: bytes = b"") -> bytes:
        """Run the compiled driver of a job."""
        prefix = [self.emulator] if self.emulator else []
        return job.run_program([*prefix, job.folder / "model", mode], content)


@dataclass(frozen=True)
class _Header:
    """Contents of a generated header: prefix of the functions, and macros by name."""

    prefix: str
    macros: dict[str, str]

    def convert_sums(self, schema: Schema, out: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Convert integer sums to numbers, as declared by the header."""
        if self.macros["OUTPUT"] == "double":
            return np.ascontiguousarray(out, dtype=np.float64)
        if "TOTAL" in self.macros:
            return np.asarray(out / int(self.macros["TOTAL"]), dtype=np.float64)
        means = out / int(self.macros["DIVISOR"])
        link: Any = self.macros["LINK"]
        each = self.macros.get("EXPONENTS", self.macros.get("EXPONENT", "")).strip("{}").split(",")
        numbers = scale_units(means, make_exponent(list(map(int, each))))
        return apply_link(link, numbers, schema.blocks)


def _make_runtime(name: str, machine: _Toolchain) -> Runtime:
    commands = [[machine.compiler, "-dumpfullversion", "-dumpversion"]]
    commands += [[machine.emulator, "--version"]] if machine.emulator else []

    def explain_unavailable(path: Path) -> str:
        del path
        absent = [program for program, *_ in commands if shutil.which(program) is None]
        return f"{absent[0]} is not installed" if absent else ""

    return Runtime(
        name,
        partial(_run_compiled, machine),
        lambda: ", ".join(map(read_version, commands)),
        explain_unavailable,
    )


def _run_compiled(
    machine: _Toolchain, job: Job, rows: npt.NDArray[np.float64]
) -> Iterator[tuple[str, Answers]]:
    """Compile with ``-std=c99 -O2``, check the names, and run rows one by one and in batches."""
    readable = _read_readable_header(job)
    if readable is not None:
        yield "single", _run_readable(job, *readable, rows, machine)
        return
    schema, header, order = job.schema, _read_header(job), machine.byte_order
    if not (job.folder / "model").is_file():
        _compile_driver(job, header, machine)
        _check_names(job, machine)
        _check_codes(job, machine)
    given = rows.astype(f"{order}f8").tobytes()
    number = order + _NUMBER_TYPES[header.macros["OUTPUT"]]
    for mode in ("single", "batch"):
        labels, out = parse_predictions(
            job.path.name, machine.run(job, mode, given), len(rows), schema, _count_labels(schema),
            f"{order}i4", number,
        )  # fmt: skip
        label = np.broadcast_to(labels, (len(rows), len(schema.outputs))).copy()
        label[label < REFUSED] = UNKNOWN_LABEL
        yield mode, Answers(label, header.convert_sums(schema, out))


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
    header = _Header(function[1], {"INPUT": "double", "OUTPUT": "double"} | dict(lines))
    wanted = _get_sizes(schema)
    if any(header.macros.get(name) != str(size) for name, size in wanted.items()):
        raise VerificationError(f"{path.name!r} differs from the model in columns or classes")
    cell, number = header.macros["INPUT"], header.macros["OUTPUT"]
    if cell not in _KEY_BITS or number not in _NUMBER_TYPES:
        raise VerificationError(f"{path.name!r} has an unknown input or output type")
    return header


def _read_readable_header(job: Job) -> tuple[str, list[tuple[str, str, int]]] | None:
    """Read the header of the readable form (`treekit.export.readable`); None for any other.

    Return the prefix of its functions, and the type, name and column number from 1 of each member.
    """
    path, schema = job.path.with_suffix(".h"), job.schema
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    function = re.search(r"^(enum \w+|double) (\w+)_predict\(const struct", text, re.MULTILINE)
    if function is None:
        return None
    found = re.findall(r"^ +(enum \w+|float|double) (\w+); /\* column (\d+):", text, re.MULTILINE)
    members = [(kind, name, int(number)) for kind, name, number in found]
    if (function[1] == "double") != (schema.task == "regression") or any(
        not 1 <= number <= schema.n_features
        or kind.startswith("enum") != (schema.columns[number - 1].kind == "nominal")
        for kind, _, number in members
    ):
        raise VerificationError(f"{path.name!r} differs from the model in columns or classes")
    return function[2], members


def _run_readable(
    job: Job,
    prefix: str,
    members: list[tuple[str, str, int]],
    rows: npt.NDArray[np.float64],
    machine: _Toolchain,
) -> Answers:
    """Compile the readable form with a driver of its struct, and run rows one by one."""
    schema, order = job.schema, machine.byte_order
    if not (job.folder / "model").is_file():
        assignments = "".join(
            f"row.{name} = ({kind}){'code_of' * kind.startswith('enum')}(cells[{at - 1}]);"
            for kind, name, at in members
        )
        _compile(
            job,
            machine,
            ROW=f"struct {prefix}_row",
            MEMBERS=assignments or "row.unused = 0;",
            FEATURES=schema.n_features,
            NUMBER="double" if schema.task == "regression" else "int32_t",
            PREDICT=f"{prefix}_predict",
        )
    answer = machine.run(job, "single", rows.astype(f"{order}f8").tobytes())
    return parse_plain_predictions(
        job.path.name, answer, len(rows), schema, f"{order}i4", f"{order}f8"
    )


def _get_sizes(schema: Schema) -> dict[str, int]:
    return {
        "FEATURES": schema.n_features,
        "TARGETS": len(schema.outputs),
        "CLASSES": sum(len(output.classes) for output in schema.outputs),
        "OUTPUTS": schema.n_values,
    }


def _compile_driver(job: Job, header: _Header, machine: _Toolchain) -> None:
    functions = ("predict", "predict_batch", "level_code", "level_count")
    names = (*functions, "class_name", "feature_name", "target_name")
    macros: dict[str, Any] = {name.upper(): f"{header.prefix}_{name}" for name in names}
    sizes = _get_sizes(job.schema)
    macros |= {name: sizes[name] for name in ("FEATURES", "TARGETS", "OUTPUTS")}
    cell = header.macros["INPUT"]
    macros |= {"LABELS": _count_labels(job.schema), "CELL": cell}
    if bits := _KEY_BITS[cell]:
        macros |= {"KEY": f"{header.prefix}_key", "BITS": bits}
    _compile(job, machine, NUMBER=header.macros["OUTPUT"], **macros)


def _compile(job: Job, machine: _Toolchain, **macros: Any) -> None:
    """Compile the artifact, then the driver with the artifact's header and some macros."""
    header, model = job.path.with_suffix(".h").resolve(), job.folder / "model.o"
    compiler = machine.compile_command
    job.run_program([*compiler, "-x", "c", "-c", job.path.resolve(), "-o", model])
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    sources: list[str | Path] = ["-include", header, _DRIVER, model, "-o", job.folder / "model"]
    job.run_program([*compiler, *defined, *sources], what=header.name)


def _check_names(job: Job, machine: _Toolchain) -> None:
    """Compare the names of columns, targets and classes, in UTF-8, up to a NUL as in C strings."""
    schema = job.schema
    wanted = [list(schema.names)]
    wanted += [[output.name for output in schema.outputs]] if schema.more else []
    if schema.task == "classification":
        wanted += [[str(label) for label in output.classes] for output in schema.outputs]
    else:
        wanted.append([])
    ended = ["".join(f"{name}\0" for name in names) + "\0" for names in wanted]
    if machine.run(job, "names") != _encode_utf8("".join(ended)):
        raise VerificationError(
            f"{job.path.name!r} differs from the model in column or class names"
        )


def _encode_utf8(text: str) -> bytes:
    """Encode text as UTF-8, also lone surrogates, which no C file can contain."""
    return text.encode(errors="surrogatepass")


def _check_codes(job: Job, machine: _Toolchain) -> None:
    """Compare the code of every category, and of a text outside the vocabulary."""
    requests, int_type = [], f"{machine.byte_order}i4"
    texts = list_category_texts(job.schema)
    for feature, text, _ in texts:
        content = _encode_utf8(text)
        requests.append(np.array([feature, len(content)], dtype=int_type).tobytes() + content)
    codes = np.array([code for _, _, code in texts], dtype=int_type)
    if machine.run(job, "codes", b"".join(requests)) != codes.tobytes():
        raise VerificationError(
            f"{job.path.name!r} differs from the model in the codes of categories"
        )


C_RUNTIMES = (
    _make_runtime("gcc", _Toolchain("gcc")),
    _make_runtime("clang", _Toolchain("clang")),
    _make_runtime("qemu-arm", _Toolchain("arm-linux-gnueabi-gcc", "qemu-arm", "<")),
    _make_runtime("qemu-aarch64", _Toolchain("aarch64-linux-gnu-gcc", "qemu-aarch64", "<")),
    _make_runtime("qemu-s390x", _Toolchain("s390x-linux-gnu-gcc", "qemu-s390x", ">")),
)
"""Native compilers; then an ARM without floating point, a 64-bit ARM, and a big-endian machine."""
