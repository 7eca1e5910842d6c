"""Check that this machine can build Twofold; as root on Debian, install what is missing.

Run by `make` with the system's Python, before there is a virtual environment: standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

DOCTEST = Path("/usr/include/doctest/doctest.h")


def missing() -> dict[str, str]:
    """Debian package -> what it is needed for, of all that is not here."""
    lacking = {}
    if not any(shutil.which(c) for c in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if c):
        lacking["g++"] = "a C++20 compiler"
    if not importlib.util.find_spec("ensurepip"):
        lacking["python3-venv"] = "virtual environments"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        lacking["python3-dev"] = "Python's C headers"
    return lacking


def apt_install(packages: list[str]) -> bool:
    """Try to install Debian packages; False when this is not root on a Debian, or apt failed."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    for command in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )
    return done.returncode == 0


def main() -> int:
    if "--doctest" in sys.argv:
        if not DOCTEST.exists():
            apt_install(["doctest-dev"])
        return 0 if DOCTEST.exists() else 1
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs before anything has checked it
        print(f"Twofold needs Python 3.11 or newer, this is {sys.version.split()[0]}; set PYTHON=python3.x")
        return 1
    lacking = missing()
    if lacking:
        print("    installing " + ", ".join(f"{package} ({use})" for package, use in lacking.items()))
        apt_install(list(lacking))
    lacking = missing()
    if lacking:
        print("missing: " + ", ".join(f"{package} ({use})" for package, use in lacking.items()))
        print("run: apt-get install " + " ".join(lacking))
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
