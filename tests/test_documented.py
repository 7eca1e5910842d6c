"""Whatever a user can set, call or catch stands in the documentation: found by introspection, not from a list."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from twofold import Config, Profile, cli, errors
from twofold.integrations.importers import FORMATS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCS = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
WORDS = set(re.findall(r"\w+", DOCS))
SOURCES = sorted((ROOT / "python" / "twofold").rglob("*.py"))


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            if found.hidden:  # for the program itself, not for people
                continue
            yield from commands(found, (*path, name))
    if path:
        yield path, command


COMMANDS = dict(commands(cli.main))
LEAVES = {path: c for path, c in COMMANDS.items() if not isinstance(c, click.Group)}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_is_in_the_reference(path: tuple[str, ...]) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"twofold {' '.join(path)}" in page


def test_the_formats_of_import_are_in_its_help() -> None:
    (option,) = [p for p in COMMANDS["import",].params if p.name == "format_"]
    assert isinstance(option, click.Option)
    assert set(re.findall(r"[\w-]+", option.help or "")) >= {"twofold", *FORMATS}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_shows_an_example(path: tuple[str, ...]) -> None:
    help_text = " ".join((LEAVES[path].help or "").split())
    same = [" ".join(other) for other, c in LEAVES.items() if c.callback is LEAVES[path].callback]  # an alias
    assert any(f"twofold {name}" in help_text for name in same), help_text


@pytest.mark.parametrize("name", [f.name for f in fields(Config)])
def test_every_setting(name: str) -> None:
    assert name in WORDS


@pytest.mark.parametrize("name", [f.name for f in fields(Profile) if f.name != "name"])
def test_every_constant_of_a_profile(name: str) -> None:
    text = (ROOT / "docs" / "recall.md").read_text(encoding="utf-8")
    assert re.search(rf"\b{name}\b", text)


def variables() -> set[str]:
    found = {
        name for path in SOURCES for name in re.findall(r"\bTWOFOLD_[A-Z0-9_]+\b", path.read_text("utf-8"))
    }
    return {name for name in found if not name.endswith("_")}


@pytest.mark.parametrize("name", sorted(variables()))
def test_every_environment_variable(name: str) -> None:
    settings = {f"TWOFOLD_{f.name.upper()}" for f in fields(Config)}
    assert name in WORDS or name in settings  # those are "TWOFOLD_* variables", by the setting's name


@pytest.mark.parametrize(
    "name", [n for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, errors.TwofoldError)]
)
def test_every_error(name: str) -> None:
    assert name in WORDS
