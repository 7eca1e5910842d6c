"""From Memwright to Twofold in one line: the import. Run it anywhere; it needs no network and no key.

python examples/memwright_switch.py            # with the installed model (`twofold model install`)
TWOFOLD_EMBEDDER=hashing python examples/memwright_switch.py
"""

import sys
import tempfile

from twofold.compat.agent_memory import AgentMemory  # was: from agent_memory import AgentMemory
from twofold.compat.agent_memory.context import AgentContext, AgentRole


def main() -> None:
    """Store, recall, supersede, look back, and share with agents that may do less."""
    out = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder, AgentMemory(folder) as mem:
        mem.add("User prefers Python over Java", tags=["preference", "coding"], category="preference")
        mem.add("User works at Google", entity="user", category="career", event_date="2021-03-01")
        mem.add("User works at Meta", entity="user", category="career", event_date="2024-06-01")

        out(mem.recall_as_context("Where does the user work?") + "\n\n")
        for year in ("2022", "2025"):
            facts = mem.current_facts(entity="user", as_of=f"{year}-01-01")
            out(f"{year}: {facts[0].content}\n")
        for memory in mem.timeline("user"):
            out(f"  {memory.valid_from[:10]} ({memory.status}): {memory.content}\n")

        boss = AgentContext("boss", memory=mem, namespace="release", role=AgentRole.ORCHESTRATOR)
        builder = boss.as_agent("builder", AgentRole.EXECUTOR)
        reviewer = boss.as_agent("reviewer", AgentRole.REVIEWER)
        builder.add_memory("Build 42 passed all tests", tags=["build"])
        out(f"\nreviewer reads: {reviewer.recall('build tests')[0].content}\n")
        try:
            reviewer.add_memory("Reviewed")
        except PermissionError as refused:
            out(f"reviewer writes: {refused}\n")


if __name__ == "__main__":
    main()
