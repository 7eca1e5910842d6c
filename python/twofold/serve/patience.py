"""A limit on how long a client may take to say what it wants. uvicorn has none before the headers are complete."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def patient(seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's own HTTP protocol, which ends connections whose request line and headers take longer than that.

    Without it, sockets with half a header would stay open for ever, and cost a descriptor each. How long a body
    may take is the server's `timeout`; how long a connection may idle between requests, uvicorn's.
    """

    class Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, self._give_up)

        def data_received(self, data: bytes) -> None:
            if self._waiting() and self._late.cancelled():  # the next request of a connection that is kept
                self._late = self.loop.call_later(seconds, self._give_up)
            super().data_received(data)
            if not self._waiting():
                self._late.cancel()

        def connection_lost(self, error: Exception | None) -> None:
            self._late.cancel()
            super().connection_lost(error)

        def _waiting(self) -> bool:
            """Whether no request is under way: none has begun, or the last one was answered."""
            return self.cycle is None or bool(self.cycle.response_complete)

        def _give_up(self) -> None:
            if self._waiting() and not self.transport.is_closing():
                self.transport.close()

    return Patient
