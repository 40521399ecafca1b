"""Measure the structure of the package and print a table.

CI prints the table; a change that makes a figure grow is explained in the changelog.

lines of code
    Lines with code: no blank lines, comment lines or docstrings. A bare string below an
    attribute counts as a docstring.
room
    A folder of treekit/ with its subfolders; the top-level modules are one room.
modules with one importer
    Modules that exactly one other module of treekit/ imports. Imports within functions
    count; imports under TYPE_CHECKING and imports by a string do not.
words of a function's name
    Parts between underscores, over all functions and methods except dunder methods.
length of a function
    Lines of code from `def` to its end, including nested functions.
files on a path
    Modules of treekit/ with a function that runs while one tree is trained on the demo
    table, or while that tree is exported to C, each in a separate process. Code that runs
    on import or inside numba does not count, so that a cold cache gives the same figures
    as a warm one.
kernels on a path
    Files of the jitted functions that numba compiles or loads in the run, and of all functions
    that they refer to, recursively, called or not: machine code cannot be profiled.
climbs, calls back
    Pairs of files where a function of one calls a function of the other, directly or through
    a library. Climb: the call follows the allowed direction of imports. Call back: the call
    goes against it. Calls of kernels and of treekit/__init__.py are excluded.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dis
import gc
import importlib.metadata
import inspect
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "treekit"
LONG = 50
"""Lines of code above which a function is long."""
SHORT = 10
"""Lines below which a template is short."""
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "node_modules"}
LISTS = ("one_importer", "long_functions", "train", "export_c")


# ---------------------------------------------------------------- source files


@dataclass(frozen=True)
class Function:
    """A function in a source file, and its length in lines of code."""

    name: str
    file: str
    line: int
    length: int


@dataclass(frozen=True)
class Source:
    """A Python file, and its numbers of lines by kind."""

    path: Path
    text: str
    lines: int
    code: frozenset[int]
    docstrings: int
    comments: int

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        """Dotted name; a package has the name of its folder."""
        return name_module(self.path)

    def functions(self) -> list[Function]:
        """Return all functions and methods, including nested ones."""
        file = str(self.path.relative_to(ROOT))
        return [
            Function(
                node.name,
                file,
                node.lineno,
                sum(line in self.code for line in range(node.lineno, (node.end_lineno or 0) + 1)),
            )
            for node in walk_statements(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]


def list_files(folder: Path, pattern: str = "*") -> list[Path]:
    """List the files below a folder, sorted, without build products and hidden files."""
    return sorted(
        path
        for path in folder.rglob(pattern)
        if path.is_file()
        and not any(
            part in SKIPPED_FOLDERS or part.startswith(".") or part.endswith(".egg-info")
            for part in path.relative_to(folder).parts
        )
    )


def name_module(path: Path) -> str:
    """Return the dotted name of a file of the checkout."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def read_source(path: Path) -> Source:
    """Read a Python file and classify its lines as code, docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    code: set[int] = set()
    docstrings: set[int] = set()
    comments: set[int] = set()
    statement: set[int] = set()
    is_string = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type == tokenize.NEWLINE:
            (docstrings if is_string else code).update(statement)
            statement, is_string = set(), True
        elif token.type not in _LAYOUT:
            statement.update(range(token.start[0], token.end[0] + 1))
            is_string &= token.type == tokenize.STRING
    return Source(
        path,
        text,
        lines=len(text.splitlines()),
        code=frozenset(code),
        docstrings=len(docstrings),
        comments=len(comments - code - docstrings),
    )


_LAYOUT = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def walk_statements(node: ast.AST, *, typing: bool = True) -> Iterator[ast.AST]:
    """Yield all statements below a node; those under TYPE_CHECKING only if `typing`."""
    blocks: tuple[str, ...] = ("body", "handlers", "cases", "orelse", "finalbody")
    if isinstance(node, ast.If) and not typing:
        condition = ast.unparse(node.test).rpartition(".")[2]
        blocks = ("orelse",) if condition == "TYPE_CHECKING" else blocks
    for block in blocks:
        for child in getattr(node, block, ()):
            yield child
            yield from walk_statements(child, typing=typing)


def find_imports(source: Source, modules: set[str]) -> set[str]:
    """Return the `modules` that a file imports at run time."""
    found: set[str] = set()
    package = source.module.split(".")
    if source.path.name != "__init__.py":
        package.pop()
    for node in walk_statements(source.tree, typing=False):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found.add(name if name in modules else base)
    return found & modules - {source.module}


def find_one_importer(sources: list[Source]) -> dict[str, str]:
    """Return the modules with exactly one importer, and the importer."""
    modules = {source.module for source in sources}
    importers: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for name in find_imports(source, modules):
            importers[name].add(source.module)
    return {name: min(found) for name, found in sorted(importers.items()) if len(found) == 1}


def count_words(name: str) -> int:
    """Count the parts of a name between underscores."""
    return len([part for part in name.split("_") if part])


def measure_package(sources: list[Source]) -> dict[str, Any]:
    """Measure the modules and functions of treekit/."""
    code = sum(len(source.code) for source in sources)
    lines = sum(source.lines for source in sources)
    plain = [source for source in sources if source.path.name != "__init__.py"]
    functions = [function for source in sources for function in source.functions()]
    functions.sort(key=lambda one: (-one.length, one.file, one.line))
    long = [function for function in functions if function.length > LONG]
    kernels = [one for one in long if "/kernels" in one.file]
    names = [one.name for one in functions if not re.fullmatch(r"__\w+__", one.name)]
    rooms: dict[str, dict[str, int]] = {}
    for source in sources:
        parts = source.path.relative_to(PACKAGE).parts
        room = rooms.setdefault(
            parts[0] if len(parts) > 1 else "(top level)", {"modules": 0, "code": 0}
        )
        room["modules"] += 1
        room["code"] += len(source.code)
    return {
        "modules": len(sources),
        "code": code,
        "code_a_module": code / len(sources),
        "modules_without_init": len(plain),
        "code_a_module_without_init": sum(len(one.code) for one in plain) / len(plain),
        "lines": lines,
        "docstring_share": sum(source.docstrings for source in sources) / lines,
        "comment_share": sum(source.comments for source in sources) / lines,
        "one_importer": find_one_importer(sources),
        "functions": len(names),
        "words_a_function_name": sum(map(count_words, names)) / len(names),
        "long_functions": [vars(one) for one in long if one not in kernels],
        "long_kernels": [vars(one) for one in kernels],
        "rooms": dict(sorted(rooms.items())),
    }


def measure_beside() -> dict[str, dict[str, int]]:
    """Measure the Python files of plugins/ and tests/."""
    found = {}
    for folder in ("plugins", "tests"):
        sources = [read_source(path) for path in list_files(ROOT / folder, "*.py")]
        found[folder] = {
            "files": len(sources),
            "lines": sum(source.lines for source in sources),
            "code": sum(len(source.code) for source in sources),
        }
    return found


def measure_templates() -> dict[str, int]:
    """Measure the files of templates/."""
    lines = [len(path.read_bytes().splitlines()) for path in list_files(ROOT / "templates")]
    return {
        "files": len(lines),
        "lines": sum(lines),
        "short_files": sum(count < SHORT for count in lines),
    }


# ---------------------------------------------------------------- profiled paths

Place = tuple[str, str]
"""A function: file below treekit/ and qualified name."""

_COMPREHENSION = re.compile(r"\.<locals>\.<(listcomp|setcomp|dictcomp|genexpr)>")


@dataclass
class _Stack:
    """The Python frames of a thread, each with the running function of treekit, if any."""

    places: list[Place | None]
    hidden: list[bool] = field(default_factory=list)
    depth: int = 0
    """Number of frames that hide their calls."""


class Profile:
    """Recorder of running functions of treekit, their calls, and functions that numba compiles."""

    def __init__(self) -> None:
        import numba
        from numba.core.dispatcher import Dispatcher

        self.functions: set[Place] = set()
        self.calls: set[tuple[Place, Place]] = set()
        self.jitted: list[Any] = []
        self._dispatcher_type = Dispatcher
        self._numba = str(Path(numba.__file__).parent) + os.sep
        self._package = str(PACKAGE) + os.sep
        self._local = threading.local()
        self._starters: dict[threading.Thread, Place | None] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Record this thread and threads started during the block."""
        gc.disable()  # finalisers would run at any moment
        threading.setprofile(self._notice)
        sys.setprofile(self._notice)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            gc.enable()

    def _notice(self, frame: FrameType, event: str, _: Any) -> None:
        stack: _Stack | None = getattr(self._local, "stack", None)
        if stack is None:
            starter = self._starters.get(threading.current_thread())
            stack = self._local.stack = _Stack([starter])
        if event == "call":
            self._enter(frame, stack)
        elif event == "return" and stack.hidden:
            stack.depth -= stack.hidden.pop()
            stack.places.pop()

    def _enter(self, frame: FrameType, stack: _Stack) -> None:
        code, caller = frame.f_code, stack.places[-1]
        place, hides = caller, False
        if not stack.depth:
            hides = self._hides_calls(frame)
            if hides:
                self._record_jitted(frame)
            elif (found := self._locate(code)) is not None:
                place = found
                self.functions.add(place)
                if caller is not None:
                    self.calls.add((caller, place))
            elif code.co_name == "start" and code.co_filename == threading.__file__:
                self._starters[frame.f_locals["self"]] = caller
        stack.places.append(place)
        stack.hidden.append(hides)
        stack.depth += hides

    def _hides_calls(self, frame: FrameType) -> bool:
        """Return whether calls of this frame belong to an import or to numba's compilation."""
        code = frame.f_code
        if code.co_name == "<module>" or code.co_filename.startswith(self._numba):
            return True
        return code.co_name == "compile" and self._dispatcher_of(frame) is not None

    def _dispatcher_of(self, frame: FrameType) -> Any:
        own = frame.f_locals.get("self")
        return own if isinstance(own, self._dispatcher_type) else None

    def _record_jitted(self, frame: FrameType) -> None:
        if frame.f_code.co_name in ("compile", "_compile_for_args"):
            dispatcher = self._dispatcher_of(frame)
            if dispatcher is not None:
                self.jitted.append(dispatcher)

    def _locate(self, code: CodeType) -> Place | None:
        """Return the function of treekit of a code object, None for other code."""
        # Skip class bodies and profiled kernels, which lack this flag.
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        file = self._find_file(code)
        if not is_function or file is None:
            return None
        # Up to Python 3.11, a comprehension has its own frame.
        return file, _COMPREHENSION.sub("", code.co_qualname)

    def _find_file(self, code: CodeType) -> str | None:
        """Return the file below treekit/ of a code object."""
        path = code.co_filename
        return path.removeprefix(self._package) if path.startswith(self._package) else None

    def list_kernel_files(self) -> set[str]:
        """Return the files of the jitted functions and of all functions that they refer to."""
        waiting = [dispatcher.py_func for dispatcher in self.jitted]
        seen: set[FunctionType] = set()
        files: set[str] = set()
        while waiting:
            function = waiting.pop()
            file = self._find_file(function.__code__)
            if file is not None and function not in seen:
                seen.add(function)
                files.add(file)
                waiting += _named_functions(function)
        return files


def _named_functions(function: FunctionType) -> list[FunctionType]:
    """Return the functions that a function refers to: globals and cells of its closure."""
    values = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            values.append(cell.cell_contents)
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        values += [
            function.__globals__.get(step.argval)
            for step in dis.get_instructions(code)
            if step.opname == "LOAD_GLOBAL"
        ]
    # Unwrap jitted functions and intrinsics; keep plain functions.
    plain = [getattr(value, "py_func", getattr(value, "_defn", value)) for value in values]
    return [value for value in plain if isinstance(value, FunctionType)]


def read_layers() -> dict[str, int]:
    """Return the layer of each room in import-linter's contract; 0 may import all others."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(
        contract["layers"]
        for contract in contracts
        if contract["type"] == "layers" and "containers" not in contract
    )
    return {
        name.strip(" ()"): number
        for number, layer in enumerate(layers)
        for name in re.split("[|:]", layer)
    }


def find_layer(file: str, layers: dict[str, int]) -> int | None:
    """Return the layer of a file below treekit/; None outside the layers."""
    module = name_module(PACKAGE / file)
    while module not in layers and module:
        module = module.rpartition(".")[0]
    return layers.get(module)


def summarise_profile(profile: Profile) -> dict[str, Any]:
    """Return the files of a run, and the calls between rooms."""
    python = {file for file, _ in profile.functions}
    kernels = profile.list_kernel_files()
    layers = read_layers()
    climbs: set[str] = set()
    back: set[str] = set()
    for (caller, _), (callee, _) in profile.calls:
        start, end = find_layer(caller, layers), find_layer(callee, layers)
        if start is not None and end is not None and start != end:
            (climbs if end > start else back).add(f"{caller} -> {callee}")
    return {
        "files": len(python | kernels),
        "python_files": sorted(python),
        "kernel_files": sorted(kernels),
        "functions": len(profile.functions),
        "climbs": sorted(climbs),
        "calls_back": sorted(back),
    }


def prepare_process() -> None:
    """Set up a new process: use this checkout, without the user's plugins, settings and output."""
    sys.path.insert(0, str(ROOT))
    for name in [name for name in os.environ if name.startswith("TREEKIT_")]:
        del os.environ[name]
    find = importlib.metadata.entry_points

    def find_all_but_plugins(**selection: Any) -> Any:
        if selection.get("group") == "treekit":
            return importlib.metadata.EntryPoints()
        return find(**selection)

    importlib.metadata.entry_points = find_all_but_plugins
    sys.stdout = sys.stderr = io.StringIO()  # at a terminal treekit shows its progress


def trace_train(folder: str) -> dict[str, Any]:
    """Train a tree on the demo table, save it in the folder, and return the profile."""
    import treekit
    from treekit.data import DEMO_TARGET, demo_table

    profile = Profile()
    with profile.running():
        model = treekit.train(demo_table(), DEMO_TARGET, ensemble="tree", seed=0)
    model.save(Path(folder, "tree.model"))
    return summarise_profile(profile)


def trace_export(folder: str) -> dict[str, Any]:
    """Export the tree in the folder to C and return the profile, with the loaded templates."""
    import jinja2

    import treekit

    loaded: set[str] = set()
    get_source = jinja2.FileSystemLoader.get_source

    def record_source(self: Any, environment: Any, template: str) -> Any:
        loaded.add(template)
        return get_source(self, environment, template)

    model = treekit.load(Path(folder, "tree.model"))
    profile = Profile()
    jinja2.FileSystemLoader.get_source = record_source
    with profile.running():
        treekit.export(model, "c", Path(folder, "tree.c"), form="full")
    return summarise_profile(profile) | {
        "templates": sorted(loaded),
        "templates_of_target": len(list_files(ROOT / "templates" / "c")),
    }


def measure_paths() -> dict[str, dict[str, Any]]:
    """Profile the training and the export, each in a new process."""
    traces: dict[str, Callable[[str], dict[str, Any]]] = {
        "train": trace_train,
        "export_c": trace_export,
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, trace in traces.items():
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, context, initializer=prepare_process) as pool:
                found[name] = pool.submit(trace, folder).result()
    return found


# ---------------------------------------------------------------- output


def format_rooms(rooms: dict[str, dict[str, int]], columns: int = 3) -> list[str]:
    """Format modules and lines of code per room, in columns."""
    cells = [
        f"{name:<12}{room['modules']:>4}{room['code']:>8,}"
        for name, room in sorted(rooms.items(), key=lambda item: (-item[1]["code"], item[0]))
    ]
    height = -(-len(cells) // columns)
    title = "    ".join([f"{'room':<12}{'mods':>4}{'code':>8}"] * columns)
    return [title] + ["    ".join(cells[row::height]).rstrip() for row in range(height)]


def format_path(name: str, path: dict[str, Any]) -> list[tuple[str, str]]:
    """Format the figures of a run."""
    figures = [
        (
            f"{name}: files",
            f"{path['files']} ({len(path['python_files'])} by Python, "
            f"{path['files'] - len(path['python_files'])} by kernels only)",
        ),
        (
            f"{name}: climbs; calls back",
            f"{len(path['climbs'])}; {len(path['calls_back'])} "
            f"(file pairs; {path['functions']} functions ran)",
        ),
    ]
    if "templates" in path:
        loaded = f"{len(path['templates'])} of {path['templates_of_target']}"
        figures.append((f"{name}: templates loaded", loaded))
    return figures


def format_report(figures: dict[str, Any]) -> str:
    """Format all figures as a table."""
    package, templates = figures["package"], figures["templates"]
    long, long_kernels = len(package["long_functions"]), len(package["long_kernels"])
    rows = [
        ("modules", f"{package['modules']:,}"),
        ("lines of code", f"{package['code']:,} of {package['lines']:,} lines"),
        (
            "code per module, mean",
            f"{package['code_a_module']:.1f} ({package['code_a_module_without_init']:.1f} over "
            f"the {package['modules_without_init']} without __init__)",
        ),
        ("modules with one importer", f"{len(package['one_importer'])}"),
        (
            "words of a function's name",
            f"{package['words_a_function_name']:.2f} over {package['functions']:,} functions",
        ),
        (
            "docstring; comment lines",
            f"{package['docstring_share']:.1%}; {package['comment_share']:.2%}",
        ),
        (f"functions over {LONG} lines", f"{long}, and {long_kernels} in kernels"),
    ]
    for kind in ("functions", "kernels"):
        for number, function in enumerate(package[f"long_{kind}"][:3]):
            place = "{length} {name} ({file}:{line})".format(**function)
            rows.append((f"longest {kind}" if number == 0 else "", place))
    for folder, count in figures["beside"].items():
        rows.append(
            (f"{folder}/", "{code:,} code of {lines:,} lines, {files} files".format(**count))
        )
    rows.append(
        (
            "templates/",
            f"{templates['lines']:,} lines, {templates['files']} files, "
            f"{templates['short_files']} under {SHORT} lines",
        )
    )
    if "paths" in figures:
        rows += format_path("train", figures["paths"]["train"])
        rows += format_path("export to C", figures["paths"]["export_c"])
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{value}" for name, value in rows]
    return "\n".join([*lines, "", *format_rooms(package["rooms"])])


def format_list(figures: dict[str, Any], name: str) -> str:
    """List the items that a figure counts, one per line."""
    package = figures["package"]
    if name == "one_importer":
        return "\n".join(f"{one} <- {by}" for one, by in package["one_importer"].items())
    if name == "long_functions":
        both = package["long_functions"] + package["long_kernels"]
        return "\n".join("{length:>4} {name} ({file}:{line})".format(**one) for one in both)
    path = figures["paths"][name]
    kinds = ("python_files", "kernel_files", "climbs", "calls_back", "templates")
    return "\n".join(f"{kind}: {one}" for kind in kinds for one in path.get(kind, ()))


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with all lists")
    parser.add_argument(
        "--list",
        nargs="?",
        const=LISTS[0],
        choices=LISTS,
        help=f"list the items of a figure instead of the table (default: {LISTS[0]})",
    )
    parser.add_argument(
        "--static", action="store_true", help="only read files; skip the training and export"
    )
    arguments = parser.parse_args()
    if arguments.static and arguments.list in ("train", "export_c"):
        parser.error(f"--list {arguments.list} needs a profile; remove --static")
    gc.disable()  # scanning the syntax trees is slow and frees nothing
    figures: dict[str, Any] = {
        "package": measure_package([read_source(path) for path in list_files(PACKAGE, "*.py")]),
        "beside": measure_beside(),
        "templates": measure_templates(),
    }
    if not arguments.static and arguments.list not in ("one_importer", "long_functions"):
        figures["paths"] = measure_paths()
    if arguments.json:
        print(json.dumps(figures, indent=1))
    elif arguments.list:
        print(format_list(figures, arguments.list))
    else:
        print(format_report(figures))


if __name__ == "__main__":
    main()
