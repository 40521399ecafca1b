"""Compiling and running C artifacts, in a process of their own."""

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
"""Types of a row's cells, and how many bits a number has where they are keys."""
_NUMBERS = {"double": "f8", "int32_t": "i4", "int64_t": "i8"}


@dataclass(frozen=True)
class _Machine:
    """A compiler, and what runs its programs here.

    Attributes
    ----------
    compiler : str
    emulator : str
        Of another processor, in user mode; "" = none is needed.
    order : {"<", ">"}
        Which byte of a number comes first there.
    """

    compiler: str
    emulator: str = ""
    order: str = np.dtype(np.int32).newbyteorder("=").str[0]

    @property
    def start(self) -> list[str]:
        return [self.emulator] if self.emulator else []

    @property
    def flags(self) -> tuple[str, ...]:
        # The emulator finds no libraries of its processor: they go into the program.
        return (*_FLAGS, "-static") if self.emulator else _FLAGS


@dataclass(frozen=True)
class _Header:
    """What a generated header says: prefix of the functions, and its macros by name."""

    prefix: str
    macros: dict[str, str]

    @property
    def cell(self) -> str:
        return self.macros.get("INPUT", "double")

    @property
    def number(self) -> str:
        return self.macros.get("OUTPUT", "double")

    def answers(self, schema: Schema, out: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The numbers that integer sums stand for, as the header says."""
        if self.number == "double":
            return np.ascontiguousarray(out, dtype=np.float64)
        if "TOTAL" in self.macros:
            return np.asarray(out / int(self.macros["TOTAL"]), dtype=np.float64)
        means = out / int(self.macros["DIVISOR"])
        link: Any = self.macros["LINK"]
        return linked(link, np.ldexp(means, int(self.macros["EXPONENT"])), schema.blocks)


def c_files(path: Path) -> list[Path]:
    """The source and its header."""
    return [path, path.with_suffix(".h")]


def _runtime(name: str, machine: _Machine) -> Runtime:
    def run(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
        return _run_compiled(job, rows, machine)

    def version() -> str:
        told = _said([machine.compiler, "-dumpfullversion", "-dumpversion"])
        return f"{told}, {_said([machine.emulator, '--version'])}" if machine.emulator else told

    return Runtime(name, run, version, _lacking(machine))


def _said(command: list[str]) -> str:
    """The first line that a program prints."""
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
"""This machine's own compilers; then an ARM without floating point, a 64-bit ARM, and a machine
of the other byte order."""


def _run_compiled(
    job: Job, rows: npt.NDArray[np.float64], machine: _Machine
) -> Iterator[tuple[str, Answers]]:
    """Compile with ``-std=c99 -O2``; ask row by row, in batches, and for its names."""
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
            raise VerificationError(f"{path.name!r} did not answer every row")
        table = np.frombuffer(answer, dtype=record)
        told = table["label"].astype(np.int64)
        label = np.broadcast_to(told, (len(table), len(classes))).copy()
        label[(label < -1) | (label >= classes)] = STRANGE
        native = table["number"].astype(number[1:])
        yield mode, Answers(label, header.answers(schema, native))


def _n_labels(schema: Schema) -> int:
    """Labels that one call gives: one, or one a target if several have classes."""
    return len(schema.outputs) if schema.task == "classification" else 1


def _read_header(job: Job) -> _Header:
    path, schema = job.path.with_suffix(".h"), job.schema
    if not path.is_file():
        raise VerificationError(f"{job.path.name!r} needs its header {path.name!r} beside it")
    text = path.read_text(encoding="utf-8", errors="replace")
    function = re.search(r"^int (\w+)_predict\(", text, re.MULTILINE)
    if function is None:
        raise VerificationError(f"{path.name!r} is not a header that treekit writes")
    start = f"{function[1].upper()}_"
    lines = re.findall(rf'^#define {start}([A-Z_]+) \(?"?([\w.+-]+)', text, re.MULTILINE)
    header = _Header(function[1], dict(lines))
    wanted = _sizes(schema)
    if any(header.macros.get(name) != str(size) for name, size in wanted.items()):
        raise VerificationError(f"{path.name!r} has other columns or classes than the model")
    if header.cell not in _CELLS or header.number not in _NUMBERS:
        raise VerificationError(f"{path.name!r} has rows or answers of a type that is unknown")
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
    made = job.folder / "model.o"
    job.call([machine.compiler, *machine.flags, "-c", job.path.resolve(), "-o", made])
    job.call(
        [
            *(machine.compiler, *machine.flags, *macros),
            *("-include", include, _DRIVER, made, "-o", model),
        ],
        what=include.name,
    )


def _check_names(job: Job, start: list[str]) -> None:
    """The names of columns, targets and classes, in UTF-8, up to a NUL as C texts are."""
    schema = job.schema
    told = job.call([*start, "names"])
    targets = [output.name for output in schema.outputs]
    classes = [[str(label) for label in output.classes] for output in schema.outputs]
    wanted = [list(schema.names), *([targets] if schema.more else [])]
    wanted += classes if schema.task == "classification" else [[]]
    expected = b"".join(b"".join(_utf8(n) + b"\0" for n in names) + b"\0" for names in wanted)
    if told != expected:
        raise VerificationError(f"{job.path.name!r} names its columns or classes otherwise")


def _utf8(text: str) -> bytes:
    """UTF-8, also of half a surrogate pair, which no C file can hold."""
    return text.encode(errors="surrogatepass")


def _check_codes(job: Job, start: list[str], order: str) -> None:
    """The code of every level, and that of a text outside the vocabulary."""
    asked, codes, whole = [], [], f"{order}i4"
    for f, column in enumerate(job.schema.columns):
        texts = [*column.levels, unseen_text(column)] if column.kind == "nominal" else ["x"]
        for code, text in enumerate(texts):
            content = _utf8(text)
            asked.append(np.array([f, len(content)], dtype=whole).tobytes() + content)
            codes.append(code if code < len(column.levels) else -1)
    told = np.frombuffer(job.call([*start, "codes"], b"".join(asked)), dtype=whole)
    if not np.array_equal(told, codes):
        raise VerificationError(f"{job.path.name!r} codes its categories otherwise")
