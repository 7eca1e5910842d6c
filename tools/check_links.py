"""Check that every relative link and anchor in the tracked Markdown files leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    found: dict[str, int] = {}
    names = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        seen = found.get(plain, 0)
        names.add(f"{plain}-{seen}" if seen else plain)
        found[plain] = seen + 1
    return names


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere. Addresses with a scheme are not followed."""
    problems = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            problems.append(f"{page.relative_to(ROOT)}: {target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            problems.append(f"{page.relative_to(ROOT)}: {target}: no such heading")
    return problems


def main() -> int:
    tracked = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    problems = [line for name in tracked if (ROOT / name).exists() for line in broken(ROOT / name)]
    print("\n".join(problems) or f"{len(tracked)} pages, no broken link")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
