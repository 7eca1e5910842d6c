"""What is shipped: one version everywhere, and a wheel that holds the package and nothing else."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"

SUFFIXES = {".so", ".py", ".pyi"}
NAMED = {"py.typed"}
# Data files that the code reads at run time; adding one is a decision, so it is named here.
DATA: set[str] = set()


def test_one_version() -> None:
    twofold = importlib.import_module("twofold")
    core = importlib.import_module("twofold._core")
    version = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["version"]
    assert twofold.__version__ == core.__version__ == version == importlib.metadata.version("twofold")


def strange_files(names: list[str]) -> list[str]:
    """Names in a wheel that are neither package code nor metadata."""
    strange = []
    for name in names:
        path = Path(name)
        if path.parts[0].endswith(".dist-info") or name.endswith("/"):
            continue
        fine = path.suffix in SUFFIXES or path.name in NAMED or name in DATA
        if path.parts[0] != "twofold" or not fine:
            strange.append(name)
    return strange


def test_strange_files_are_noticed() -> None:
    names = ["twofold/__init__.py", "twofold/py.typed", "twofold-1.dist-info/METADATA"]
    assert strange_files(names) == []
    wrong = ["twofold/cli.cpp", "tests/test_a.py", "twofold/notes.txt", "twofold.libs/libgomp.so"]
    assert strange_files(names + wrong) == wrong


def test_the_tree_would_ship_only_code() -> None:
    """The wheel takes python/twofold as it is, so a stray file there is a stray file in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "python/twofold"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    names = [name.removeprefix("python/") for name in listed.stdout.splitlines()]
    assert "twofold/__init__.py" in names
    assert strange_files(names) == []


def test_wheel_contents() -> None:
    wheel = os.environ.get("TWOFOLD_WHEEL")
    if not wheel:
        pytest.skip("TWOFOLD_WHEEL names no wheel; `make wheel` builds one and runs this")
    names = zipfile.ZipFile(wheel).namelist()
    assert strange_files(names) == []
    assert {"twofold/__init__.py", "twofold/py.typed", "twofold/_core.pyi"} <= set(names)
    assert sum(name.endswith(".so") for name in names) == 1
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_sdist_contents() -> None:
    """An archive holds the sources and what builds them, and nothing of the machine it was made on."""
    wheel = os.environ.get("TWOFOLD_WHEEL")
    if not wheel:
        pytest.skip("TWOFOLD_WHEEL names no wheel; `make wheel` builds one and runs this")
    (archive,) = Path(wheel).parent.glob("twofold-*.tar.gz")
    with tarfile.open(archive) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "CMakeLists.txt", "LICENSE", "cpp/bindings/module.cpp"} <= names
    tops = {name.partition("/")[0] for name in names if "/" in name}
    assert tops <= {"cpp", "docs", "examples", "python", "tests", "tools"}


def test_importing_the_package_is_light() -> None:
    """Neither the encoder's runtime nor any optional package is loaded before it is used."""
    code = "import sys, twofold; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "onnxruntime",
        "tokenizers",
        "torch",
        "sentence_transformers",
        "starlette",
        "mcp",
        "psycopg",
        "hnswlib",
    }
    assert heavy.isdisjoint(done.stdout.split())


def test_dependencies_are_few_and_free_of_torch() -> None:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    names = {requirement.split(">")[0].split("[")[0] for requirement in project["dependencies"]}
    assert len(names) <= 8
    assert names.isdisjoint({"torch", "transformers", "sentence-transformers"})
