"""The demo behind `twofold demo` and `make demo`: a project log stored, recalled, asked about the past, explained."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from twofold.clock import ManualClock
from twofold.memory import AgentMemory
from twofold.model import Role

LOG = [
    (
        "The planner chose Rust for the critical path because of its latency",
        ["decision", "rust", "performance"],
    ),
    ("规划器决定在关键路径上使用Rust", ["decision", "rust", "performance"]),
    ("The dashboard is written in TypeScript and talks to the API over HTTP", ["frontend"]),
    ("Maria prefers short status reports on Friday mornings", ["preference"]),
    ("The nightly backup failed twice in March; the disk was full", ["incident", "backup"]),
    ("Order service calls the payment gateway with a timeout of 800 ms", ["order-service", "payments"]),
    ("We rejected MongoDB after the load test in February", ["decision", "database"]),
    ("数据库每天凌晨三点备份到对象存储", ["backup", "database"]),
]


def run(store: str | None, embedder: str | None, say: Callable[[str], None]) -> None:
    """Run the demo in a store that is kept (`store`) or thrown away, and print what happens."""
    with tempfile.TemporaryDirectory() as temporary:
        clock = ManualClock("2026-03-12T09:00:00Z")
        chosen = {} if embedder is None else {"embedder": embedder}
        with AgentMemory(store or Path(temporary) / "store", clock=clock, **chosen) as mem:  # type: ignore[arg-type]
            _tell(mem, clock, say)


def _tell(mem: AgentMemory, clock: ManualClock, say: Callable[[str], None]) -> None:
    say(f"embedder: {mem.embedder.fingerprint if mem.embedder else 'none'}\n")
    mem.add_many([{"content": text, "tags": tags} for text, tags in LOG])
    say(f"stored {len(LOG)} memories\n")
    for question in (
        "Which technology did we choose for the critical path?",
        "我们为关键路径选择了什么技术",
        "What went wrong with the backups?",
    ):
        best = mem.recall(question, k=3, budget=200)
        say(f"? {question}")
        for hit in best:
            say(f"  {hit.score:.3f}  {hit.content}")
        say("")

    executor = mem.as_agent("exec-1", role=Role.EXECUTOR, namespaces=["build/*"], namespace="facts/infra")
    monitor = mem.as_agent("mon-1", role=Role.MONITOR, namespace="facts/infra")
    executor.add("The IP of server A is 192.168.1.100")
    clock.advance(hours=2)
    monitor.add("The IP of server A is 192.168.1.150")
    clock.advance(hours=1)
    say("09:00 the executor records an address, 11:00 the monitor another one; it is 12:00 now")
    for label, times in (
        ("now", {}),
        ("as of 10:30", {"as_of": "2026-03-12T10:30:00Z"}),
        ("as known at 10:30", {"known_at": "2026-03-12T10:30:00Z"}),
    ):
        found = mem.recall("What is the IP of server A?", k=1, namespaces="facts/*", **times)  # type: ignore[arg-type]
        say(f"  {label}: {found[0].content}   (told by {found[0].memory.agent_id})")

    found = mem.recall("What is the IP of server A?", k=1, namespaces="facts/*", promote=False)
    hit = found[0]
    say("\nwhy this answer:")
    say(f"  found by {', '.join(f'{layer} (place {rank})' for layer, rank in hit.sources.items())}")
    say(f"  score {hit.score:.4f} = {' '.join(f'{v:+.4f} {n}' for n, v in hit.parts.items() if v)}")
    say(f"  {mem.explain('What is the IP of server A?', hit.memory.id, namespaces='facts/*').reason}")
    again = mem.replay(found.receipt)
    say(f"  replayed from its receipt: {'identical' if again.identical else 'different'}")
    say(f"\nas text for a prompt:\n{found.context()}")
    chain = mem.verify()
    say(f"\nlog of {chain.events} events verified: {'ok' if chain.ok else chain.problems}")
