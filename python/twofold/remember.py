"""WRITE PATH: authorise, validate, provenance, dedupe, embed, supersede, one transaction, index refresh."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from twofold import audit, frames, render, text
from twofold.access import Principal, check_name
from twofold.clock import DAY, OPEN, from_us, iso, to_us
from twofold.embed.base import Embedder, checked_rows
from twofold.embed.codes import code_embedder, document_codes
from twofold.entities import entities as find_entities
from twofold.entities import entity_key
from twofold.errors import EmbedderMismatch, InvalidInput, NotFound, PermissionDenied, QuotaExceeded
from twofold.index.tenant import TenantIndex
from twofold.ledger import Known, Ledger
from twofold.lookup import memories, reader
from twofold.model import TRAIT_ASKS, Kind, Memory, Row, Vectors, Visibility
from twofold.query import unit_vector
from twofold.stores.schema import reads_stored
from twofold.vault import Vault, Writer, block

MAX_CONTENT: Final = 2_000_000  # characters
MAX_TAGS: Final = 256
MAX_METADATA: Final = 64_000  # characters of JSON
MAX_RELATION: Final = 100
MAX_DEPTH: Final = 100  # of metadata: what is read again in a deeper call must not be too deep there
WINDOW_OVERLAP: Final = 32  # tokens

FIELDS: Final = (
    "content tags memory_type namespace entities key confidence pinned metadata event_date speaker visibility "
    "source_id session_id derived_from valid_from valid_to supersedes vector"
).split()


@dataclass(slots=True)
class Draft:
    """A validated memory that is not stored yet."""

    content: str
    namespace: str
    memory_type: str
    tags: tuple[str, ...]
    entities: tuple[str, ...]
    key: str | None
    confidence: float
    pinned: bool
    metadata: str
    event_at: int | None
    speaker: str | None
    visibility: str
    source_id: str | None
    session_id: str | None
    derived_from: tuple[str, ...]
    valid_from: int | None
    valid_to: int | None
    supersedes: tuple[str, ...]
    content_hash: str
    frame: frames.Frame | None
    lexemes: str = "{}"
    tokens: int = 0
    traits: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)
    data: npt.NDArray[np.float32] | None = None
    codes: tuple[bytes, ...] = ()
    bare: bool = False  # stored without vectors: words and relations find it
    given: bool = False  # its vector came with it
    maker: str = ""  # fingerprint of the embedder that its vectors are of


@dataclass(frozen=True, slots=True)
class Decision:
    """One supersession: which memory's validity ends, when, in favour of which, and by which rule.

    rule: "explicit", "key", "frame" (the automatic rule), "given" (valid_to), "correction".
    applied is False for a suggestion: the rule matched, but something speaks against acting on it.
    """

    rule: str
    old_id: str
    old_ordinal: int
    new_id: str
    at: int
    reason: str
    applied: bool = True


@dataclass(frozen=True, slots=True)
class Stored:
    """What happened to one draft: the ordinal that now holds it, and the decisions taken."""

    ordinal: int
    created: bool
    decisions: tuple[Decision, ...] = ()


# -- the path ---------------------------------------------------------------------------------------


def remember(
    vault: Vault, principal: Principal, namespace: str, items: Sequence[Mapping[str, Any]]
) -> list[Memory]:
    """Store a batch in one transaction and return the memories in order."""
    drafts = [validate(vault, principal, namespace, item) for item in items]
    embed(vault, principal, drafts)
    with vault.write(principal) as writer:
        embed_anew(writer, drafts)
        ledger = Ledger(writer.index)
        stored = [place(writer, ledger, draft) for draft in drafts]
    index = vault.index(principal.tenant)
    return memories(vault, principal.tenant, index.view(), [s.ordinal for s in stored], vault.now())


def preview(vault: Vault, principal: Principal, namespace: str, item: Mapping[str, Any]) -> list[Decision]:
    """The supersessions that storing this would cause. Nothing is written."""
    draft = validate(vault, principal, namespace, item)
    index = vault.index(principal.tenant)
    with index.lock:
        ledger = Ledger(index)
        if duplicate_of(principal, ledger, draft) is not None:
            return []
        start = draft.valid_from if draft.valid_from is not None else draft.event_at
        start = max(vault.now(), index.recorded_at) if start is None else start
        return supersessions(vault, principal, ledger, draft, "(new)", -1, start)


def place(writer: Writer, ledger: Ledger, draft: Draft) -> Stored:
    """Put one draft into the commit: merge it into its duplicate, or add it and end what it supersedes."""
    vault, principal = writer.vault, writer.principal
    check_parents(principal, ledger, draft)
    twin = duplicate_of(principal, ledger, draft)
    if twin is not None:
        return merge(writer, ledger, twin, draft)
    check_quota(writer)
    recorded = writer.now()
    start = draft.valid_from if draft.valid_from is not None else draft.event_at
    start = recorded if start is None else start
    if draft.valid_to is not None and draft.valid_to <= start:
        raise InvalidInput(f"valid_to {iso(draft.valid_to)} is not after valid_from {iso(start)}")
    memory_id = vault.ids(recorded)
    known = insert(writer, ledger, Kind.ADD, draft, memory_id, 1, recorded, start)
    decisions = supersessions(vault, principal, ledger, draft, memory_id, known.ordinal, start)
    for decision in decisions:
        apply_decision(writer, ledger, decision)
    if draft.valid_to is not None:
        end(writer, known, draft.valid_to, None, "given", "valid_to was given")
    return Stored(known.ordinal, True, tuple(decisions))


# -- validate ---------------------------------------------------------------------------------------


def validate(vault: Vault, principal: Principal, namespace: str, item: Mapping[str, Any]) -> Draft:
    """Authorise the write and check every field. InvalidInput or PermissionDenied; nothing is written."""
    unknown = sorted(set(item) - set(FIELDS))
    if unknown:
        raise InvalidInput(f"unknown field {unknown[0]!r}; fields are {', '.join(FIELDS)}")
    content = text.validate_text(item.get("content"), "content")
    if len(content) > MAX_CONTENT:
        raise InvalidInput(f"content is {len(content)} characters long; at most {MAX_CONTENT} are allowed")
    if render.recalled_ids(content):
        content = render.without_recalled(content)
        if not content:
            raise InvalidInput(
                "content is nothing but recalled memories; they are stored already and are not stored again"
            )
    memory_type = item.get("memory_type") or principal.default_type
    memory_type = check_name(memory_type, "memory_type")
    namespace = check_name(item.get("namespace") or namespace, "namespace")
    authorise_write(principal, namespace, memory_type)
    tags = strings(item.get("tags"), "tags", MAX_TAGS)
    metadata = metadata_json(item.get("metadata"))
    visibility = item.get("visibility") or Visibility.PUBLIC
    if visibility not in list(Visibility):
        raise InvalidInput(f"visibility must be public, team or private, not {visibility!r}")
    confidence = item.get("confidence")
    confidence = 1.0 if confidence is None else confidence
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise InvalidInput(f"confidence must be a number in 0..1, not {confidence!r}")
    if not (0.0 <= confidence <= 1.0):
        raise InvalidInput(f"confidence must be in 0..1, not {confidence!r}")
    pinned = item.get("pinned") or False
    if not isinstance(pinned, bool):
        raise InvalidInput(f"pinned must be true or false, not {pinned!r}")
    speaker = optional_text(item.get("speaker"), "speaker")
    given = strings(item.get("entities"), "entities", MAX_TAGS)
    found = [e.name for e in find_entities(content, known=given, speaker=speaker)]
    if vault.finder is not None:
        found += vault.finder(content)
    names: dict[str, str] = {}
    for name in (*given, *found):
        names.setdefault(entity_key(name), name)
    draft = Draft(
        content=content,
        namespace=namespace,
        memory_type=memory_type,
        tags=tags,
        entities=tuple(names.values()),
        key=optional_text(item.get("key"), "key"),
        confidence=float(confidence),
        pinned=pinned,
        metadata=metadata,
        event_at=None if item.get("event_date") is None else to_us(item["event_date"], name="event_date"),
        speaker=speaker,
        visibility=str(visibility),
        source_id=optional_text(item.get("source_id"), "source_id"),
        session_id=optional_text(item.get("session_id"), "session_id"),
        derived_from=strings(item.get("derived_from"), "derived_from", 10_000),
        valid_from=None if item.get("valid_from") is None else to_us(item["valid_from"], name="valid_from"),
        valid_to=None if item.get("valid_to") is None else to_us(item["valid_to"], name="valid_to"),
        supersedes=strings(item.get("supersedes"), "supersedes", 1_000),
        content_hash=hash_of(content),
        frame=frames.frame(content) if vault.auto_supersede else None,
    )
    analyse(vault, draft)
    if item.get("vector") is False:
        draft.bare = True
    elif item.get("vector") is not None:
        draft.data, draft.maker = given_vector(vault, principal.tenant, item["vector"])
        draft.given = True
        draft.spans = [(0, len(content))]
    return draft


def analyse(vault: Vault, draft: Draft) -> None:
    """Compute at write time what recall would otherwise compute at every read."""
    draft.lexemes = audit.canonical(text.lexemes(lead_in(draft) + draft.content, draft.tags))
    draft.tokens = vault.counter.count(draft.content)
    draft.traits = TRAIT_ASKS if asks(draft.content) else 0


_NOTE: Final = re.compile(r"\s*\[[^\[\]]*\]\s*$")


def asks(content: str) -> bool:
    """Whether a turn ends with a question mark, a bracketed note at its end left aside."""
    return _NOTE.sub("", content).rstrip().endswith(("?", "？"))


def hash_of(content: str) -> str:
    """sha256 of the stripped content, hex."""
    return hashlib.sha256(content.strip().encode()).hexdigest()


def strings(value: Any, name: str, limit: int) -> tuple[str, ...]:
    """A tuple of distinct, non-blank strings from None, a string or a list of strings."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        raise InvalidInput(f"{name} must be a list of strings, not {value!r}")
    out: dict[str, None] = {}
    for item in value:
        out[text.validate_text(item, name).strip()] = None
    if len(out) > limit:
        raise InvalidInput(f"{name} has {len(out)} entries; at most {limit} are allowed")
    return tuple(out)


def optional_text(value: Any, name: str) -> str | None:
    """A stripped string of at most 1,000 characters, or None."""
    if value is None:
        return None
    value = text.validate_text(value, name).strip()
    if len(value) > 1000:
        raise InvalidInput(f"{name} is {len(value)} characters long; at most 1000 are allowed")
    return str(value)


def depth(value: Any) -> int:
    """Levels of mappings and lists in each other, without recursion."""
    levels, inner = 0, [value]
    while held := [one for one in inner if isinstance(one, Mapping | list | tuple)]:
        levels += 1
        inner = [part for one in held for part in (one.values() if isinstance(one, Mapping) else one)]
    return levels


def metadata_json(value: Any) -> str:
    """Canonical JSON of a metadata mapping with string keys."""
    if value is None:
        return "{}"
    if not isinstance(value, Mapping):
        raise InvalidInput(f"metadata must be a mapping, not {type(value).__name__}")
    try:
        out = audit.canonical(dict(value))
        out.encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"metadata is not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput(f"metadata is nested too deeply; at most {MAX_DEPTH} levels are allowed") from None
    if len(out) > MAX_METADATA:
        raise InvalidInput(f"metadata is {len(out)} characters of JSON; at most {MAX_METADATA} are allowed")
    if depth(value) > MAX_DEPTH:
        raise InvalidInput(f"metadata is nested too deeply; at most {MAX_DEPTH} levels are allowed")
    if not all(isinstance(k, str) for k in value):
        raise InvalidInput("metadata keys must be strings")
    if "\\u0000" in out:
        raise InvalidInput("metadata has a NUL character; remove it")
    return out


# -- authorise --------------------------------------------------------------------------------------


def authorise_write(principal: Principal, namespace: str, memory_type: str) -> None:
    """PermissionDenied when this handle may not write this type there."""
    if not principal.writes(namespace, memory_type):
        raise PermissionDenied(
            f"agent {principal.agent_id!r} (role {principal.role_name}"
            f"{', read-only' if principal.read_only else ''}) may not write {memory_type!r} "
            f"in namespace {namespace!r}"
        )


def check_quota(writer: Writer) -> None:
    """QuotaExceeded when the agent has used up its writes; counted from the log, so reopening changes nothing."""
    quota = writer.principal.write_quota
    if quota is None:
        return
    used = writer.index.writes_by_agent.get(writer.principal.agent_id, 0) + writer.writes
    if used >= quota:
        raise QuotaExceeded(
            f"agent {writer.principal.agent_id!r} has used its quota of {quota} writes; "
            "make a handle with a larger write_quota"
        )
    writer.writes += 1


def sees(principal: Principal, known: Known) -> bool:
    """Whether a row exists for this writer; an erased one exists for nobody."""
    reach = reader(principal, ("*",))
    return not known.erased and reach.sees(
        known.namespace, known.memory_type, known.visibility, known.agent_id
    )


def may_close(principal: Principal, known: Known) -> bool:
    """Whether this writer may end the row's validity by a newer fact."""
    return sees(principal, known) and principal.may("supersede") and principal.writes(known.namespace, None)


def check_parents(principal: Principal, ledger: Ledger, draft: Draft) -> None:
    for parent in draft.derived_from:
        known = ledger.newest(parent)
        if known is None or not sees(principal, known):
            raise NotFound(f"derived_from names {parent!r}, which is not a memory in this handle's scope")


# -- dedupe -----------------------------------------------------------------------------------------


def duplicate_of(principal: Principal, ledger: Ledger, draft: Draft) -> Known | None:
    """The row that already says this, if there is one.

    It is known, holds as long as this would, is visible to the writer, and equal in tenant, namespace,
    visibility (author too if private), type, key, speaker, session, event date, valid_from and content.
    """
    if draft.supersedes:
        return None
    ends = OPEN if draft.valid_to is None else draft.valid_to
    for known in reversed(ledger.same_hash(draft.namespace, draft.content_hash)):
        default_start = known.recorded_at if known.event_at is None else known.event_at
        # A corrected version keeps the start of the version it corrects, which counts as its default too.
        same_start = (
            known.valid_from == draft.valid_from
            if draft.valid_from is not None
            else known.valid_from == default_start or known.version > 1
        )
        if (
            not known.closed
            and known.valid_to == ends
            and known.visibility == draft.visibility
            and (known.visibility != Visibility.PRIVATE or known.agent_id == principal.agent_id)
            and known.memory_type == draft.memory_type
            and known.key == draft.key
            and known.speaker == draft.speaker
            and known.session_id == draft.session_id
            and known.event_at == draft.event_at
            and same_start
            and sees(principal, known)
        ):
            return known
    return None


def merge(writer: Writer, ledger: Ledger, twin: Known, draft: Draft) -> Stored:
    """Nothing to do when the duplicate has it all; else a new version with the second write's additions."""
    old = row_of(writer, ledger, twin.ordinal)
    tags = tuple(dict.fromkeys((*old.tags, *draft.tags)))
    metadata = audit.canonical({**reads_stored(json.loads)(old.metadata), **json.loads(draft.metadata)})
    keys = {entity_key(e) for e in old.entities}
    entities = (*old.entities, *(e for e in draft.entities if entity_key(e) not in keys))
    pinned = old.pinned or draft.pinned
    if (tags, metadata, entities, pinned) == (old.tags, old.metadata, old.entities, old.pinned):
        return Stored(twin.ordinal, False)
    check_quota(writer)
    merged = replace(
        draft,
        tags=tags,
        metadata=metadata,
        entities=entities,
        pinned=pinned,
        memory_type=old.memory_type,
        confidence=max(old.confidence, draft.confidence),
        source_id=old.source_id or draft.source_id,
        derived_from=tuple(dict.fromkeys((*old.derived_from, *draft.derived_from))),
    )
    analyse(writer.vault, merged)
    known = new_version(writer, ledger, twin, merged, old.valid_from)
    return Stored(known.ordinal, False)


# -- embed ------------------------------------------------------------------------------------------


def embed(vault: Vault, principal: Principal, drafts: Sequence[Draft]) -> None:
    """Give every draft its windows and vectors. Long texts are split, nothing is cut off."""
    if vault.embedder_of(principal.tenant) is None:
        return
    _, embedder = vault.checked_encoder(vault.index(principal.tenant))
    assert embedder is not None
    _embed(embedder, drafts)


def embed_anew(writer: Writer, drafts: Sequence[Draft]) -> None:
    """Embed again what a re-embedding has overtaken: it became current since the drafts were embedded."""
    generation, embedder = writer.vault.encoder(writer.index)
    if generation is None or embedder is None or generation.fingerprint != embedder.fingerprint:
        return
    stale = [draft for draft in drafts if draft.data is not None and draft.maker != embedder.fingerprint]
    for draft in stale:
        if draft.given:
            raise EmbedderMismatch(
                f"the vector given is one of {draft.maker}, but the store was re-embedded with "
                f"{embedder.fingerprint} just now; give one of that"
            )
        draft.data, draft.spans = None, []
    _embed(embedder, stale)


def _embed(embedder: Embedder, drafts: Sequence[Draft]) -> None:
    texts: list[str] = []
    owners: list[Draft] = []
    for draft in drafts:
        if draft.data is not None or draft.bare:
            continue
        lead = lead_in(draft)
        room = max(16, embedder.max_tokens - (embedder.count_tokens(lead) if lead else 0))
        if len(draft.content) <= room // 8:
            draft.spans = [(0, len(draft.content))]  # too short to need counting: a token has a character
        else:
            spans = embedder.token_spans(draft.content)
            draft.spans = text.windows(draft.content, spans, room, WINDOW_OVERLAP)
        for start, stop in draft.spans:
            texts.append(lead + draft.content[start:stop])
            owners.append(draft)
    if not texts:
        return
    data, codes = embed_texts(embedder, texts, [len(owner.spans) == 1 for owner in owners])
    at = 0
    for draft in drafts:
        if draft.data is None and not draft.bare:
            draft.data = data[at : at + len(draft.spans)]
            draft.codes = codes[at : at + len(draft.spans)]
            draft.maker = embedder.fingerprint
            at += len(draft.spans)


def embed_texts(
    embedder: Embedder, texts: Sequence[str], coded: Sequence[bool]
) -> tuple[npt.NDArray[np.float32], tuple[bytes, ...]]:
    """Vectors of the texts, and the token codes of those marked, of one pass; b"" without codes."""
    coding = code_embedder(embedder) if any(coded) else None
    if coding is None:
        return _checked(embedder, embedder.embed_documents(texts), len(texts)), (b"",) * len(texts)
    made, found = coding.embed_documents_with_codes(texts)
    data = _checked(embedder, made, len(texts))
    codes = tuple(
        document_codes(text, one) if wanted else b""
        for text, one, wanted in zip(texts, found, coded, strict=True)
    )
    return data, codes


def _checked(embedder: Embedder, rows: Any, count: int) -> npt.NDArray[np.float32]:
    """What an embedder gave, if it is vectors: of anything else, once committed, no index could be made."""
    return checked_rows(rows, count, embedder.dimension, embedder.name)


def lead_in(draft: Draft) -> str:
    """What stands before this draft's content in the embedded text."""
    return lead_in_of(draft.event_at, draft.speaker)


def lead_in_of(event_at: int | None, speaker: str | None) -> str:
    """What stands before the content in the embedded text: "[date] speaker: ", as far as known.

    With the day and the speaker inside, the vector alone finds nearly twice the evidence (QUALITY.md).
    """
    lead = "" if event_at is None else f"[{instant_in_words(event_at)}] "
    return lead if speaker is None else f"{lead}{speaker}: "


def instant_in_words(us: int) -> str:
    """An instant in the words that questions about a time use: 1:56 pm on 8 May, 2023 (midnight: the day only)."""
    day = from_us(us)
    date = f"{day.day} {_MONTHS[day.month - 1]}, {day.year}"
    if us % DAY == 0:
        return date
    return f"{day.hour % 12 or 12}:{day.minute:02d} {'am' if day.hour < 12 else 'pm'} on {date}"


_MONTHS: Final = (
    "January February March April May June July August September October November December"
).split()


def given_vector(vault: Vault, tenant: str, value: Any) -> tuple[npt.NDArray[np.float32], str]:
    """A vector supplied by the caller instead of the embedder's, float32 (1, dim), and whose it is taken for."""
    embedder = vault.embedder_of(tenant)
    if embedder is None:
        raise InvalidInput("vector= needs a handle with an embedder, whose dimension and fingerprint it has")
    return unit_vector(value, embedder.dimension, "vector")[None, :], embedder.fingerprint


# -- supersede --------------------------------------------------------------------------------------


def supersessions(
    vault: Vault,
    principal: Principal,
    ledger: Ledger,
    draft: Draft,
    new_id: str,
    new_ordinal: int,
    start: int,
) -> list[Decision]:
    """Which memories end because of this one, in the order explicit, key, automatic rule."""
    decisions: list[Decision] = []
    taken: set[int] = {new_ordinal}
    for old_id in draft.supersedes:
        known = ledger.newest(old_id)
        if known is None or not sees(principal, known):
            raise NotFound(f"supersedes names {old_id!r}, which is not a memory in this handle's scope")
        if not may_close(principal, known):
            raise PermissionDenied(
                f"agent {principal.agent_id!r} (role {principal.role_name}) may not supersede {old_id!r}"
            )
        if known.closed:
            raise InvalidInput(f"{old_id!r} is forgotten and cannot be superseded; restore it first")
        check_successor(known, draft.namespace, draft.visibility, principal.agent_id)
        if known.ordinal not in taken:
            taken.add(known.ordinal)
            at = max(start, known.valid_from)
            decisions.append(Decision("explicit", known.id, known.ordinal, new_id, at, "named by the writer"))
    if draft.key is not None:
        rivals = [
            k for k in ledger.same_key(draft.namespace, draft.key) if k.content_hash != draft.content_hash
        ]
        decisions += by_time("key", principal, rivals, taken, new_id, new_ordinal, start, draft)
    if draft.frame is not None and vault.auto_supersede:
        rivals, unsure = [], []
        for known in ledger.same_frame(draft.namespace, frame_name(draft.frame)):
            older = frames.Frame(draft.frame.entity, draft.frame.attribute, known.value or "")
            verdict = frames.contradicts(older, draft.frame)
            if verdict == frames.Verdict.CONTRADICTS:
                rivals.append(known)
            elif verdict == frames.Verdict.UNSURE:
                unsure.append(known)
        decisions += by_time("frame", principal, rivals, taken, new_id, new_ordinal, start, draft)
        decisions += [
            Decision("frame", k.id, k.ordinal, new_id, start, "values of different kinds", False)
            for k in unsure
            if not k.closed and k.valid_to == OPEN and sees(principal, k)
        ]
    return decisions


def wider(visibility: str, agent_id: str, than: str, than_by: str) -> bool:
    """Whether some who see a row of this visibility and author would not see one of the other's."""
    widths = list(Visibility)
    if visibility == than == Visibility.PRIVATE:
        return agent_id != than_by
    return widths.index(Visibility(visibility)) < widths.index(Visibility(than))


def check_successor(old: Known, namespace: str, visibility: str, agent_id: str) -> None:
    """InvalidInput when a memory of this namespace, visibility and author cannot take the old one's place."""
    if old.namespace != namespace:
        raise InvalidInput(
            f"supersession works within one namespace; {old.id!r} is in {old.namespace!r}, "
            f"the newer memory in {namespace!r}"
        )
    if wider(old.visibility, old.agent_id, visibility, agent_id):
        raise InvalidInput(
            f"{old.id!r} is visible to more readers than the newer memory, who would be left with neither; "
            "make the newer one as visible, or forget the older one"
        )


def frame_name(frame: frames.Frame) -> str:
    """The index's name for [entity, attribute]."""
    return f"{frame.entity}\x1f{frame.attribute}"


def by_time(
    rule: str,
    principal: Principal,
    rivals: Sequence[Known],
    taken: set[int],
    new_id: str,
    new_ordinal: int,
    start: int,
    draft: Draft,
) -> list[Decision]:
    """End the rivals valid at `start` there; let the new fact end where the next rival begins."""
    decisions: list[Decision] = []
    following: Known | None = None
    for known in rivals:
        if known.closed or known.ordinal in taken or not sees(principal, known):
            continue
        if known.valid_from > start:
            if wider(draft.visibility, principal.agent_id, known.visibility, known.agent_id):
                continue  # those who do not see the later fact go by this one
            if following is None or (known.valid_from, known.ordinal) < (
                following.valid_from,
                following.ordinal,
            ):
                following = known
            continue
        if known.valid_to <= start:
            continue
        objection = None
        if not may_close(principal, known):
            objection = "the writer may not supersede it"
        elif wider(known.visibility, known.agent_id, draft.visibility, principal.agent_id):
            objection = "it is visible to more readers than the newer one"
        elif rule == "frame" and known.pinned:
            objection = "it is pinned"
        elif rule == "frame" and known.confidence > draft.confidence:
            objection = "it has a higher confidence"
        taken.add(known.ordinal)
        reason = f"same {'key' if rule == 'key' else 'statement'}, another value"
        decisions.append(
            Decision(rule, known.id, known.ordinal, new_id, start, objection or reason, objection is None)
        )
    if following is not None and draft.valid_to is None:
        # A fact that arrives late holds only until the next one known about the same thing begins.
        decisions.append(
            Decision(rule, new_id, new_ordinal, following.id, following.valid_from, "arrived late")
        )
    return decisions


def apply_decision(writer: Writer, ledger: Ledger, decision: Decision) -> None:
    if decision.applied:
        known = ledger.known(decision.old_ordinal)
        end(writer, known, decision.at, decision.new_id, decision.rule, decision.reason)
        return
    writer.event(
        Kind.SUGGEST,
        namespace=ledger.known(decision.old_ordinal).namespace,
        ordinal=decision.old_ordinal,
        payload={"rule": decision.rule, "by": decision.new_id, "at": decision.at, "reason": decision.reason},
    )


def end(
    writer: Writer, known: Known, at: int, by: str | None, rule: str, reason: str, *, alone: bool = False
) -> None:
    """End a row's valid time at `at`. alone: no other event of the commit counts as the agent's write."""
    payload = {"at": at, "by": by, "rule": rule, "reason": reason}
    writer.event(
        Kind.SUPERSEDE,
        namespace=known.namespace,
        ordinal=known.ordinal,
        payload=payload | {"alone": True} if alone else payload,
    )
    known.valid_to = min(known.valid_to, at)


# -- rows -------------------------------------------------------------------------------------------


def insert(
    writer: Writer,
    ledger: Ledger,
    kind: Kind,
    draft: Draft,
    memory_id: str,
    version: int,
    recorded: int,
    start: int,
    *,
    payload: Any = None,
) -> Known:
    """Append a draft as a row of this commit."""
    generation = None
    if draft.data is not None:
        generation = writer.generation().number
    frame = None if draft.frame is None else audit.canonical(list(draft.frame))
    row = Row(
        ordinal=writer.next_ordinal,
        seq=writer.next_seq,
        id=memory_id,
        version=version,
        namespace=draft.namespace,
        content=draft.content,
        memory_type=draft.memory_type,
        tags=draft.tags,
        entities=draft.entities,
        key=draft.key,
        frame=frame,
        confidence=draft.confidence,
        pinned=draft.pinned,
        metadata=draft.metadata,
        event_at=draft.event_at,
        speaker=draft.speaker,
        visibility=draft.visibility,
        source_id=draft.source_id,
        content_hash=draft.content_hash,
        recorded_at=recorded,
        agent_id=writer.principal.agent_id,
        agent_role=writer.principal.role_name,
        session_id=draft.session_id,
        derived_from=draft.derived_from,
        valid_from=start,
        tokens=draft.tokens,
        traits=draft.traits,
        lexemes=draft.lexemes,
        generation=generation,
    )
    vectors: Vectors | None = None
    if generation is not None:
        vectors = block(generation, row.ordinal, draft.spans, draft.data, draft.codes)
    writer.row(kind, row, vectors, payload=payload)
    value = None if draft.frame is None else draft.frame.value
    return ledger.add(row, None if draft.frame is None else frame_name(draft.frame), value)


def new_version(writer: Writer, ledger: Ledger, old: Known, draft: Draft, start: int) -> Known:
    """Append a corrected version of a memory, ending the old one's transaction time."""
    recorded = writer.now()
    known = insert(
        writer,
        ledger,
        Kind.UPDATE,
        draft,
        old.id,
        old.version + 1,
        recorded,
        start,
        payload={"closes": old.ordinal},
    )
    old.closed = True
    # What had ended the corrected version's validity ends the correction's too.
    for c in ledger.closings(old.ordinal):
        if c.axis == "valid":
            end(writer, known, c.at, c.by, "correction", "as the version before")
    return known


def row_of(writer: Writer, ledger: Ledger, ordinal: int) -> Row:
    """A stored row, or one of this commit."""
    row = ledger.rows.get(ordinal)
    return row if row is not None else writer.vault.store.rows(writer.principal.tenant, [ordinal])[0]


# -- corrections, retractions, relations ------------------------------------------------------------


def find(principal: Principal, ledger: Ledger, memory_id: str) -> Known:
    """The newest version of a memory that this handle may see. NotFound otherwise."""
    known = ledger.newest(memory_id)
    if known is None or not sees(principal, known):
        raise NotFound(f"no memory {memory_id!r} in this handle's scope")
    return known


def demand(principal: Principal, action: str, what: str) -> None:
    """PermissionDenied unless the handle may do this."""
    if not principal.may(action):
        raise PermissionDenied(
            f"agent {principal.agent_id!r} (role {principal.role_name}"
            f"{', read-only' if principal.read_only else ''}) may not {action} {what}"
        )


def update(
    vault: Vault, principal: Principal, namespace: str, memory_id: str, changes: Mapping[str, Any]
) -> Memory:
    """Correct a memory: a new version under the same id. Fields not named keep their values."""
    allowed = set(FIELDS) - {"namespace", "supersedes", "vector", "valid_to"}
    unknown = sorted(set(changes) - allowed)
    if unknown:
        raise InvalidInput(f"update cannot change {unknown[0]!r}; it can change {', '.join(sorted(allowed))}")
    index = vault.index(principal.tenant)
    with index.lock:
        known = find(principal, Ledger(index), memory_id)
    old = vault.store.rows(principal.tenant, [known.ordinal])[0]
    item = {
        "content": old.content,
        "tags": old.tags,
        "memory_type": old.memory_type,
        "namespace": old.namespace,
        "entities": old.entities if "content" not in changes else (),
        "key": old.key,
        "confidence": old.confidence,
        "pinned": old.pinned,
        "metadata": reads_stored(json.loads)(old.metadata),
        "event_date": None if old.event_at is None else from_us(old.event_at),
        "speaker": old.speaker,
        "visibility": old.visibility,
        "source_id": old.source_id,
        "session_id": old.session_id,
        "derived_from": old.derived_from,
        **changes,
    }
    draft = validate(vault, principal, namespace, item)
    draft.bare = stored_bare(vault, index, old)
    hides = wider(old.visibility, old.agent_id, draft.visibility, principal.agent_id)
    if hides and old.agent_id != principal.agent_id and not principal.may("forget"):
        raise PermissionDenied(
            f"agent {principal.agent_id!r} (role {principal.role_name}) may not hide {memory_id!r}, "
            f"which {old.agent_id!r} wrote, from others"
        )
    embed(vault, principal, [draft])
    with vault.write(principal) as writer:
        embed_anew(writer, [draft])
        ledger = Ledger(writer.index)
        newest = find(principal, ledger, memory_id)
        if newest.closed:
            raise InvalidInput(f"{memory_id!r} is forgotten; restore it before correcting it")
        if newest.ordinal != old.ordinal:
            raise InvalidInput(f"{memory_id!r} was corrected by another writer just now; read it again")
        check_quota(writer)
        start = corrected_start(ledger, newest, draft)
        ordinal = new_version(writer, ledger, newest, draft, start).ordinal
    return memories(vault, principal.tenant, vault.index(principal.tenant).view(), [ordinal], vault.now())[0]


def stored_bare(vault: Vault, index: TenantIndex, row: Row) -> bool:
    """Whether a row was stored without vectors on purpose, and no re-embedding has given it any since."""
    current = index.current_generation()
    if current is None or row.generation is not None:
        return False
    others = any(g.seq is not None and g.seq < row.seq for g in index.generations)
    return others and not len(vault.store.vectors_of(index.tenant, current.number, [row.ordinal]))


def corrected_start(ledger: Ledger, old: Known, draft: Draft) -> int:
    """When a corrected memory begins: as before, unless valid_from, or the date it began by, is corrected too."""
    start = old.valid_from
    if draft.valid_from is not None:
        start = draft.valid_from
    elif draft.event_at is not None and old.valid_from == old.event_at:
        start = draft.event_at
    end_at = min((c.at for c in ledger.closings(old.ordinal) if c.axis == "valid"), default=OPEN)
    if start != old.valid_from and start >= end_at:
        raise InvalidInput(f"valid_from {iso(start)} is not before the end of its validity, {iso(end_at)}")
    return start


def forget(vault: Vault, principal: Principal, memory_id: str) -> Memory:
    """Retract a memory: its transaction time ends; `restore` undoes it."""
    demand(principal, "forget", repr(memory_id))
    with vault.write(principal) as writer:
        known = find(principal, Ledger(writer.index), memory_id)
        if known.closed:
            raise NotFound(f"{memory_id!r} is forgotten already")
        check_quota(writer)
        writer.event(
            Kind.FORGET, namespace=known.namespace, ordinal=known.ordinal, payload={"rule": "forget"}
        )
    view = vault.index(principal.tenant).view()
    return memories(vault, principal.tenant, view, [known.ordinal], vault.now())[0]


def restore(vault: Vault, principal: Principal, memory_id: str) -> Memory:
    """Undo the last retraction of a memory, or else its supersession."""
    demand(principal, "restore", repr(memory_id))
    with vault.write(principal) as writer:
        ledger = Ledger(writer.index)
        known = find(principal, ledger, memory_id)
        standing = ledger.closings(known.ordinal)
        known_axis = [c for c in standing if c.axis == "known"]
        chosen = known_axis or [c for c in standing if c.axis == "valid"]
        if not chosen:
            raise InvalidInput(
                f"{memory_id!r} is neither forgotten nor superseded; there is nothing to restore"
            )
        check_quota(writer)
        writer.event(
            Kind.RESTORE,
            namespace=known.namespace,
            ordinal=known.ordinal,
            payload={"voids": [c.seq for c in chosen]},
        )
        if any(c.kind == Kind.ARCHIVE for c in chosen):
            # It was archived for want of use, and whoever brings it back uses it: else it would be hidden still.
            writer.event(Kind.ACCESS, payload={"o": [known.ordinal], "t": [vault.now()]})
    view = vault.index(principal.tenant).view()
    return memories(vault, principal.tenant, view, [known.ordinal], vault.now())[0]


def supersede(
    vault: Vault, principal: Principal, old_id: str, new_id: str, *, at: int | None, dry_run: bool
) -> Decision:
    """End one memory's validity in favour of another that is already stored."""
    demand(principal, "supersede", repr(old_id))

    def decide(ledger: Ledger) -> Decision:
        old, new = find(principal, ledger, old_id), find(principal, ledger, new_id)
        if old.id == new.id:
            raise InvalidInput("a memory cannot supersede itself; use update to correct it")
        check_successor(old, new.namespace, new.visibility, new.agent_id)
        if not may_close(principal, old):
            raise PermissionDenied(
                f"agent {principal.agent_id!r} (role {principal.role_name}) may not supersede {old_id!r}"
            )
        if old.closed or new.closed:
            raise InvalidInput("a forgotten memory cannot take part in a supersession; restore it first")
        moment = max(old.valid_from, new.valid_from) if at is None else at
        if moment < old.valid_from:
            raise InvalidInput(f"{old_id!r} begins at {iso(old.valid_from)}; it cannot end before that")
        return Decision("explicit", old.id, old.ordinal, new.id, moment, "named by the writer")

    if dry_run:
        index = vault.index(principal.tenant)
        with index.lock:
            return decide(Ledger(index))
    with vault.write(principal) as writer:
        ledger = Ledger(writer.index)
        decision = decide(ledger)
        check_quota(writer)
        old = ledger.known(decision.old_ordinal)
        end(writer, old, decision.at, decision.new_id, decision.rule, decision.reason, alone=True)
    return decision


def link(vault: Vault, principal: Principal, a: str, b: str, relation: str, weight: Any) -> None:
    """Relate two memories; the relation is an edge of the graph."""
    demand(principal, "link", f"{a!r} and {b!r}")
    relation = text.validate_text(relation, "relation").strip()
    if len(relation) > MAX_RELATION:
        raise InvalidInput(f"relation must be 1 to {MAX_RELATION} characters, not {relation!r}")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or weight != weight:  # NaN
        raise InvalidInput(f"weight must be a finite number, not {weight!r}")
    if not 0.0 < weight <= 1000.0:
        raise InvalidInput(f"weight must be in (0, 1000], not {weight!r}")
    with vault.write(principal) as writer:
        ledger = Ledger(writer.index)
        first, second = find(principal, ledger, a), find(principal, ledger, b)
        if first.id == second.id:
            raise InvalidInput("a memory cannot be linked to itself")
        for known in (first, second):
            if not principal.writes(known.namespace, None):
                raise PermissionDenied(
                    f"agent {principal.agent_id!r} (role {principal.role_name}) may not link memories of "
                    f"namespace {known.namespace!r}"
                )
        check_quota(writer)
        writer.event(
            Kind.LINK,
            namespace=first.namespace,
            ordinal=first.ordinal,
            payload={"a": first.id, "b": second.id, "relation": relation, "weight": float(weight)},
        )


def flag(vault: Vault, principal: Principal, memory_id: str, reason: str) -> None:
    """Ask for a review of a memory; the request is in the log."""
    demand(principal, "flag", repr(memory_id))
    reason = text.validate_text(reason, "reason").strip()
    with vault.write(principal) as writer:
        known = find(principal, Ledger(writer.index), memory_id)
        check_quota(writer)
        writer.event(Kind.FLAG, namespace=known.namespace, ordinal=known.ordinal, payload={"reason": reason})
