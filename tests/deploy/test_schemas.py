"""deploy/gcp and deploy/azure against their providers' schemas, where the providers themselves cannot be had.

The schemas are read from HashiCorp's Python bindings of the providers, which were generated from them: names of
resources, arguments and attributes, which arguments are needed, how blocks nest. Values are not checked.

    pip download --no-deps -d DIR cdktf-cdktf-provider-google==16.12.1 cdktf-cdktf-provider-azurerm==14.23.1
    pip install python-hcl2 && TERRAFORM_SCHEMAS=DIR python -m pytest tests/deploy
"""

from __future__ import annotations

import ast
import functools
import os
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

hcl2: Any = pytest.importorskip("hcl2")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
WHEELS = Path(os.environ.get("TERRAFORM_SCHEMAS", "/nowhere"))
META = {
    "count",
    "for_each",
    "provider",
    "depends_on",
    "lifecycle",
    "connection",
    "provisioners",
    "provisioner",
}


class Block(NamedTuple):
    """Arguments by name; those that are blocks have the name of their class."""

    arguments: dict[str, str | None]
    needed: frozenset[str]


class Module(NamedTuple):
    top: str
    blocks: dict[str, Block]
    attributes: frozenset[str]


def wheel(provider: str) -> Path:
    found = sorted(WHEELS.glob(f"cdktf_cdktf_provider_{provider}-*.whl"))
    if not found:
        pytest.skip(f"no bindings of the provider {provider}: see the head of this file")
    return found[-1]


@functools.cache
def module(file: Path, provider: str, name: str) -> Module | None:
    """What the bindings say of one resource; None where there is no such resource."""
    with zipfile.ZipFile(file) as archive:
        path = f"cdktf_cdktf_provider_{provider}/{name}/__init__.py"
        if path not in archive.namelist():
            return None
        tree = ast.parse(archive.read(path))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in classes}
    blocks: dict[str, Block] = {}
    for one in classes:
        init = next((n for n in one.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        if init is None:
            continue
        arguments: dict[str, str | None] = {}
        needed = set()
        for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
            key = argument.arg.rstrip("_")
            assert argument.annotation is not None
            words = re.findall(r"\w+", ast.unparse(argument.annotation))
            arguments[key] = next((word for word in words if word in names), None)
            if default is None:
                needed.add(key)
        blocks[one.name] = Block(arguments, frozenset(needed))
    own = next(node for node in classes if {"TerraformResource", "TerraformDataSource"} & _bases(node))
    attributes = frozenset(
        n.name.rstrip("_")
        for n in own.body
        if isinstance(n, ast.FunctionDef) and any("property" in ast.unparse(d) for d in n.decorator_list)
    )
    return Module(own.name, blocks, attributes)


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def problems(said: dict[str, Any], kind: str, known: Module, where: str) -> list[str]:
    """What a block says that its class does not know, and what it leaves out."""
    block = known.blocks[kind]
    out = []
    given: dict[str, list[Any]] = {}
    for key, value in said.items():
        name = key.strip('"')
        if name in ("__is_block__", "__comments__"):
            continue
        if name == "dynamic":
            for one in value:
                for label, body in one.items():
                    if label != "__is_block__":
                        given.setdefault(label.strip('"'), []).extend(body["content"])
            continue
        given.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    for name, values in given.items():
        if where.count(".") == 1 and name in META:
            continue
        if name not in block.arguments:
            out.append(f"{where}: no argument {name}")
            continue
        nested = block.arguments[name]
        for value in values if nested else ():
            if isinstance(value, dict):
                out += problems(value, nested or "", known, f"{where}.{name}")
    out += [f"{where}: {name} is missing" for name in block.needed - given.keys() - META]
    return out


@pytest.mark.parametrize("cloud, provider", [("gcp", "google"), ("azure", "azurerm")])
def test_names_are_those_of_the_provider(cloud: str, provider: str) -> None:
    file = wheel(provider)
    checked, out, unknown = 0, [], []
    for path in sorted((DEPLOY / cloud).glob("*.tf")):
        text = path.read_text()
        parsed = hcl2.loads(text)
        for section, prefix in (("resource", ""), ("data", f"data_{provider}_")):
            for entry in parsed.get(section, []):
                for kind, named in entry.items():
                    if kind == "__is_block__":
                        continue
                    kind = kind.strip('"')
                    known = module(file, provider, prefix + kind.removeprefix(f"{provider}_"))
                    if known is None:
                        unknown.append(kind)
                        continue
                    for label, body in named.items():
                        if label != "__is_block__":
                            out += problems(body, known.top, known, f"{kind}.{label.strip(chr(34))}")
                            checked += 1
        code = "\n".join(line.partition("#")[0] for line in text.splitlines())
        reference = rf"\b(data\.)?({provider}_\w+)\.\w+(?:\[[^\]]*\])?\.(\w+)"
        for data, kind, attribute in re.findall(reference, code):
            if "ephemeral." + kind in code:
                continue
            name = kind.removeprefix(f"{provider}_")
            known = module(file, provider, f"data_{provider}_{name}" if data else name)
            if known is None or attribute not in known.attributes:
                out.append(f"{kind} has no attribute {attribute}")
    assert checked > 10
    assert unknown == []
    assert out == []


def test_what_is_wrong_is_noticed() -> None:
    """The check itself: a wrong name, a wrong name in a block, and what is missing."""
    file = wheel("google")
    known = module(file, "google", "alloydb_instance")
    assert known is not None
    said = {"cluster": "c", "instance_id": "i", "instance_typ": "x", "machine_config": [{"cpus": 2}]}
    assert sorted(problems(said, known.top, known, "a.b")) == [
        "a.b.machine_config: no argument cpus",
        "a.b: instance_type is missing",
        "a.b: no argument instance_typ",
    ]
    assert "ip_address" in known.attributes
    assert "nonsense" not in known.attributes
    assert module(file, "google", "alloydb_nothing") is None
