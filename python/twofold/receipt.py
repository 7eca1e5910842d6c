"""Receipts: what a recall was asked, on which state, and what it answered, so that it can be evaluated again."""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np

from twofold import audit, entities, render, text, timewords
from twofold.access import Grant, Principal
from twofold.clock import from_us
from twofold.decay import DecayPolicy, DecayRates
from twofold.embed import codes
from twofold.errors import InvalidInput
from twofold.index.filters import Filters
from twofold.model import Memory, Role, misfit
from twofold.query import MAX_BUDGET, MAX_K, Query, whole
from twofold.retrieve import question
from twofold.retrieve.late import Tokens
from twofold.retrieve.profile import Profile
from twofold.stores.schema import UNREADABLE
from twofold.tokens import counter

RECALL_RULES: Final = "recall/1"


def algorithm() -> str:
    """Fingerprint of the rules an answer depends on: text rules, Unicode version, arithmetic, constants' names."""
    names = ",".join(Profile.__dataclass_fields__)
    body = "\n".join(
        [RECALL_RULES, text.RULES, entities.RULES, codes.RULES, question.RULES, timewords.RULES, names]
    )
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def score_bits(score: float) -> str:
    """The 64 bits of a score, hex."""
    return struct.pack(">d", score).hex()


def text_hash(value: str) -> str:
    """sha256 of a text, hex."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Receipt:
    """A recall's question and answer. `to_json` gives the stored form; the hash of the packed text is lazy."""

    query: Query
    principal: Principal
    seq: int
    embedder: str | None
    policy: DecayPolicy
    answer: list[tuple[str, int, int, str]]  # id, version, ordinal, score bits
    packed: list[tuple[Memory, tuple[int, int] | None]]

    @property
    def id(self) -> str:
        """Hash of the question, the state and the answer: equal receipts have equal ids."""
        return hashlib.sha256(audit.canonical(self._body()).encode()).hexdigest()[:32]

    @property
    def ids(self) -> list[str]:
        return [a[0] for a in self.answer]

    @property
    def context_hash(self) -> str:
        """sha256 of the packed text."""
        return text_hash(render.context(self.packed, self.query.budget, self.query.counter))

    def to_json(self) -> dict[str, Any]:
        """The whole receipt as JSON values."""
        return {"id": self.id, **self._body()}

    def _body(self) -> dict[str, Any]:
        q = self.query
        return {
            "algorithm": algorithm(),
            "seq": self.seq,
            "tenant": self.principal.tenant,
            "agent_id": self.principal.agent_id,
            "grants": [
                [None if g.role is None else g.role.value, g.namespaces and list(g.namespaces), g.read_only]
                for g in self.principal.grants
            ],
            "query": q.text,
            "terms": list(q.terms),
            "vector": None if q.vector is None else b64encode(q.vector.astype("<f4").tobytes()).decode(),
            "cover": q.cover,
            "spread": q.spread,
            "tokens": None
            if q.tokens is None
            else {
                "codes": b64encode(q.tokens.codes.astype("<u8").tobytes()).decode(),
                "width": q.tokens.codes.shape[1],
                "terms": [list(t) for t in q.tokens.terms],
            },
            "generation": q.generation,
            "embedder": self.embedder,
            "k": q.k,
            "budget": q.budget,
            "counter": q.counter.name,
            "namespaces": list(q.patterns),
            "filters": q.filters.to_json(),
            "as_of": q.as_of,
            "known_at": q.known_at,
            "now": q.now,
            "include_faded": q.include_faded,
            "profile": q.profile.to_json(),
            "policy": policy_json(self.policy),
            "answer": [list(a) for a in self.answer],
            "context": self.context_hash,
            # Only where the nearest rows were proposed by a graph: a replay takes them, and no other receipt changes.
            **({} if q.proposed is None else {"proposed": list(q.proposed)}),
        }


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt read back from JSON: the question to ask again and the answer to compare with."""

    id: str
    algorithm: str
    seq: int
    query: Query
    principal: Principal
    policy: DecayPolicy
    answer: list[tuple[str, int, int, str]]
    context_hash: str


def policy_json(policy: DecayPolicy) -> dict[str, Any]:
    return {
        "by_type": {t: asdict(r) for t, r in sorted(policy.by_type.items())},
        "default": asdict(policy.default),
        "threshold": policy.threshold,
        "keep_after": policy.keep_after,
    }


def stored_tokens(value: dict[str, Any] | None) -> Tokens | None:
    if value is None:
        return None
    codes = np.frombuffer(b64decode(value["codes"]), "<u8").astype(np.uint64).reshape(-1, value["width"])
    return Tokens(codes, tuple(tuple(t) for t in value["terms"]))


def stored_rows(value: list[int] | None) -> tuple[int, ...] | None:
    if value is not None and not all(type(row) is int and row >= 0 for row in value):
        raise ValueError("proposed rows must be whole numbers")
    return None if value is None else tuple(value)


def check_sizes(query: Query, dimension: int) -> None:
    """A question's vector and codes against the vectors they are to be compared with. InvalidInput otherwise."""
    vector, tokens = query.vector, query.tokens
    if vector is not None and (vector.shape != (dimension,) or not np.isfinite(vector).all()):
        raise InvalidInput(f"not a receipt: its vector is not of {dimension} finite numbers")
    if tokens is not None and (
        64 * tokens.codes.shape[1] != dimension or len(tokens.terms) != len(tokens.codes)
    ):
        raise InvalidInput(f"not a receipt: its token codes are not of {dimension} bits each")


def stored(value: dict[str, Any]) -> StoredReceipt:
    """Read a receipt's JSON, which may come from anywhere. InvalidInput when it is not one."""
    try:
        read = _stored(value)
        rates = (read.policy.default, *read.policy.by_type.values())
        told: tuple[Any, ...] = (
            read,
            read.query,
            read.query.filters,
            read.principal,
            *read.principal.grants,
            read.policy,
        )
        for part in (*told, *rates):
            wrong = misfit(type(part), {f.name: getattr(part, f.name) for f in fields(part)})
            if wrong:
                raise TypeError(wrong)
        asked = read.query
        whole(asked.k, "k", 1, MAX_K)
        whole(asked.budget or 0, "budget", 0, MAX_BUDGET)
        for us in (asked.now, asked.as_of, asked.known_at):
            from_us(us or 0)  # a year that there is
        if not isinstance(json.loads(asked.filters.metadata), dict):
            raise TypeError("the filter metadata is no object")
        if not 0.0 <= asked.cover <= 1.0 or not asked.spread > 0.0:
            raise ValueError("cover is a share, spread is above 0")
        return read
    except InvalidInput as error:
        raise InvalidInput(f"not a receipt: {error}") from None
    except UNREADABLE as error:
        raise InvalidInput(f"not a receipt: {error!r}") from None


def _stored(value: dict[str, Any]) -> StoredReceipt:
    vector = value["vector"]
    policy = value["policy"]
    return StoredReceipt(
        id=value["id"],
        algorithm=value["algorithm"],
        seq=value["seq"],
        query=Query(
            text=value["query"],
            terms=tuple(value["terms"]),
            vector=None if vector is None else np.frombuffer(b64decode(vector), "<f4").astype(np.float32),
            cover=value["cover"],
            spread=value["spread"],
            tokens=stored_tokens(value["tokens"]),
            generation=value["generation"],
            k=value["k"],
            budget=value["budget"],
            counter=counter(value["counter"]),
            patterns=tuple(value["namespaces"]),
            filters=Filters.from_json(value["filters"]),
            as_of=value["as_of"],
            known_at=value["known_at"],
            now=value["now"],
            include_faded=value["include_faded"],
            profile=Profile.from_json(value["profile"]),
            proposed=stored_rows(value.get("proposed")),
        ),
        principal=Principal(
            value["tenant"],
            value["agent_id"],
            tuple(
                Grant(None if r is None else Role(r), None if n is None else tuple(n), ro)
                for r, n, ro in value["grants"]
            ),
        ),
        policy=DecayPolicy(
            by_type={t: DecayRates(**r) for t, r in policy["by_type"].items()},
            default=DecayRates(**policy["default"]),
            threshold=policy["threshold"],
            keep_after=policy["keep_after"],
        ),
        answer=[(a[0], a[1], a[2], a[3]) for a in value["answer"]],
        context_hash=value["context"],
    )
