"""Compare rows per second of one forest in Zig, C, onnxruntime and scikit-learn, in one run.

Needs the extra `test` (ziglang) and gcc; prints the table of the README.
"""

import ctypes
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import treekit

FACE = """\
const m = @import("m.zig");
export fn answer(x: [*]const f64, rows: usize, out: [*]f64) void {
    for (0..rows) |row| {
        _ = m.predict(x[row * m.features ..][0..m.features], out[row * m.outputs ..][0..m.outputs]);
    }
}
"""
REPEATS = 20


def best(function):
    """Return the seconds of the fastest of five calls."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def shared(folder, command):
    """Run a compiler command in `folder` and load the shared library it writes."""
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / command[-1]))


def main():
    bunch = load_breast_cancer(as_frame=True)
    table = bunch.data.assign(y=bunch.target)
    model = treekit.train(table, "y", ensemble="forest", trees=100, seed=0)
    rows = np.tile(bunch.data.to_numpy(), (REPEATS, 1))
    wanted = np.tile(model.predict_proba(bunch.data), (REPEATS, 1))
    narrow, out = rows.astype(np.float32), np.zeros((len(rows), 2))
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (rows, out)]
    size = ctypes.c_size_t(len(rows))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for target, file in (("zig", "m.zig"), ("c", "m.c"), ("onnx", "m.onnx")):
            treekit.export(model, target, folder / file)
        (folder / "face.zig").write_text(FACE, encoding="utf-8")
        build = [sys.executable, "-m", "ziglang", "build-obj", "-fPIC", "-O", "ReleaseFast"]
        subprocess.run([*build, "-femit-bin=z.o", "face.zig"], cwd=folder, check=True)
        zig = shared(folder, ["gcc", "-shared", "-z", "noexecstack", "z.o", "-o", "zig.so"])
        c = shared(folder, ["gcc", "-std=c99", "-O2", "-fPIC", "-shared", "m.c", "-o", "c.so"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / "m.onnx"), options)
        forest = RandomForestClassifier(100, random_state=0).fit(
            bunch.data.to_numpy(), bunch.target
        )
        ways = {
            "treekit-zig, ReleaseFast": lambda: zig.answer(pointers[0], size, pointers[1]),
            "treekit's C, gcc -O2": lambda: c.m_predict_batch(pointers[0], size, None, pointers[1]),
            "onnxruntime, one thread": lambda: session.run(None, {"X": narrow}),
            "scikit-learn, one thread": lambda: forest.predict_proba(rows),
        }
        print("| tool | rows per second |\n|---|---:|")
        for what, call in ways.items():
            out[:] = -1.0
            seconds = best(call)
            if what.startswith("treekit"):
                assert np.array_equal(out, wanted), what
            print(f"| {what} | {len(rows) / seconds:,.0f} |")


if __name__ == "__main__":
    main()
