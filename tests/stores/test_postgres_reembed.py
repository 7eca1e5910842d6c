"""Re-embedding on PostgreSQL, with vectors in RAM and in the server: the courses of tests/test_reembed.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from tests import test_reembed as courses
from tests.stores import pg

from twofold import maintain

pytestmark = pytest.mark.skipif(pg.why_not() is not None, reason=str(pg.why_not()))


@pytest.mark.parametrize("mode", ["local", "pushdown"])
@pytest.mark.parametrize("course", [courses.while_others_use_it, courses.after_a_kill, courses.two_at_a_time])
def test_on_postgres(
    tmp_path: Path, course: Callable[[Any, Path], None], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "pushdown":
        if not pg.has("vector"):
            pytest.skip("needs a server with the extension vector")
        pg.shared().extend("vector")
    monkeypatch.setattr(maintain, "REEMBED_BATCH", 32)
    course(pg.address(tmp_path, mode=mode), tmp_path / "copy")
