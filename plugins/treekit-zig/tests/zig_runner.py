"""Run generated Zig in this process: compile it to a shared library and call it by ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FACE = """\
const m = @import("{name}.zig");

export fn {face}_answer(x: [*]const f64, rows: usize, labels: [*]i64, out: [*]f64) void {{
    for (0..rows) |row| {{
        const cells = x[row * m.features ..][0..m.features];
        const told = out[row * m.outputs ..][0..m.outputs];
        const said = labels[row * m.targets ..][0..m.targets];
        @memset(said, -1);
        if (m.classes == 0 and m.targets == 1) {{
            if (m.predict(cells)) |number| {{
                told[0] = number;
                said[0] = 0;
            }}
        }} else if (m.classes == 0) {{
            if (m.predict(cells)) |numbers| {{
                told.* = numbers;
                @memset(said, 0);
            }}
        }} else if (m.targets == 1) {{
            if (m.predict(cells, told)) |label| said[0] = @intCast(label);
        }} else {{
            if (m.predict(cells, told)) |found| {{
                for (said, found) |*one, label| one.* = @intCast(label);
            }}
        }}
    }}
}}

export fn {face}_code(feature: usize, text: [*]const u8, size: usize) f64 {{
    return m.levelCode(feature, text[0..size]) orelse -1.0;
}}

/// Names of features (kind 0), targets (1), labels of target `a` (2), levels of feature `a` (3).
export fn {face}_name(kind: usize, a: usize, b: usize, size: *usize) ?[*]const u8 {{
    const names: []const []const u8 = switch (kind) {{
        0 => &m.feature_names,
        1 => &m.target_names,
        2 => m.labels[a],
        else => m.levels[a],
    }};
    if (b >= names.len) return null;
    size.* = names[b].len;
    return names[b].ptr;
}}
"""


MAIN = 'pub const panic = @import("std").debug.no_panic;\n'
"""A panic ends the process without a message; compiling messages would take a second."""

CACHE = tempfile.TemporaryDirectory(prefix="treekit-zig-")
"""The compiler's cache folder."""


class Zig:
    """A compiled generated file."""

    def __init__(self, library: ctypes.CDLL, face: str, schema) -> None:
        self.schema = schema
        self._answer, self._code, self._name = (
            getattr(library, f"{face}_{what}") for what in ("answer", "code", "name")
        )
        self._code.restype = ctypes.c_double
        self._name.restype = ctypes.c_void_p

    def answers(self, rows):
        """Return labels (rows, targets), -1 = refused row, and numbers (rows, outputs)."""
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        labels = np.zeros((len(rows), len(self.schema.outputs)), np.int64)
        numbers = np.zeros((len(rows), self.schema.n_values))
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (rows, labels, numbers)]
        self._answer(pointers[0], ctypes.c_size_t(len(rows)), *pointers[1:])
        return labels, numbers

    def code(self, feature, text):
        """Return the code of a category, -1 if it is unseen."""
        content = text.encode()
        return self._code(ctypes.c_size_t(feature), content, ctypes.c_size_t(len(content)))

    def cell(self, feature, value):
        """Convert a cell to the number that the file expects; an unseen category is -1."""
        if value is None:
            return np.nan
        return self.code(feature, value) if isinstance(value, str) else value

    def names(self, kind, a=0):
        """Return the names that the file exposes; see `FACE`."""
        found, size = [], ctypes.c_size_t()
        while True:
            place = [ctypes.c_size_t(n) for n in (kind, a, len(found))]
            pointer = self._name(*place, ctypes.byref(size))
            if pointer is None:
                return found
            found.append(ctypes.string_at(pointer, size.value).decode())


def compiled(sources, schemas, folder: Path):
    """Compile generated files together into one library; return a `Zig` for each.

    Parameters
    ----------
    sources : list of bytes
    schemas : list of Schema
    folder : Path
        Working folder.
    """
    folder.mkdir(exist_ok=True)
    main = [MAIN]
    for number, source in enumerate(sources):
        (folder / f"model{number}.zig").write_bytes(source)
        face = FACE.format(name=f"model{number}", face=f"m{number}")
        (folder / f"face{number}.zig").write_text(face, encoding="utf-8")
        main.append(f'comptime {{ _ = @import("face{number}.zig"); }}\n')
    (folder / "main.zig").write_text("".join(main), encoding="utf-8")
    build("main.zig", "main.o", folder)
    link = ["gcc", "-shared", "-z", "noexecstack", "-o", "models.so", "main.o"]
    subprocess.run(link, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "models.so"))
    return [Zig(library, f"m{number}", schema) for number, schema in enumerate(schemas)]


def build(source, target, folder: Path, *options):
    """Compile one file with the compiler of the package ziglang."""
    cache = ["--cache-dir", CACHE.name, "--global-cache-dir", CACHE.name]
    command = [sys.executable, "-m", "ziglang", "build-obj", "-fPIC", "-fno-stack-check", *cache]
    command += [*options, f"-femit-bin={target}", str(source)]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"zig failed to compile {source}: {done.stderr}")


def run(path, schema, rows):
    """Predict rows of numbers and texts by a file, for `treekit.testing.check_exporter`."""
    with tempfile.TemporaryDirectory() as folder:
        (zig,) = compiled([path.read_bytes()], [schema], Path(folder))
        cells = [[zig.cell(f, value) for f, value in enumerate(row)] for row in rows]
        labels, numbers = zig.answers(np.array(cells).reshape(len(rows), schema.n_features))
        predictions = []
        for label, number in zip(labels.tolist(), numbers.tolist(), strict=True):
            names = [o.classes[k] for o, k in zip(schema.outputs, label, strict=True) if o.classes]
            predictions.append((names, number) if min(label) >= 0 else None)
    return predictions
