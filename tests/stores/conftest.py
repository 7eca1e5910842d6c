"""Failing assertions of the shipped suite explain themselves, as those of tests do."""

import pytest

pytest.register_assert_rewrite("twofold.testing")
