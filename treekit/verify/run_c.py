"""Compiling and running C artifacts, in a process of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.verify.answers import STRANGE, Answers
from treekit.verify.unseen import unseen_text

__all__ = ["compiler_version", "run_c"]

_DRIVER = Path(__file__).with_name("c_driver.c")
_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")


def compiler_version() -> tuple[str, str]:
    """Name and version of the C compiler."""
    answer = _run([_compiler(), "-dumpfullversion"], b"", "the C compiler")
    return "gcc", answer.decode(errors="replace").strip()


def run_c(
    path: Path, schema: Schema, rows: npt.NDArray[np.float64]
) -> Iterator[tuple[str, Answers]]:
    """Compile with ``gcc -std=c99 -O2``; ask row by row, in batches, and for its names."""
    with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
        program = _compiled(path, schema, Path(folder))
        _check_names(program, path, schema)
        _check_codes(program, path, schema)
        classes = [max(len(output.classes), 1) for output in schema.outputs]
        record = np.dtype(
            [("label", np.intc, (_n_labels(schema),)), ("number", np.float64, (schema.n_values,))]
        )
        for mode in ("single", "batch"):
            answer = _run([str(program), mode], rows.tobytes(), path.name)
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


def _compiler() -> str:
    compiler = shutil.which("gcc")
    if compiler is None:
        raise VerificationError("no gcc on the PATH; install it to verify C files")
    return compiler


def _compiled(path: Path, schema: Schema, folder: Path) -> Path:
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
    program = folder / "model"
    source, include = str(path.resolve()), str(header.resolve())
    _run([_compiler(), *_FLAGS, "-c", source, "-o", str(folder / "model.o")], b"", path.name)
    _run(
        [
            *(_compiler(), *_FLAGS, *macros, "-include", include),
            *(str(_DRIVER), str(folder / "model.o"), "-o", str(program)),
        ],
        b"",
        header.name,
    )
    return program


def _run(command: list[str], content: bytes, what: str) -> bytes:
    done = subprocess.run(command, input=content, capture_output=True, check=False)  # noqa: S603
    if done.returncode != 0:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise VerificationError(
            f"{what!r} failed with exit code {done.returncode}: {' | '.join(told[:4])}"
        )
    return done.stdout


def _check_names(program: Path, path: Path, schema: Schema) -> None:
    """The names of columns, targets and classes, in UTF-8, up to a NUL as C texts are."""
    told = _run([str(program), "names"], b"", path.name)
    targets = [output.name for output in schema.outputs]
    classes = [[str(label) for label in output.classes] for output in schema.outputs]
    wanted = [list(schema.names), *([targets] if schema.more else [])]
    wanted += classes if schema.task == "classification" else [[]]
    expected = b"".join(b"".join(_utf8(n) + b"\0" for n in names) + b"\0" for names in wanted)
    if told != expected:
        raise VerificationError(f"{path.name!r} names its columns or classes otherwise")


def _utf8(text: str) -> bytes:
    """UTF-8, also of half a surrogate pair, which no C file can hold."""
    return text.encode(errors="surrogatepass")


def _check_codes(program: Path, path: Path, schema: Schema) -> None:
    """The code of every level, and that of a text outside the vocabulary."""
    asked, codes = [], []
    for f, column in enumerate(schema.columns):
        texts = [*column.levels, unseen_text(column)] if column.kind == "nominal" else ["x"]
        for code, text in enumerate(texts):
            content = _utf8(text)
            asked.append(np.array([f, len(content)], dtype=np.intc).tobytes() + content)
            codes.append(code if code < len(column.levels) else -1)
    told = np.frombuffer(_run([str(program), "codes"], b"".join(asked), path.name), dtype=np.intc)
    if not np.array_equal(told, codes):
        raise VerificationError(f"{path.name!r} codes its categories otherwise")
