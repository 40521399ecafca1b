"""Compiling and running C artifacts, in a process of their own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.verify.answers import STRANGE, Answers
from treekit.verify.runtime import Job, Runtime, program
from treekit.verify.unseen import unseen_text

__all__ = ["C_RUNTIMES", "c_files"]

_DRIVER = Path(__file__).with_name("c_driver.c")
_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")


def c_files(path: Path) -> list[Path]:
    """The source and its header."""
    return [path, path.with_suffix(".h")]


def _runtime(compiler: str) -> Runtime:
    def run(job: Job, rows: npt.NDArray[np.float64]) -> Iterator[tuple[str, Answers]]:
        return _run_compiled(job, rows, compiler)

    def version() -> str:
        done = subprocess.run(  # noqa: S603
            [compiler, "-dumpfullversion", "-dumpversion"],
            capture_output=True,
            check=False,
        )
        return done.stdout.decode(errors="replace").strip()

    return Runtime(compiler, run, version, program(compiler))


C_RUNTIMES = (_runtime("gcc"), _runtime("clang"))


def _run_compiled(
    job: Job, rows: npt.NDArray[np.float64], compiler: str
) -> Iterator[tuple[str, Answers]]:
    """Compile with ``-std=c99 -O2``; ask row by row, in batches, and for its names."""
    schema, path = job.schema, job.path
    model = job.folder / "model"
    if not model.is_file():
        _compile(job, compiler, model)
        _check_names(job, model)
        _check_codes(job, model)
    classes = [max(len(output.classes), 1) for output in schema.outputs]
    record = np.dtype(
        [("label", np.intc, (_n_labels(schema),)), ("number", np.float64, (schema.n_values,))]
    )
    for mode in ("single", "batch"):
        answer = job.call([model, mode], rows.tobytes())
        if len(answer) != len(rows) * record.itemsize:
            raise VerificationError(f"{path.name!r} did not answer every row")
        table = np.frombuffer(answer, dtype=record)
        told = table["label"].astype(np.int64)
        label = np.broadcast_to(told, (len(table), len(classes))).copy()
        label[(label < -1) | (label >= classes)] = STRANGE
        yield mode, Answers(label, np.ascontiguousarray(table["number"]))


def _n_labels(schema: Schema) -> int:
    """Labels that one call gives: one, or one a target if several have classes."""
    return len(schema.outputs) if schema.task == "classification" else 1


def _compile(job: Job, compiler: str, model: Path) -> None:
    path, schema = job.path, job.schema
    header = path.with_suffix(".h")
    if not header.is_file():
        raise VerificationError(f"{path.name!r} needs its header {header.name!r} beside it")
    text = header.read_text(encoding="utf-8", errors="replace")
    macro = re.search(r"^#define (\w+)_FEATURES ([0-9]+)", text, re.MULTILINE)
    function = re.search(r"^int (\w+)_predict\(", text, re.MULTILINE)
    if macro is None or function is None:
        raise VerificationError(f"{header.name!r} is not a header that treekit writes")
    wanted = {
        "FEATURES": schema.n_features,
        "TARGETS": len(schema.outputs),
        "CLASSES": sum(len(output.classes) for output in schema.outputs),
        "OUTPUTS": schema.n_values,
    }
    told = {
        name: re.search(rf"^#define {macro[1]}_{name} ([0-9]+)", text, re.MULTILINE)
        for name in wanted
    }
    if any(own is None or int(own[1]) != wanted[name] for name, own in told.items()):
        raise VerificationError(f"{header.name!r} has other columns or classes than the model")
    prefix = function[1]
    names = ("predict", "predict_batch", "level_code", "class_name", "feature_name", "target_name")
    macros = [f"-D{name.upper()}={prefix}_{name}" for name in names]
    macros += [f"-D{name}={number}" for name, number in wanted.items() if name != "CLASSES"]
    macros.append(f"-DLABELS={_n_labels(schema)}")
    source, include = path.resolve(), header.resolve()
    made = job.folder / "model.o"
    job.call([compiler, *_FLAGS, "-c", source, "-o", made])
    job.call(
        [compiler, *_FLAGS, *macros, "-include", include, _DRIVER, made, "-o", model],
        what=header.name,
    )


def _check_names(job: Job, model: Path) -> None:
    """The names of columns, targets and classes, in UTF-8, up to a NUL as C texts are."""
    schema = job.schema
    told = job.call([model, "names"])
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


def _check_codes(job: Job, model: Path) -> None:
    """The code of every level, and that of a text outside the vocabulary."""
    asked, codes = [], []
    for f, column in enumerate(job.schema.columns):
        texts = [*column.levels, unseen_text(column)] if column.kind == "nominal" else ["x"]
        for code, text in enumerate(texts):
            content = _utf8(text)
            asked.append(np.array([f, len(content)], dtype=np.intc).tobytes() + content)
            codes.append(code if code < len(column.levels) else -1)
    told = np.frombuffer(job.call([model, "codes"], b"".join(asked)), dtype=np.intc)
    if not np.array_equal(told, codes):
        raise VerificationError(f"{job.path.name!r} codes its categories otherwise")
