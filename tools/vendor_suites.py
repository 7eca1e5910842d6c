"""Fetch test suites that others publish: source archives from PyPI, by version and hash, unpacked in build/vendor.

They are run unedited and never committed. What cannot be had is named, and its tests are skipped; exit status 0.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "build" / "vendor"
# name, version, sha256 of the source archive
SUITES = [
    ("langgraph-checkpoint", "4.3.2", "fcab8468c7e965d7055e2a35c253d73a145624ef4728b150ca7c361f4afca286"),
    (
        "langgraph-checkpoint-sqlite",
        "3.1.2",
        "4e3f376fa6f192d6ad2a1a4643b039986f1593552ef870e9e45281575de6fbf2",
    ),
]


def folder_of(name: str, version: str) -> Path:
    """Where a suite lies once it is unpacked."""
    return FOLDER / f"{name.replace('-', '_')}-{version}"


def fetch(name: str, version: str, digest: str) -> None:
    """Download, check and unpack one archive. OSError when it cannot be had, ValueError when it is another file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    archive = FOLDER / f"{folder_of(name, version).name}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run(
            [*command, "-d", str(FOLDER), f"{name}=={version}"], capture_output=True, text=True, check=False
        )
        if done.returncode or not archive.exists():
            raise OSError((done.stderr.strip() or "pip gave no archive").splitlines()[-1])
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != digest:
        archive.unlink()
        raise ValueError(f"sha256 is {found}, not {digest}")
    with tarfile.open(archive) as packed:
        packed.extractall(FOLDER, filter="data")


def main() -> None:
    for name, version, digest in SUITES:
        if folder_of(name, version).is_dir():
            continue
        try:
            fetch(name, version, digest)
            print(f"    {name} {version} is in {folder_of(name, version)}")
        except (OSError, ValueError) as error:
            print(f"==> SKIPPED the tests of {name} {version}: {error}")


if __name__ == "__main__":
    main()
