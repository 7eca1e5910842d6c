"""Write docs/cli.md from the command line's own help; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from twofold.cli import main as twofold

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEADER = "# Command line\n\nGenerated from the help texts by `make docs`; edit those, not this page.\n"


def commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The command and all below it, by name; hidden ones are left out."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            if not command.commands[name].hidden:
                yield from commands(command.commands[name], (*path, name))


def page() -> str:
    parts = [HEADER]
    for path, command in commands(twofold, ("twofold",)):
        parent: click.Context | None = None
        for name in path[:-1]:
            parent = click.Context(click.Group(name), info_name=name, parent=parent)
        # A fixed width, so that the terminal of whoever runs this does not matter.
        context = click.Context(command, info_name=path[-1], parent=parent, terminal_width=100)
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"## {' '.join(path)}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        if not same:
            print("docs/cli.md is out of date: run `make docs`")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
