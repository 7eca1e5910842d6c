"""What every command line of ours does with an error: a message instead of a traceback, and exit status 1."""

from __future__ import annotations

import contextlib
import errno
import json
import sys
from collections.abc import Iterator

import click

from twofold.errors import TwofoldError
from twofold.files import reason


@contextlib.contextmanager
def reported(as_json: bool) -> Iterator[None]:
    """Turn an error of ours, or of the system about a file, into a message and exit status 1.

    As JSON on standard output, {"error": name, "message": text}, else on standard error. Anything else is a
    fault of the program and keeps its traceback.
    """
    try:
        yield
    except TwofoldError as error:
        _say(type(error).__name__, str(error), as_json)
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever read our output has gone: click ends in silence
            raise
        named = f"{error.filename}: " if error.filename is not None else ""
        _say(type(error).__name__, named + reason(error), as_json)


def _say(name: str, message: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": name, "message": message}))
    else:
        click.echo(f"{name}: {message}", err=True)
    sys.exit(1)
