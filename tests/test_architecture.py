"""Rules of the tree that no linter knows: who may touch the core, where SQL lives, what C++ may include."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "twofold"
CPP = ROOT / "cpp"

MAY_IMPORT_CORE = ("core.py", "index/", "retrieve/", "scratchpad.py")
SQL = re.compile(
    r"^\s*(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX)|PRAGMA)\b",
    re.IGNORECASE | re.DOTALL,
)
MODULES = sorted(PACKAGE.rglob("*.py"))


def where(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_the_package_was_found() -> None:
    assert {"model.py", "errors.py", "clock.py"} <= {where(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=where)
def test_python_module(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set(imported(tree))
    if not where(path).startswith(MAY_IMPORT_CORE):
        core = {n for n in names if "_core" in n.split(".")}
        if where(path) == "__init__.py":
            core -= {"twofold._core", "twofold._core.__version__"}
        assert not core, "only core, index, retrieve, scratchpad may"
    inner = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in MODULES} | {"_core"}
    if path.name != "__init__.py":
        public = {n.removeprefix("twofold.") for n in names if n.count(".") == 1 and n.startswith("twofold.")}
        assert public <= inner, "take a name from its own module, not from the package"
    if not where(path).startswith("stores/"):
        literals = (
            n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        )
        assert not [text for text in literals if SQL.match(text)], "SQL lives in stores/ only"
    assert not {n for n in names if n.split(".")[0] == "random"}, "randomness is an argument, not an import"
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            assert not all(isinstance(s, ast.Pass) for s in node.body) or not _catches_all(node), (
                f"line {node.lineno} swallows every exception"
            )


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"}
    )


def includes(path: Path) -> set[str]:
    return set(
        re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def cpp_files(*folders: str) -> list[Path]:
    return sorted(p for f in folders for p in (CPP / f).rglob("*") if p.suffix in {".cpp", ".hpp"})


def test_the_core_never_sees_python() -> None:
    core = cpp_files("include", "src")
    assert core
    for path in core:
        assert not [i for i in includes(path) if i.startswith(("Python.h", "pybind11"))], path


def test_kernels_include_only_their_interface_and_intrinsics() -> None:
    """An inline function compiled with -mavx2 could be the copy the linker keeps for every machine."""
    allowed = {"kernel.hpp", "immintrin.h", "arm_neon.h", "cstddef", "cstdint"}
    kernels = [path for path in cpp_files("src/kernels") if not path.name.startswith("dispatch")]
    assert len(kernels) >= 4
    for path in kernels:
        assert includes(path) <= allowed, path


def test_no_core_function_asks_the_time_or_prints() -> None:
    banned = re.compile(
        r"std::(cout|cerr|clog|thread|async|random_device)\b|\b(printf|time|clock_gettime)\s*\(|<chrono>"
    )
    for path in cpp_files("include", "src"):
        code = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        assert not banned.search(code), path


def test_every_extra_is_optional() -> None:
    """What an extra installs is imported inside functions or by adapters, never at the top of a module."""
    always = {"numpy", "click", "Stemmer", "twofold"}
    for path in MODULES:
        if where(path).startswith(("serve/", "integrations/", "compat/", "stores/", "embed/", "testing.py")):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = {n.split(".")[0] for n in _top_level_imports(tree)}
        assert top <= always | set(sys.stdlib_module_names), (where(path), top)


def _top_level_imports(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
