"""Counts and latencies of a server in the Prometheus text format (version 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Requests by route and status, their durations by route, how many are under way, and what was refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._durations: dict[str, list[int]] = {}  # per bucket, the last one for +Inf
        self._sums: dict[str, float] = {}
        self._counters = {"rate_limited": 0, "unauthorized": 0, "failures": 0, "maintenance_runs": 0}
        self.under_way = 0

    def begin(self) -> None:
        """A request came in."""
        with self._lock:
            self.under_way += 1

    def end(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self.under_way -= 1
            self._requests[route, status] = self._requests.get((route, status), 0) + 1
            buckets = self._durations.setdefault(route, [0] * (len(BOUNDS) + 1))
            buckets[bisect_left(BOUNDS, seconds)] += 1
            self._sums[route] = self._sums.get(route, 0.0) + seconds

    def count(self, name: str) -> None:
        """One more of a kind."""
        with self._lock:
            self._counters[name] += 1

    def text(self) -> str:
        """Everything, in a stable order."""
        with self._lock:
            lines = [
                "# HELP twofold_requests_total Requests answered.",
                "# TYPE twofold_requests_total counter",
            ]
            for (route, status), n in sorted(self._requests.items()):
                lines.append(f'twofold_requests_total{{route="{route}",status="{status}"}} {n}')
            lines += [
                "# HELP twofold_request_seconds Time from the request line to the last byte of the answer.",
                "# TYPE twofold_request_seconds histogram",
            ]
            for route, buckets in sorted(self._durations.items()):
                total = 0
                for bound, n in zip((*map(str, BOUNDS), "+Inf"), buckets, strict=True):
                    total += n
                    lines.append(f'twofold_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}')
                lines.append(f'twofold_request_seconds_sum{{route="{route}"}} {self._sums[route]:.6f}')
                lines.append(f'twofold_request_seconds_count{{route="{route}"}} {total}')
            for name, n in sorted(self._counters.items()):
                lines += [f"# TYPE twofold_{name}_total counter", f"twofold_{name}_total {n}"]
            lines += [
                "# TYPE twofold_requests_under_way gauge",
                f"twofold_requests_under_way {self.under_way}",
            ]
        return "\n".join(lines) + "\n"
