"""Estimates of the flash that C source takes, against the compiler's programs for a Cortex-M0."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

import treekit
from tests.extremes import EXTREMES
from tests.runtimes import need
from treekit.data import demo_table
from treekit.export.c import export_c
from treekit.model.model import Model

# ---------------------------------------------------------------- c firmware

M0 = ("-mcpu=cortex-m0", "-mthumb", "-ffunction-sections", "-fdata-sections", "-nostdlib")
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


def measure(model: Model, folder: Path, **settings: str) -> tuple[int, str]:
    """Return the bytes of flash of a program for one row, and the header of the source."""
    for file, content in export_c(model, "m", form="full", **settings).items():
        (folder / file).write_bytes(content)
    header = (folder / "m.h").read_text()
    cell, out = (re.findall(rf'_{name} "(\w+)"', header)[0] for name in ("INPUT", "OUTPUT"))
    call = "predict_label(row)" if "m_predict_label(" in header else "predict(row, out)"
    if "m_predict_labels(" in header:
        call = "predict_labels(row, labels)"
    (folder / "main.c").write_text(
        '#include <stdint.h>\n#include "m.h"\n'
        f"static {cell} row[M_FEATURES];\n{out} out[M_OUTPUTS];\nint labels[M_LABELS];\n"
        f"int main(void)\n{{\n    return m_{call};\n}}\n"
    )
    command = ["arm-none-eabi-gcc", "-std=c99", "-Os", *M0, "main.c", "m.c", *LINK, "-o", "m.elf"]
    subprocess.run(command, cwd=folder, check=True)
    told = subprocess.run(
        ["arm-none-eabi-size", "m.elf"], cwd=folder, capture_output=True, text=True, check=True
    )
    text, data, *_ = told.stdout.splitlines()[1].split()
    return int(text) + int(data), header


def stated_saving(header: str) -> int:
    found = re.search(r"arithmetic=integer would save about (\d+) bytes", header)
    return int(found[1]) if found else 0


FORESTS = [
    *[("wine", 1, 4), ("wine", 20, 4), ("cancer", 10, 3), ("cancer", 10, 9), ("cancer", 5, 5)],
    *[("digits", 4, 4), ("digits", 10, 5), ("diabetes", 2, 4), ("diabetes", 10, 4)],
    *[("colic", 1, 5), ("colic", 10, 4), ("colic", 25, 6)],
]


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "trees", "depth"), FORESTS)
def test_auto_is_the_smaller_form_and_the_header_states_what_integers_save(
    name, trees, depth, dtype, tmp_path
):
    need("arm-none-eabi-gcc")
    model = train(name, trees, depth, dtype)
    auto, header = measure(model, tmp_path, arithmetic="integer")
    forms = {
        form: measure(model, tmp_path, arithmetic="integer", form=form)[0]
        for form in ("if_else", "table")
    }
    assert auto in forms.values()
    assert auto <= 1.05 * min(forms.values())
    assert stated_saving(header) == 0
    size, header = measure(model, tmp_path)
    assert abs(stated_saving(header) - max(size - auto, 0)) <= 0.12 * size


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fractional", {}),
        ("several_labels", {"input": "float"}),
        ("several_labels", {"form": "table"}),
        ("boosted_two", {"form": "if_else"}),
        ("linked_means", {"form": "table"}),
        ("hard_costs", {}),
        ("surrogates", {"form": "table", "input": "float"}),
        ("mixed_numbers", {"form": "if_else"}),
    ],
)
def test_stated_saving_of_other_models_and_settings(name, settings, tmp_path):
    need("arm-none-eabi-gcc")
    model = EXTREMES[name]()
    size, header = measure(model, tmp_path, **settings)
    form = {"form": settings["form"]} if "form" in settings else {}
    whole, _ = measure(model, tmp_path, arithmetic="integer", **form)
    assert stated_saving(header) > 0
    assert abs(stated_saving(header) - (size - whole)) <= 0.25 * (size - whole)


def test_no_saving_is_stated_where_integers_are_impossible():
    header = export_c(EXTREMES["oblique"](), "m", form="full")["m.h"].decode()
    assert stated_saving(header) == 0


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("trees", "depth", "form"), [(1, 3, "if_else"), (10, 9, "table"), (60, 9, "table")]
)
def test_form_of_integers_is_chosen_by_size(trees, depth, form):
    header = export_c(train("cancer", trees, depth), "m", arithmetic="integer")["m.h"].decode()
    assert f'M_FORM "{form}"' in header
    if trees <= 10:
        other = "nested tests" if form == "table" else "a table"
        assert re.search(rf"about \d+ bytes smaller than {other}", header)
