"""Write the number of test cases between the README's `<!-- tests -->` marks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MARKED = re.compile(r"(<!-- tests -->)[\d,]*(<!-- /tests -->)")


def collected() -> int:
    """How many cases pytest finds; a collection error ends the program with pytest's own words."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"^(\d+) tests? collected", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        sys.exit(done.stdout + done.stderr)
    return int(found.group(1))


def main() -> None:
    text = README.read_text(encoding="utf-8")
    if not MARKED.search(text):
        sys.exit("README.md has no <!-- tests --><!-- /tests --> marks")
    count = collected()
    README.write_text(MARKED.sub(rf"\g<1>{count:,}\g<2>", text), encoding="utf-8")
    print(f"{count} test cases")


if __name__ == "__main__":
    main()
