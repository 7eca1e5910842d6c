"""The performance gates again and again while another process burns a core: `make gate-soak RUNS=10`.

A gate that is red here for no reason of the code is a gate nobody believes. Exit status 1 when any run was red.
Further arguments go to pytest, e.g. `-k "not instruction"`.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent
# Arithmetic alone would leave the caches and the memory bus to the measured process: this takes its share of them.
BURN = "import numpy as n; a = n.zeros(1 << 23)\nwhile True: a += 1.0"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    options, more = parser.parse_known_args()
    failed: Counter[str] = Counter()
    red = 0
    # Ended from outside, this must still end what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    burner = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        for run in range(1, options.runs + 1):
            start = monotonic()
            command = [
                sys.executable,
                "-m",
                "pytest",
                "benchmarks",
                "-m",
                "gate",
                "-q",
                "--benchmark-disable-gc",
            ]
            done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
            names = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
            failed.update(names)
            red += done.returncode != 0
            last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()
            print(f"run {run} of {options.runs}: {last} ({monotonic() - start:.0f} s)", flush=True)
            for name in names:
                print(f"  {name}")
                reason = re.search(rf"^(?:FAILED|ERROR) {re.escape(name)} - (.*)$", done.stdout, re.M)
                if reason:
                    print(f"    {reason.group(1)}", flush=True)
            assert burner.poll() is None, "the other process ended: this measured nothing"
    finally:
        burner.kill()
        burner.wait()
    print(f"{options.runs - red} of {options.runs} runs green")
    for name, times in failed.most_common():
        print(f"  {name}: red {times} times")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
