"""REPLAY: ask a receipt's question again, on the state it was asked on, and compare the answer bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from twofold.access import Principal, any_match
from twofold.errors import InvalidInput, NotFound, PermissionDenied, ReplayUnsupported
from twofold.recall import Recall, recall_at
from twofold.receipt import Receipt, StoredReceipt, algorithm, check_sizes, stored
from twofold.remember import demand
from twofold.vault import Vault


@dataclass(frozen=True, slots=True)
class Replay:
    """identical: ids, score bits and packed text are those of the receipt.

    altered_by_erasure: something was erased since in a namespace the recall looked at, so it may differ.
    recall is None when the receipt itself was redacted by an erasure, and for an auditor who may not read all
    that the asker could.
    """

    identical: bool
    altered_by_erasure: bool
    recall: Recall | None
    differences: tuple[str, ...] = ()


def replay(vault: Vault, principal: Principal, receipt: Receipt | Mapping[str, Any] | str) -> Replay:
    """Evaluate a receipt.

    Raises NotFound, ReplayUnsupported (made under other rules), PermissionDenied (of another tenant or agent, or
    asked by a handle that could read more: only an auditor replays such, kept ones only, and sees the verdict).
    """
    body = body_of(vault, principal, receipt)
    if body.get("erased"):
        return Replay(False, True, None, ("the receipt was redacted by an erasure",))
    asked = stored(body)
    if asked.algorithm != algorithm():
        raise ReplayUnsupported(
            f"the receipt was made under rules {asked.algorithm}, this build has {algorithm()}; "
            "replay it with the version of Twofold that made it"
        )
    found = compare(vault, asked)
    if asked.principal.reads_within(principal):
        return found
    if not (principal.may("audit") and isinstance(receipt, str)):
        raise PermissionDenied("the receipt was asked by a handle that may read more than this one")
    return replace(found, recall=None)


def receipts(vault: Vault, principal: Principal) -> list[tuple[str, int]]:
    """(id, seq) of the kept receipts; for a handle narrowed to namespaces those asked within its reach."""
    demand(principal, "audit", "the kept receipts")
    found = vault.store.receipts(principal.tenant)
    if not principal.is_narrowed:
        return found
    bodies = ((one, json.loads(vault.store.receipt(principal.tenant, one[0]) or "{}")) for one in found)
    return [
        one
        for one, body in bodies
        if not body.get("erased") and stored(body).principal.reads_within(principal)
    ]


def body_of(vault: Vault, principal: Principal, receipt: Receipt | Mapping[str, Any] | str) -> dict[str, Any]:
    """A receipt's JSON values, from the receipt itself, its JSON, or the id of a kept one.

    PermissionDenied unless it is of this tenant and of this agent, or the handle may audit.
    """
    if isinstance(receipt, str):
        text = vault.store.receipt(principal.tenant, receipt)
        if text is None:
            raise NotFound(f"no kept receipt {receipt!r} in this tenant; recall with keep=True keeps one")
        body: dict[str, Any] = json.loads(text)
    else:
        if not isinstance(receipt, Receipt | Mapping):
            raise InvalidInput(f"a receipt is an id or an object, not {type(receipt).__name__}")
        body = receipt.to_json() if isinstance(receipt, Receipt) else dict(receipt)
        if "tenant" not in body or "query" not in body:
            raise InvalidInput("not a receipt: it names no tenant or no query")
    if body.get("tenant") != principal.tenant:
        raise PermissionDenied("the receipt belongs to another tenant")
    if body.get("agent_id") != principal.agent_id and not principal.may("audit"):
        raise PermissionDenied(f"the receipt belongs to agent {body.get('agent_id')!r}")
    return body


def compare(vault: Vault, asked: StoredReceipt) -> Replay:
    index = vault.index(asked.principal.tenant)
    if asked.seq > index.seq:
        raise NotFound(f"the receipt is of seq {asked.seq}; this store's log ends at {index.seq}")
    generation = asked.query.generation
    if generation is not None and generation not in {g.number for g in index.generations}:
        raise ReplayUnsupported(
            f"the vectors of embedding generation {generation}, which the receipt was made on, were collected"
        )
    sizes = {g.number: g.dimension for g in index.generations}
    check_sizes(asked.query, sizes.get(-1 if generation is None else generation, 0))
    found = recall_at(vault, asked.principal, index, index.view(asked.seq), asked.query, asked.policy)
    differences = []
    answer = [tuple(a) for a in found.receipt.answer]
    for i, (then, again) in enumerate(zip(asked.answer, answer, strict=False), 1):
        if then[:3] != again[:3]:
            differences.append(f"place {i} was {then[0]} version {then[1]}, is {again[0]} version {again[1]}")
        elif then[3] != again[3]:
            differences.append(f"the score of {then[0]} had bits {then[3]}, has {again[3]}")
    if len(asked.answer) != len(answer):
        differences.append(f"there were {len(asked.answer)} hits, there are {len(answer)}")
    if not differences and asked.context_hash != found.receipt.context_hash:
        differences.append("the packed text differs")
    erased = any(
        seq > asked.seq and any_match(asked.query.patterns, index.namespaces.names[code])
        for seq, code in index.erasures
    )
    return Replay(not differences, erased, found, tuple(differences))
