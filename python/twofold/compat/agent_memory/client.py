"""`MemoryClient`: Memwright's REST routes (`twofold serve --compat memwright`) with the methods of `AgentMemory`."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from twofold.compat.agent_memory.models import Memory, RetrievalResult
from twofold.compat.agent_memory.retrieval.orchestrator import context_of
from twofold.errors import BudgetError, InvalidInput, NotFound, PermissionDenied, StoreBusy, StoreError

_ERRORS: Final[dict[int, type[Exception]]] = {
    400: InvalidInput,
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: InvalidInput,
    413: InvalidInput,
    422: InvalidInput,
    429: StoreBusy,
    503: StoreBusy,
}
DEFAULT_BUDGET: Final = 16_000


class MemoryClient:
    """Talks to a server by urllib. A key goes into headers: {"Authorization": "Bearer ..."}.

    Raises what the store would: InvalidInput, NotFound, PermissionDenied; StoreError when no server answers.
    """

    def __init__(
        self,
        base_url: str,
        agent_id: str = "anonymous",
        timeout: float = 10.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise InvalidInput(f"base_url must begin with http:// or https://, not {base_url!r}")
        self.base_url = base_url.rstrip("/")
        self.agent_id = agent_id
        self.timeout = timeout
        self._headers = {"Content-Type": "application/json", "X-Agent-ID": agent_id, **(headers or {})}

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None
        if body is not None:
            data = json.dumps({k: v for k, v in body.items() if v is not None}).encode()
        request = urllib.request.Request(
            self.base_url + path, data, self._headers, method="GET" if body is None else "POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                answer = json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                raise _ERRORS.get(error.code, StoreError)(_message(error)) from None
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
            raise StoreError(f"{self.base_url} does not answer as a memory server: {error}") from None
        if not answer.get("ok"):
            raise StoreError(str(answer.get("error", f"{self.base_url} gave no reason")))
        return answer["data"]

    # -- the methods of AgentMemory ----------------------------------------------------------------

    def add(
        self,
        content: str,
        tags: list[str] | None = None,
        category: str = "general",
        entity: str | None = None,
        namespace: str | None = None,
        event_date: str | None = None,
        confidence: float = 1.0,
        metadata: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Store a memory."""
        body = {
            "content": content,
            "tags": list(tags or ()),
            "category": category,
            "entity": entity,
            "namespace": namespace,
            "event_date": event_date,
            "confidence": confidence,
            "metadata": {**(metadata or {}), "_agent_id": self.agent_id},
        }
        return Memory.from_row(self._ask("/add", body))

    def recall(
        self, query: str, budget: int | None = None, namespace: str | None = None
    ) -> list[RetrievalResult]:
        """The memories that answer a query best, within a budget."""
        if budget is not None and budget < 1:
            raise BudgetError(f"a budget of {budget} tokens holds nothing; give 1 or more, or leave it out")
        found = self._ask("/recall", {"query": query, "budget": budget, "namespace": namespace})
        return [RetrievalResult(Memory.from_row(r["memory"]), r["score"], r["source"]) for r in found]

    def recall_as_context(self, query: str, budget: int | None = None, namespace: str | None = None) -> str:
        """`recall` as lines to paste; "" when nothing is found."""
        found = self.recall(query, budget, namespace)
        return context_of(found, DEFAULT_BUDGET if budget is None else budget)

    def search(
        self,
        query: str | None = None,
        category: str | None = None,
        entity: str | None = None,
        namespace: str | None = None,
        status: str | None = "active",
        after: str | None = None,
        before: str | None = None,
        limit: int = 10,
    ) -> list[Memory]:
        """Memories that pass every filter."""
        body = {
            "query": query,
            "category": category,
            "entity": entity,
            "namespace": namespace,
            "status": status,
            "after": after,
            "before": before,
            "limit": limit,
        }
        return [Memory.from_row(m) for m in self._ask("/search", body)]

    def get(self, memory_id: str) -> Memory | None:
        """A memory by id; None when there is none."""
        try:
            return Memory.from_row(self._ask(f"/memory/{urllib.parse.quote(memory_id, safe='')}"))
        except NotFound:
            return None

    def timeline(self, entity: str, namespace: str | None = None) -> list[Memory]:
        """Everything about an entity in order."""
        found = self._ask("/timeline", {"entity": entity, "namespace": namespace})
        return [Memory.from_row(m) for m in found]

    def forget(self, memory_id: str) -> bool:
        """Archive a memory; False when there is none."""
        return bool(self._ask("/forget", {"memory_id": memory_id})["forgotten"])

    def health(self) -> dict[str, Any]:
        """{healthy, checks}."""
        found: dict[str, Any] = self._ask("/health")
        return found

    def stats(self) -> dict[str, Any]:
        """{total_memories, by_status, by_category, db_size_bytes}."""
        found: dict[str, Any] = self._ask("/stats")
        return found

    def close(self) -> None:
        """Nothing to do: a connection lives as long as its request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _message(error: urllib.error.HTTPError) -> str:
    """What the server says went wrong: the envelope's error, a problem's detail, or the status."""
    try:
        body = json.loads(error.read())
    except ValueError:
        body = None
    said = body.get("error") or body.get("detail") or body.get("title") if isinstance(body, dict) else None
    return str(said or f"the server answered {error.code} {error.reason}")
