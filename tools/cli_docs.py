"""Write docs/cli.md from the command line's own help; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from twofold.cli import main as twofold

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEADER = "# Command line\n\nGenerated from the help texts by `make docs`; edit those, not this page.\n"


def sections(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    """The command's help and that of all below it, by name; hidden ones are left out."""
    # A fixed width, so that the terminal of whoever runs this does not matter.
    settings = command.context_settings | {"terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield f"## {context.command_path}\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        # By the group's own listing: some commands are imported only when they are asked for.
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from sections(found, child, context)


def main() -> int:
    text = "\n".join([HEADER, *sections(twofold, "twofold")])
    if "--check" in sys.argv:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        if not same:
            print("docs/cli.md is out of date: run `make docs`")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
