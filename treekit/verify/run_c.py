"""Compilation of C artifacts, and their execution in a separate process."""

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
from treekit.errors import VerificationError
from treekit.model.links import linked
from treekit.verify.answers import STRANGE, Answers
from treekit.verify.probe_values import unseen_text
from treekit.verify.runtime import Job, Runtime, program

__all__ = ["C_RUNTIMES", "c_files"]

_DRIVER = Path(__file__).with_name("c_driver.c")
_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")
_CELLS = {"double": 0, "float": 0, "uint32_t": 32, "uint64_t": 64}
"""Types of a row's cells, with the bits of a number where cells are keys, else 0."""
_NUMBERS = {"double": "f8", "int32_t": "i4", "int64_t": "i8"}


@dataclass(frozen=True)
class _Machine:
    """A compiler, and the emulator that runs its programs, if any.

    Attributes
    ----------
    compiler : str
    emulator : str
        User-mode emulator of another processor; "" = not needed.
    order : {"<", ">"}
        Byte order.
    """

    compiler: str
    emulator: str = ""
    order: str = np.dtype(np.int32).newbyteorder("=").str[0]

    @property
    def start(self) -> list[str]:
        return [self.emulator] if self.emulator else []

    @property
    def flags(self) -> tuple[str, ...]:
        # Static, as the emulator does not find the libraries of its processor.
        return (*_FLAGS, "-static") if self.emulator else _FLAGS


@dataclass(frozen=True)
class _Header:
    """Contents of a generated header: prefix of the functions, and macros by name."""

    prefix: str
    macros: dict[str, str]

    @property
    def cell(self) -> str:
        return self.macros.get("INPUT", "double")

    @property
    def number(self) -> str:
        return self.macros.get("OUTPUT", "double")

    def answers(self, schema: Schema, out: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Convert integer sums to numbers, as declared by the header."""
        if self.number == "double":
            return np.ascontiguousarray(out, dtype=np.float64)
        if "TOTAL" in self.macros:
            return np.asarray(out / int(self.macros["TOTAL"]), dtype=np.float64)
        means = out / int(self.macros["DIVISOR"])
        link: Any = self.macros["LINK"]
        return linked(link, np.ldexp(means, int(self.macros["EXPONENT"])), schema.blocks)


def c_files(path: Path) -> list[Path]:
    """Return the source and its header."""
    return [path, path.with_suffix(".h")]


def _runtime(name: str, machine: _Machine) -> Runtime:
    def run(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
        return _run_compiled(job, rows, machine)

    def version() -> str:
        text = _said([machine.compiler, "-dumpfullversion", "-dumpversion"])
        return f"{text}, {_said([machine.emulator, '--version'])}" if machine.emulator else text

    return Runtime(name, run, version, _lacking(machine))


def _said(command: list[str]) -> str:
    """Return the first line that a program prints."""
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    return (done.stdout.decode(errors="replace").strip().splitlines() or [""])[0]


def _lacking(machine: _Machine) -> Callable[[Path], str]:
    needed = [program(name) for name in (machine.compiler, machine.emulator) if name]
    return lambda path: next(filter(None, (lacking(path) for lacking in needed)), "")


C_RUNTIMES = (
    _runtime("gcc", _Machine("gcc")),
    _runtime("clang", _Machine("clang")),
    _runtime("qemu-arm", _Machine("arm-linux-gnueabi-gcc", "qemu-arm", "<")),
    _runtime("qemu-aarch64", _Machine("aarch64-linux-gnu-gcc", "qemu-aarch64", "<")),
    _runtime("qemu-s390x", _Machine("s390x-linux-gnu-gcc", "qemu-s390x", ">")),
)
"""Native compilers; then an ARM without floating point, a 64-bit ARM, and a big-endian machine."""


def _run_compiled(
    job: Job, rows: npt.NDArray[np.float64], machine: _Machine
) -> Iterator[tuple[str, Answers]]:
    """Compile with ``-std=c99 -O2``, check the names, and run rows one by one and in batches."""
    schema, path = job.schema, job.path
    model, header = job.folder / "model", _read_header(job)
    if not model.is_file():
        _compile(job, header, machine, model)
        _check_names(job, [*machine.start, str(model)])
        _check_codes(job, [*machine.start, str(model)], machine.order)
    classes = [max(len(output.classes), 1) for output in schema.outputs]
    number = machine.order + _NUMBERS[header.number]
    label_type = f"{machine.order}i4"
    record = np.dtype(
        [("label", label_type, (_n_labels(schema),)), ("number", number, (schema.n_values,))]
    )
    given = rows.astype(f"{machine.order}f8").tobytes()
    for mode in ("single", "batch"):
        answer = job.call([*machine.start, model, mode], given)
        if len(answer) != len(rows) * record.itemsize:
            raise VerificationError(f"{path.name!r} did not return a prediction for every row")
        table = np.frombuffer(answer, dtype=record)
        labels = table["label"].astype(np.int64)
        label = np.broadcast_to(labels, (len(table), len(classes))).copy()
        label[(label < -1) | (label >= classes)] = STRANGE
        native = table["number"].astype(number[1:])
        yield mode, Answers(label, header.answers(schema, native))


def _n_labels(schema: Schema) -> int:
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
    wanted = _sizes(schema)
    if any(header.macros.get(name) != str(size) for name, size in wanted.items()):
        raise VerificationError(f"{path.name!r} differs from the model in columns or classes")
    if header.cell not in _CELLS or header.number not in _NUMBERS:
        raise VerificationError(f"{path.name!r} has an unknown input or output type")
    return header


def _sizes(schema: Schema) -> dict[str, int]:
    return {
        "FEATURES": schema.n_features,
        "TARGETS": len(schema.outputs),
        "CLASSES": sum(len(output.classes) for output in schema.outputs),
        "OUTPUTS": schema.n_values,
    }


def _compile(job: Job, header: _Header, machine: _Machine, model: Path) -> None:
    functions = ("predict", "predict_batch", "level_code", "level_count")
    names = (*functions, "class_name", "feature_name", "target_name")
    macros = [f"-D{name.upper()}={header.prefix}_{name}" for name in names]
    sizes = _sizes(job.schema)
    macros += [f"-D{name}={sizes[name]}" for name in ("FEATURES", "TARGETS", "OUTPUTS")]
    macros += [f"-DLABELS={_n_labels(job.schema)}"]
    macros += [f"-DCELL={header.cell}", f"-DNUMBER={header.number}"]
    if bits := _CELLS[header.cell]:
        macros += [f"-DKEY={header.prefix}_key", f"-DBITS={bits}"]
    include = job.path.with_suffix(".h").resolve()
    object_file = job.folder / "model.o"
    job.call([machine.compiler, *machine.flags, "-c", job.path.resolve(), "-o", object_file])
    job.call(
        [
            *(machine.compiler, *machine.flags, *macros),
            *("-include", include, _DRIVER, object_file, "-o", model),
        ],
        what=include.name,
    )


def _check_names(job: Job, start: list[str]) -> None:
    """Compare the names of columns, targets and classes, in UTF-8, up to a NUL as in C strings."""
    schema = job.schema
    names_in_file = job.call([*start, "names"])
    targets = [output.name for output in schema.outputs]
    classes = [[str(label) for label in output.classes] for output in schema.outputs]
    wanted = [list(schema.names), *([targets] if schema.more else [])]
    wanted += classes if schema.task == "classification" else [[]]
    expected = b"".join(b"".join(_utf8(n) + b"\0" for n in names) + b"\0" for names in wanted)
    if names_in_file != expected:
        raise VerificationError(
            f"{job.path.name!r} differs from the model in column or class names"
        )


def _utf8(text: str) -> bytes:
    """Encode text as UTF-8, also lone surrogates, which no C file can contain."""
    return text.encode(errors="surrogatepass")


def _check_codes(job: Job, start: list[str], order: str) -> None:
    """Compare the code of every category, and of a text outside the vocabulary."""
    requests, codes, int_type = [], [], f"{order}i4"
    for f, column in enumerate(job.schema.columns):
        texts = [*column.levels, unseen_text(column)] if column.kind == "nominal" else ["x"]
        for code, text in enumerate(texts):
            content = _utf8(text)
            requests.append(np.array([f, len(content)], dtype=int_type).tobytes() + content)
            codes.append(code if code < len(column.levels) else -1)
    codes_in_file = np.frombuffer(job.call([*start, "codes"], b"".join(requests)), dtype=int_type)
    if not np.array_equal(codes_in_file, codes):
        raise VerificationError(
            f"{job.path.name!r} differs from the model in the codes of categories"
        )
