"""Errors over HTTP: problem+json (RFC 9457) that names the exception of `twofold.errors`, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from twofold import errors
from twofold.errors import TwofoldError
from twofold.serve.schema import Schema, object_of

MEDIA_TYPE: Final = "application/problem+json"

# The most special class first. Anything else of the tree is the server's fault.
STATUS: Final[dict[type[TwofoldError], int]] = {
    errors.QuotaExceeded: 429,
    errors.PermissionDenied: 403,
    errors.NotFound: 404,
    errors.InvalidInput: 422,
    errors.BudgetError: 422,
    errors.EmbedderMismatch: 409,
    errors.ReplayUnsupported: 409,
    errors.StoreBusy: 503,
    errors.EmbedderUnavailable: 503,
}
# Messages of these may name files or addresses of the server.
SECRET: Final = (errors.StoreError, errors.EmbeddingError)
TOLD: Final = (errors.EmbedderMismatch,)

SCHEMA: Final[Schema] = object_of(
    {
        "type": {"type": "string", "description": "urn:twofold:error:<error>"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {"type": "string", "enum": list(errors.__all__)},
        "reference": {"type": "string", "description": "names the entry in the server's log"},
    },
    ("type", "title", "status", "detail", "error"),
)


class Refused(TwofoldError):
    """A request refused by the server itself: which exception it is to the client, a status, and when to retry."""

    def __init__(
        self, kind: type[TwofoldError], status: int, detail: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after


def invalid(status: int, detail: str) -> Refused:
    """A request that cannot be read."""
    return Refused(errors.InvalidInput, status, detail)


def busy(status: int, detail: str, retry_after: float) -> Refused:
    """A request that may come again later."""
    return Refused(errors.StoreBusy, status, detail, retry_after=retry_after)


def status_of(error: TwofoldError) -> int:
    """The HTTP status of an exception."""
    if isinstance(error, Refused):
        return error.status
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)


def problem(
    error: TwofoldError | None, reference: str | None = None
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers; None is an error that is not Twofold's, of which nothing is told."""
    status = 500 if error is None else status_of(error)
    kind = error.kind if isinstance(error, Refused) else type(error) if error is not None else TwofoldError
    detail = str(error)
    if error is None or (isinstance(error, SECRET) and not isinstance(error, TOLD)):
        detail = _UNTOLD.get(kind, "the server failed; its log has the reference")
    body = {
        "type": f"urn:twofold:error:{kind.__name__}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "error": kind.__name__,
    }
    if reference is not None:
        body["reference"] = reference
    headers = {}
    after = error.retry_after if isinstance(error, Refused) else 1.0 if status == 503 else None
    if after is not None:
        headers["retry-after"] = str(max(1, math.ceil(after)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return status, body, headers


_UNTOLD: Final[dict[type[TwofoldError], str]] = {
    errors.StoreBusy: "another writer held the store for too long; try again",
    errors.EmbedderUnavailable: "the server's embedder is not available; its log has the reference",
}


def exception(status: int, body: Any) -> TwofoldError:
    """The exception that a problem document stands for."""
    name = body.get("error") if isinstance(body, Mapping) else None
    detail = body.get("detail") if isinstance(body, Mapping) else None
    if name in errors.__all__:
        kind: type[TwofoldError] = getattr(errors, name)
    else:
        by_status = {401: errors.PermissionDenied, 403: errors.PermissionDenied, 404: errors.NotFound}
        by_status |= {429: errors.QuotaExceeded, 503: errors.StoreBusy, 504: errors.StoreBusy}
        fallback: type[TwofoldError] = errors.InvalidInput if 400 <= status < 500 else errors.StoreError
        kind = by_status.get(status, fallback)
    return kind(detail or f"the server answered {status}")
