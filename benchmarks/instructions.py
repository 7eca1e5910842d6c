"""Instructions of the hot paths, counted by valgrind, against `baseline.json`: a gate that no busy machine sways.

`python -m benchmarks.instructions` shows the table; `--write` makes the counts of this tree the new baseline.
Counts depend on the compiler, numpy and Python, so a baseline holds only where all of these are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .common import HERE, ROOT, extension_compiler, native, table

BASELINE = HERE / "baseline.json"
TOLERANCE = 0.05
# Python's own share moves with the allocator and the length of paths.
TOLERANCES = {"recall": 0.10, "add": 0.10}
MINUTES = 8


class CannotCount(Exception):
    """No valgrind, no compiler, or no header here; says which."""


def key() -> str:
    """What the counts depend on. Valgrind shows every machine with AVX2 the same processor."""
    libc = " ".join(platform.libc_ver())
    return (
        f"{extension_compiler()}; python {platform.python_version()}; numpy {np.__version__}; "
        f"sqlite {sqlite3.sqlite_version}; {libc}; {platform.machine()}"
    )


def counted() -> tuple[dict[str, int], str]:
    """Case -> instructions of one counted call, and the kernel that valgrind's processor gets."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotCount("valgrind is not here (apt-get install valgrind)")
    library = native()
    if library is None:
        raise CannotCount("there is no C compiler here")
    if library.has_valgrind() < 0:
        raise CannotCount("valgrind/callgrind.h is not here (apt-get install valgrind)")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            valgrind,
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder}/out",
            sys.executable,
            "-m",
            "benchmarks.callgrind_driver",
        ]
        # TWOFOLD_KERNEL goes too: the baseline is of the best kernel valgrind shows. BLAS threads would be counted.
        child = {
            k: v
            for k, v in os.environ.items()
            if k not in ("TWOFOLD_KERNEL", "OPENBLAS_CORETYPE", "BENCH_SCALE")
        } | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=ROOT, env=child, capture_output=True, text=True, check=False, timeout=60 * MINUTES
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        counts = {}
        for dump in sorted(Path(folder).iterdir()):
            text = dump.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.M)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.M)
            if name and total:
                counts[name.group(1)] = int(total.group(1))
    if not counts:
        raise RuntimeError(f"valgrind gave no counts:\n{done.stderr[-3000:]}")
    return counts, str(json.loads(done.stdout.splitlines()[-1])["kernel"])


def baseline() -> dict[str, dict[str, int]]:
    """key -> case -> instructions."""
    return dict(json.loads(BASELINE.read_text())) if BASELINE.exists() else {}


def tolerance(case: str) -> float:
    return TOLERANCES.get(case, TOLERANCE)


def grown(counts: dict[str, int], known: dict[str, int]) -> dict[str, float]:
    """Cases that take more instructions than the baseline allows, with the factor."""
    return {c: n / known[c] for c, n in counts.items() if n > known[c] * (1 + tolerance(c))}


def report(counts: dict[str, int], known: dict[str, int]) -> str:
    rows = []
    for case, count in counts.items():
        old = known.get(case)
        change = "new" if old is None else f"{100 * (count / old - 1):+.1f} %"
        rows.append(
            [case, f"{count:,}", "-" if old is None else f"{old:,}", change, f"{100 * tolerance(case):.0f} %"]
        )
    return table(["case", "instructions", "baseline", "change", "allowed"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="make these counts the baseline for this compiler"
    )
    options = parser.parse_args()
    counts, kernel = counted()
    kept = baseline()
    print(f"{key()}\nkernel under valgrind: {kernel}\n\n{report(counts, kept.get(key(), {}))}")
    if options.write:
        kept[key()] = counts
        BASELINE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(f"\nwrote {BASELINE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
