"""From what a caller asks to a value that a recall is a pure function of."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twofold import text
from twofold.access import check_pattern
from twofold.clock import to_us
from twofold.errors import BudgetError, InvalidInput
from twofold.index.filters import Filters
from twofold.index.tenant import TenantIndex
from twofold.retrieve.late import Tokens
from twofold.retrieve.profile import SPREAD, Profile, profile_of
from twofold.tokens import TokenCounter, counter
from twofold.vault import Vault

if TYPE_CHECKING:
    from twofold.embed.base import Embedder
    from twofold.embed.codes import QueryCodes

MAX_QUERY = 20_000  # characters; longer texts are documents, not questions
MAX_K = 10_000
MAX_BUDGET = 1_000_000_000  # tokens; the core adds them up in 64 bits

Instant = dt.datetime | dt.date | str


@dataclass(frozen=True, slots=True)
class Query:
    """Everything a recall depends on besides the state: it can be stored, and evaluated again."""

    text: str
    terms: tuple[str, ...]
    vector: npt.NDArray[np.float32] | None
    cover: float  # share of the text's letters that the encoder can read, 0..1
    spread: float  # standard deviation of the encoder's cosines between unrelated texts
    tokens: Tokens | None  # of late interaction
    generation: int | None
    k: int
    budget: int | None
    counter: TokenCounter
    patterns: tuple[str, ...]
    filters: Filters
    as_of: int | None
    known_at: int | None
    now: int
    include_faded: bool
    profile: Profile
    # Ordinals that an approximate search proposed as the nearest: scored exactly, here and in a replay. None: exact.
    proposed: tuple[int, ...] | None = None


def patterns_of(namespaces: Any, own: tuple[str, ...]) -> tuple[str, ...]:
    """Namespace patterns as given: None for the handle's own, a name, or a list of names and prefixes."""
    if namespaces is None:
        return own
    if isinstance(namespaces, str):
        namespaces = (namespaces,)
    if not isinstance(namespaces, Iterable):
        raise InvalidInput(f"namespaces must be a name or a list of names and prefixes, not {namespaces!r}")
    patterns = tuple(dict.fromkeys(check_pattern(n) for n in namespaces))
    if not patterns:
        raise InvalidInput("namespaces is empty; leave it out for the handle's own, or give ['*'] for all")
    return patterns


def optional_instant(value: Instant | None, name: str) -> int | None:
    """Microseconds, or None."""
    return None if value is None else to_us(value, name=name)


def whole(value: Any, name: str, low: int, high: int) -> int:
    """An int within bounds; InvalidInput otherwise (True and 3.0 are not ints here)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidInput(f"{name} must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be between {low} and {high}, not {value}")
    return int(value)


def prepare(
    vault: Vault,
    index: TenantIndex,
    own: tuple[str, ...],
    query: str,
    *,
    k: int = 10,
    budget: int | None = None,
    token_counter: str | TokenCounter | None = None,
    namespaces: Any = None,
    filters: Mapping[str, Any] | Filters | None = None,
    as_of: Instant | None = None,
    known_at: Instant | None = None,
    now: Instant | None = None,
    include_faded: bool | None = None,
    profile: str | Profile | dict[str, Any] | None = None,
    vector: npt.ArrayLike | None = None,
) -> Query:
    """Check the arguments, and compute what depends on libraries: terms and the query's vector.

    index: the tenant's view, caught up.
    """
    text.validate_text(query, "query")
    if len(query) > MAX_QUERY:
        raise InvalidInput(f"query is {len(query)} characters long; at most {MAX_QUERY} are allowed")
    if budget is not None:
        if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
            raise InvalidInput(f"budget must be a whole number of tokens, not {budget!r}")
        if budget < 0:
            raise BudgetError(f"budget must not be negative, not {budget}")
        if budget > MAX_BUDGET:
            raise BudgetError(f"budget must be at most {MAX_BUDGET} tokens; leave it out for no limit")
    if not isinstance(filters, Mapping | Filters | None):
        raise InvalidInput(f"filters must be a mapping of conditions, not {filters!r}")
    chosen = profile_of(profile)
    as_of_us, known_at_us = optional_instant(as_of, "as_of"), optional_instant(known_at, "known_at")
    terms = tuple(text.terms(query, query=True))
    generation, query_vector, codes, embedder = _vector(vault, index, query, vector, chosen)
    return Query(
        text=query,
        terms=terms,
        vector=query_vector,
        cover=1.0 if vector is not None else cover(query, embedder),
        spread=float(getattr(embedder, "cosine_spread", SPREAD)),
        tokens=None if codes is None else tokens_of(codes, terms),
        generation=generation,
        k=whole(k, "k", 1, MAX_K),
        budget=None if budget is None else int(budget),
        counter=vault.counter if token_counter is None else counter(token_counter),
        patterns=patterns_of(namespaces, own),
        filters=Filters.of(filters),
        as_of=as_of_us,
        known_at=known_at_us,
        now=vault.now() if now is None else to_us(now, name="now"),
        include_faded=(as_of is not None or known_at is not None) if include_faded is None else include_faded,
        profile=chosen,
    )


def _vector(
    vault: Vault, index: TenantIndex, query: str, given: npt.ArrayLike | None, profile: Profile
) -> tuple[int | None, npt.NDArray[np.float32] | None, QueryCodes | None, Embedder | None]:
    """The generation to search, the query's vector in it and its token codes, None without; and the embedder."""
    if profile.vector_weight <= 0:
        return None, None, None, vault.embedder_of(index.tenant)
    generation, embedder = vault.checked_encoder(index) if given is None else vault.encoder(index)
    if generation is None:
        return None, None, None, embedder
    if given is not None:
        return generation.number, unit_vector(given, generation.dimension, "vector"), None, embedder
    if embedder is None:
        return None, None, None, None
    vector, codes = vault.queries(index.tenant).embed_query_with_codes(embedder, query)
    return generation.number, vector, codes, embedder


def tokens_of(codes: QueryCodes, terms: tuple[str, ...]) -> Tokens:
    """The question's token codes, each with those lexical terms of the question that its word gives."""
    asked = set(terms)
    own = tuple(tuple(t for t in text.terms(word, query=True) if t in asked) for word in codes.words)
    return Tokens(codes.codes, own)


def cover(query: str, embedder: Embedder | None) -> float:
    """Share of the letters in scripts that the encoder was trained on; 1 for a multilingual one.

    A channel that cannot read the question must not vote: Chinese asked of an English encoder is noise.
    """
    if embedder is None or not getattr(embedder, "latin_only", False):
        return 1.0
    letters = [c for c in query if c.isalpha()]
    return sum(c < "\u0250" for c in letters) / len(letters) if letters else 1.0


def unit_vector(given: npt.ArrayLike, dimension: int, name: str) -> npt.NDArray[np.float32]:
    """A vector of the right size scaled to length 1. InvalidInput for NaN, infinities, zero, a wrong size."""
    try:
        array = np.asarray(given, np.float64)
    except (OverflowError, TypeError, ValueError):
        raise InvalidInput(f"{name} is not an array of numbers") from None
    if array.shape != (dimension,):
        raise InvalidInput(f"{name} has shape {array.shape}; this store's vectors have ({dimension},)")
    if not np.isfinite(array).all():
        raise InvalidInput(f"{name} has NaN or infinite values")
    norm = float(np.sqrt(np.dot(array, array)))
    if norm == 0.0:
        raise InvalidInput(f"{name} is all zeros")
    return np.ascontiguousarray((array / norm).astype(np.float32))
