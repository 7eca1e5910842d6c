"""A machine that fails: the disk is full, files may not be written, two programs mean different things."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from twofold import AgentMemory, errors

from .test_cli_damage import as_nobody, of_nobody

PREAMBLE = """
import json, resource, signal, sys
from pathlib import Path
from twofold import AgentMemory, errors
here = Path(sys.argv[1])
def said(work):
    try:
        work()
    except errors.TwofoldError as error:
        return f"{type(error).__name__}: {error}"
    return "done"
"""

FULL = (
    PREAMBLE
    + """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file of the allowed size then fails as a full disk does
mem = AgentMemory(here / "s", embedder="hashing:64")
first = mem.add("the first of all")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
def fill():
    for n in range(2000):
        mem.add(f"{n} " + "heron weir " * 400)
filled = said(fill)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, 1 << 20))
out = {
    "fill": filled, "again": said(lambda: mem.add("x " * 3000)), "kept": mem.stats()["memories"],
    "recall": mem.recall("first of all", promote=False)[0].content,
    "export": said(lambda: mem.export_json(here / "x.jsonl")),
    "backup": said(lambda: mem.backup(here / "b.db")), "reembed": said(lambda: mem.reembed("hashing:128")),
    "verify": mem.verify().ok,
}
mem.close()
print(json.dumps(out))
"""
)


def test_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    for name in ("fill", "again", "export", "backup", "reembed"):
        assert out[name].startswith("StoreError: cannot "), out[name]
    assert out["kept"] > 1
    assert out["recall"] == "the first of all"
    assert out["verify"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]  # nothing half written is left
    with AgentMemory(tmp_path / "s", embedder="hashing:64") as mem:  # there is room again
        assert mem.stats()["memories"] == out["kept"]
        mem.add("and on it goes")
        assert mem.verify().ok


def test_a_file_that_may_only_be_read() -> None:
    with of_nobody() as place:
        with AgentMemory(place / "s", embedder="hashing:64") as mem:
            mem.add("the heron nests")
        with as_nobody(place):
            (place / "s" / "twofold.db").chmod(0o444)
            with AgentMemory(place / "s", embedder="hashing:64") as mem:
                assert mem.recall("heron", promote=False)[0].content == "the heron nests"
                with pytest.raises(errors.StoreError, match="write permission"):
                    mem.add("x")


RIVAL = (
    PREAMBLE
    + """
mem = AgentMemory(here, embedder=sys.argv[2])
kept = 0
for n in range(20):
    kept += said(lambda: mem.add(f"{sys.argv[2]} {n}")) == "done"
last = said(lambda: mem.add("one more"))
print(json.dumps([kept, last]))
"""
)


def test_two_programs_with_different_embedders(tmp_path: Path) -> None:
    """Both begin on an empty store at once: one of them has it, the other is told, nothing is mixed."""
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", RIVAL, str(tmp_path / "s"), embedder], stdout=subprocess.PIPE, text=True
        )
        for embedder in ("hashing:64", "hashing:128")
    ]
    told = [json.loads(one.communicate(timeout=120)[0]) for one in rivals]
    assert sorted(kept for kept, _ in told) == [0, 20]
    for (kept, last), embedder in zip(told, ("hashing:64", "hashing:128"), strict=True):
        if kept:
            assert last == "done"
            with AgentMemory(tmp_path / "s", embedder=embedder) as mem:
                assert mem.stats()["memories"] == 21
                assert mem.verify().ok
        else:
            assert last.startswith("EmbedderMismatch: ")
            assert "reembed" in last


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no /dev/stdout here")
def test_an_export_to_standard_output_is_refused_not_replaced(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "s", embedder=None) as mem:
        mem.add("x")
    done = subprocess.run(
        [sys.executable, "-c", "from twofold.cli import main; main()", "export", "/dev/stdout",
         "--store", str(tmp_path / "s"), "--embedder", "none", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == "InvalidInput"
    assert os.path.islink("/dev/stdout")  # noqa: PTH114 -- as the shell sees it
