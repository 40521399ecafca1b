"""Measure the flash of programs for small processors, and write the table of the documentation.

    python -m tests.export.flash

prints the table between the marks of ``docs/tutorials/deploy.md``.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

import treekit
from treekit.data import demo_table
from treekit.export.c import export_c
from treekit.model.model import Model

__all__ = ["PROCESSORS", "WITHOUT_LIBRARY", "make_table", "measure", "train"]

PROCESSORS = {
    "m0": ("-mcpu=cortex-m0", "-mthumb"),
    "m4": ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
}
SECTIONS = ("-ffunction-sections", "-fdata-sections", "-nostdlib")
LINK = ("-Wl,--gc-sections", "-Wl,-emain", "-lgcc", "-lc", "-lgcc")
DATA = {
    "wine": (load_wine, str),
    "cancer": (load_breast_cancer, str),
    "digits": (load_digits, str),
    "diabetes": (load_diabetes, float),
}


def train(name: str, trees: int, depth: int, dtype: str = "float32", seed: int = 5) -> Model:
    settings = {"seed": seed, "max_depth": depth, "dtype": dtype}
    settings |= {"ensemble": "forest", "trees": trees} if trees > 1 else {}
    if name == "colic":
        return treekit.train(demo_table(), "surgical_lesion", **settings)
    load, kind = DATA[name]
    return treekit.train(load(as_frame=True).frame.astype({"target": kind}), "target", **settings)


WITHOUT_LIBRARY = ("-Wl,--gc-sections", "-Wl,-emain", "-Wl,--unresolved-symbols=ignore-all")
"""For programs without the compiler's functions for floating point."""


def measure(
    model: Model,
    folder: Path,
    processor: str = "m0",
    link: Sequence[str] = LINK,
    **settings: str,
) -> tuple[int, str]:
    """Return the bytes of flash of a program for one row, and the header of the source."""
    for file, content in export_c(model, "m", **({"form": "full"} | settings)).items():
        (folder / file).write_bytes(content)
    header = (folder / "m.h").read_text()
    (folder / "main.c").write_text(_write_program(header))
    flags = ("-std=c99", "-Os", *PROCESSORS[processor], *SECTIONS)
    command = ["arm-none-eabi-gcc", *flags, "main.c", "m.c", *link, "-o", "m.elf"]
    subprocess.run(command, cwd=folder, check=True)
    told = subprocess.run(
        ["arm-none-eabi-size", "m.elf"], cwd=folder, capture_output=True, text=True, check=True
    )
    text, data, *_ = told.stdout.splitlines()[1].split()
    return int(text) + int(data), header


def _write_program(header: str) -> str:
    """Return a program that asks for labels, or for numbers if there are no labels."""
    if "struct m_row {" in header:
        result = "double" if "double m_predict(" in header else "int"
        return (
            f'#include "m.h"\nstatic struct m_row row;\n{result} told;\n'
            f"int main(void)\n{{\n    told = ({result})m_predict(&row);\n    return 0;\n}}\n"
        )
    cell, out = (re.findall(rf'_{name} "(\w+)"', header)[0] for name in ("INPUT", "OUTPUT"))
    call = "predict_label(row)" if "m_predict_label(" in header else "predict(row, out)"
    if "m_predict_labels(" in header:
        call = "predict_labels(row, labels)"
    return (
        '#include <stdint.h>\n#include "m.h"\n'
        f"static {cell} row[M_FEATURES];\n{out} out[M_OUTPUTS];\nint labels[M_LABELS];\n"
        f"int main(void)\n{{\n    return m_{call};\n}}\n"
    )


MODELS = {
    "wine, 1 tree": ("wine", 1, 20),
    "wine, 10 trees": ("wine", 10, 20),
    "breast cancer, 10 trees": ("cancer", 10, 20),
    "digits, 10 trees": ("digits", 10, 20),
    "diabetes, 10 trees of depth 4": ("diabetes", 10, 4),
}
WAYS: dict[str, dict[str, str]] = {
    "compact, integers": {"form": "compact", "arithmetic": "integer"},
    "auto, integers": {"form": "auto", "arithmetic": "integer"},
    "compact, double": {"form": "compact"},
    "auto, double": {"form": "auto"},
}


def make_table() -> str:
    """Return the table of the documentation: bytes on a Cortex-M0 and on a Cortex-M4."""
    lines = ["| model | nodes | " + " | ".join(WAYS) + " |", "|---|---|" + "---|" * len(WAYS)]
    for title, chosen in MODELS.items():
        model = train(*chosen)
        cells = [title, f"{model.n_nodes:,}"]
        for settings in WAYS.values():
            with tempfile.TemporaryDirectory() as folder:
                sizes = [measure(model, Path(folder), p, **settings)[0] for p in PROCESSORS]
            cells.append(" / ".join(f"{size:,}" for size in sizes))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(make_table())
