"""Every exception Twofold raises, in one tree.

TwofoldError
├── InvalidInput          a value is malformed; nothing was written
├── NotFound              no such memory, receipt or file in this scope
├── PermissionDenied      the handle's role or scope does not allow it
│   └── QuotaExceeded     the agent has used up its writes
├── StoreError            the database could not do what was asked
│   ├── StoreBusy         another writer held the lock for too long
│   ├── StoreCorrupt      what is stored contradicts itself
│   └── StoreTooNew       a newer Twofold wrote this store
├── EmbeddingError        a text could not be turned into a vector
│   ├── EmbedderMismatch  the store's vectors come from another embedder
│   └── EmbedderUnavailable  no model is installed, or its package is missing
├── BudgetError           the token budget cannot hold anything
└── ReplayUnsupported     the receipt was made by other rules than these
"""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "EmbedderMismatch",
    "EmbedderUnavailable",
    "EmbeddingError",
    "InvalidInput",
    "NotFound",
    "PermissionDenied",
    "QuotaExceeded",
    "ReplayUnsupported",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreTooNew",
    "TwofoldError",
]


class TwofoldError(Exception):
    """Base of every exception raised on purpose by Twofold."""


class InvalidInput(TwofoldError, ValueError):
    """A value given by the caller is malformed; nothing was written."""


class NotFound(TwofoldError, LookupError):
    """No such memory, receipt or file within the handle's scope."""


class PermissionDenied(TwofoldError, PermissionError):
    """The handle's role, tenant, namespaces or read-only state does not allow the action."""


class QuotaExceeded(PermissionDenied):
    """The agent has used up the number of writes it was granted."""


class StoreError(TwofoldError):
    """The database could not do what was asked."""


class StoreBusy(StoreError):
    """Another writer held the lock for longer than the busy timeout."""


class StoreCorrupt(StoreError):
    """What is stored contradicts itself; the message names where."""


class StoreTooNew(StoreError):
    """The store's format version is newer than this Twofold can read."""


class EmbeddingError(TwofoldError):
    """A text could not be turned into a vector."""


class EmbedderMismatch(EmbeddingError):
    """The store's vectors were made by another embedder; `reembed` is the remedy."""


class EmbedderUnavailable(EmbeddingError):
    """The embedder's weights or package are not installed; the message names the command."""


class BudgetError(TwofoldError, ValueError):
    """The token budget is malformed or cannot hold even a truncated item."""


class ReplayUnsupported(TwofoldError):
    """A receipt was made under other rules (algorithm fingerprint) than this build's."""
