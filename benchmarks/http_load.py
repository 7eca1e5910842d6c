"""Drive `twofold serve` from a second process: many clients, adds and recalls mixed; nothing may be lost.

Run: python benchmarks/http_load.py [--rows 14726] [--clients 64] [--seconds 60] [--embedder hashing] [--kill]
Prints a table (or --json). Exit status 1 on an error answer or a lost write. --kill ends the server by SIGKILL
half way: then broken connections are no errors, but every acknowledged write must still be there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TOPICS = "parser planner cache queue deploy billing search login upload report".split()
VERBS = "chose rewrote measured reverted approved blocked".split()


def text(i: int) -> str:
    """A made-up note; no two are equal."""
    return (
        f"Agent {i % 37} {VERBS[i % 6]} the {TOPICS[i % 10]} of service {i % 211}, "
        f"ticket T-{i}, after {i % 90} minutes of work on branch b{i % 53}"
    )


def start(store: Path, keys: Path, embedder: str, *more: str) -> tuple[subprocess.Popen[str], str]:
    """A server process and its address."""
    command = [sys.executable, "-c", "from twofold.cli import main; main()"]
    serve = ["serve", "--port", "0", "--store", str(store), "--keys", str(keys), "--embedder", embedder]
    process = subprocess.Popen(
        [*command, *serve, "--rate", "0", "--no-access-log", "--json", *more],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("{") or "url" not in json.loads(line):
        process.kill()
        raise SystemExit(f"the server did not start: {line or 'no output'}")
    return process, json.loads(line)["url"]


class Caller:
    """One client: one connection that is kept, raw requests, so that the server is what is measured."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def __call__(self, path: str, body: Any) -> tuple[int, Any]:
        self._connection.request("POST", path, json.dumps(body).encode(), self._headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def close(self) -> None:
        self._connection.close()


def drive(
    url: str, key: str, number: int, rows: int, end: float, killed: threading.Event, out: dict[str, Any]
) -> None:
    """One client's loop: one add to three recalls."""
    call, n = Caller(url, key), 0
    out |= {"add": [], "recall": [], "acknowledged": {}, "errors": [], "busy": 0}
    while time.monotonic() < end:
        adds = n % 4 == 0
        content = f"client {number} wrote {n}: {text(rows + 100_000 * number + n)}"
        started = time.perf_counter()
        try:
            if adds:
                status, body = call("/v1/memories", {"content": content})
            else:
                status, body = call("/v1/recall", {"query": text(number * 7919 + n)[:60], "k": 10})
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not killed.is_set():
                out["errors"].append(repr(error))
            break
        out["add" if adds else "recall"].append(time.perf_counter() - started)
        if status != 200:
            out["errors"].append(f"{status}: {body}")
        elif adds:
            out["acknowledged"][body["id"]] = content
        elif not body["hits"]:
            out["errors"].append("a recall found nothing")
        n += 1
    call.close()


def processor_seconds(pid: int) -> float:
    """Processor time a process has used; on a busy machine it says more than the clock."""
    user, system = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def percentile(values: list[float], share: float) -> float:
    """Milliseconds."""
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else 0.0


def run(rows: int, clients: int, seconds: float, embedder: str, kill: bool, folder: Path) -> dict[str, Any]:
    """Fill a store over HTTP, load it, stop (or kill) the server, open the store, and look for every write."""
    from twofold import AgentMemory
    from twofold.clock import SystemClock
    from twofold.serve.keys import Keys

    store, keys = folder / "store", folder / "keys.json"
    key, _ = Keys(keys).add("load", clock=SystemClock())
    process, url = start(store, keys, embedder)
    killed = threading.Event()
    try:
        call = Caller(url, key)
        for first in range(0, rows, 500):
            status, body = call(
                "/v1/memories/batch", {"items": [text(i) for i in range(first, min(first + 500, rows))]}
            )
            assert status == 200, body
        call.close()
        outs: list[dict[str, Any]] = [{} for _ in range(clients)]
        used = processor_seconds(process.pid)
        began = time.monotonic()
        threads = [
            threading.Thread(target=drive, args=(url, key, i, rows, began + seconds, killed, out))
            for i, out in enumerate(outs)
        ]
        for thread in threads:
            thread.start()
        if kill:
            time.sleep(seconds / 2)
            killed.set()
            process.kill()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        if not kill:
            used = processor_seconds(process.pid) - used
            os.kill(process.pid, signal.SIGTERM)
        stopped = process.wait(60)
    finally:
        process.kill()
        process.wait()
    acknowledged = {i: c for out in outs for i, c in out["acknowledged"].items()}
    with AgentMemory(store, embedder=embedder) as mem:
        lost = []
        for memory_id, content in acknowledged.items():
            found = mem.get(memory_id)
            if found is None or found.content != content:
                lost.append(memory_id)
        chain = mem.verify()
    adds = [t for out in outs for t in out["add"]]
    recalls = [t for out in outs for t in out["recall"]]
    return {
        "rows": rows,
        "clients": clients,
        "seconds": round(took, 1),
        "embedder": embedder,
        "killed": kill,
        "exit_status": stopped,
        "requests_per_second": round((len(adds) + len(recalls)) / took, 1),
        "server_cpu_ms_per_request": None
        if kill
        else round(1000 * used / max(1, len(adds) + len(recalls)), 2),
        "load_average": os.getloadavg()[0],
        "adds": len(adds),
        "recalls": len(recalls),
        "add_ms": {"p50": percentile(adds, 0.5), "p99": percentile(adds, 0.99)},
        "recall_ms": {"p50": percentile(recalls, 0.5), "p99": percentile(recalls, 0.99)},
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "chain_ok": chain.ok,
        "errors": [e for out in outs for e in out["errors"]][:10],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=14_726)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--embedder", default="hashing")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twofold-load-") as folder:
        found = run(given.rows, given.clients, given.seconds, given.embedder, given.kill, Path(folder))
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    return 1 if found["errors"] or found["lost"] or not found["chain_ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
