"""Installed models other than the default one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def open_model() -> Callable[..., Any]:
    """`open_embedder`, but a model that is not installed skips the test and says how to get it."""
    from twofold.embed import open_embedder
    from twofold.errors import EmbedderUnavailable

    def opened(spec: str, **options: Any) -> Any:
        try:
            return open_embedder(spec, **options)
        except EmbedderUnavailable as missing:
            pytest.skip(str(missing))

    return opened
