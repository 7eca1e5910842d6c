"""Files that a caller names: whatever is wrong with one becomes an error that says which, why, and what to do."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from twofold.errors import InvalidInput, NotFound, StoreError, TwofoldError

_REMEDIES: Final = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "give a path on a file system that takes larger files",
    errno.EACCES: "give a path this user may use",
    errno.EPERM: "give a path this user may use",
    errno.EROFS: "give a path this user may use",
    errno.ENOENT: "make the folder first",
    errno.ENOTDIR: "give a path whose folders are folders",
    errno.EISDIR: "name a file in it",
    errno.ENAMETOOLONG: "give a shorter name",
}


def reason(error: OSError) -> str:
    """What the system said, and what to do about it."""
    return f"{error.strerror or error}; {_REMEDIES.get(error.errno or 0, 'see the message')}"


def path_of(value: Any) -> Path:
    """A path as the caller gave it, `~` not expanded. InvalidInput for what names no file on any system."""
    try:
        text = os.fspath(value)
    except TypeError:
        raise InvalidInput(f"a path is a string or a Path, not {value!r}") from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInput(f"{text!r} is not a path")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r} is not a path: it has characters that no file name has") from None
    return Path(text)


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Around the reading of a file. NotFound where there is none, InvalidInput for what is no UTF-8 or no file."""
    try:
        yield
    except TwofoldError:  # PermissionDenied is an OSError as well
        raise
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {reason(error)}") from None


def read_text(path: str | Path) -> str:
    """A file's UTF-8 text, without a byte order mark. Raises as `reading` does."""
    with reading(path):
        return Path(path).read_text(encoding="utf-8-sig")


def parse_json(text: str, where: str, first_line: int = 1) -> Any:
    """A JSON value. InvalidInput names the place; `first_line` is the text's own line number in its file."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InvalidInput(f"{where} line {line} is not JSON: {error.msg}") from None
    except RecursionError:
        raise InvalidInput(f"{where} line {first_line} is nested too deeply") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise InvalidInput(f"{where} line {first_line} cannot be read: {error}") from None


def read_json(path: str | Path) -> Any:
    """The JSON value in a file."""
    return parse_json(read_text(path), str(path))


def read_json_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file that has one a line, each with the number of its line; empty lines are passed over."""
    with reading(path), Path(path).open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            value = parse_json(line, str(path), number)
            if not isinstance(value, dict):
                raise InvalidInput(f"{path} line {number} is not an object")
            yield number, value


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the path's place when the block ends, and not at all when it fails.

    Only its owner may read it. A link is followed: what it points to is replaced. StoreError where the path
    cannot be written, InvalidInput where it names a folder or a device.
    """
    target = Path(path)
    temporary = ""
    try:
        if target.exists() and not target.is_file():
            kind = "a folder; name a file in it" if target.is_dir() else "no regular file; name one"
            raise InvalidInput(f"{path} is {kind}")
        target = Path(os.path.realpath(target))
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:200]}.")
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(temporary).replace(target)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, TwofoldError) or not isinstance(error, OSError):
            raise
        raise StoreError(f"cannot write {path}: {reason(error)}") from None
