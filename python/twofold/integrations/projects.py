"""Which namespace a project's memories are in. Standard library only: the hooks' client side uses it too."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

PREFIX = "project/"


def project_root(start: str | Path | None = None) -> Path:
    """The project a folder belongs to: its nearest parent with a .git, or else the folder itself.

    Left out: $CLAUDE_PROJECT_DIR, or else the current folder.
    """
    folder = Path(start or os.environ.get("CLAUDE_PROJECT_DIR") or Path.cwd()).expanduser().resolve()
    for parent in (folder, *folder.parents):
        if (parent / ".git").exists():
            return parent
    return folder


def project_namespace(start: str | Path | None = None) -> str:
    """The project's namespace: its folder's name, and a hash of its path, so that two of one name stay apart."""
    root = project_root(start)
    name = re.sub(r"[^\w.-]+", "-", root.name).strip("-")[:60] or "root"
    return f"{PREFIX}{name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}"
