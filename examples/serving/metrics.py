"""Counts of a server, in the text format of Prometheus."""

import bisect
from collections import Counter
from typing import Any

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Metrics:
    """Requests by route and status, and how long those took that were answered."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._slots = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is one of a few names, never what a client wrote."""
        self._requests[route, status] += 1
        if status == 200:
            self._slots[bisect.bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds

    def text(self, held: int, batching: Any) -> str:
        """All of them, the bytes of bodies that are held now, and, if requests are collected, calls and samples."""
        lines = ["# TYPE zeropoint_requests_total counter"]
        for (route, status), number in sorted(self._requests.items()):
            lines.append(f'zeropoint_requests_total{{route="{route}",status="{status}"}} {number}')
        lines.append("# TYPE zeropoint_request_seconds histogram")
        below = 0
        for bound, number in zip((*BOUNDS, "+Inf"), self._slots):
            below += number
            lines.append(f'zeropoint_request_seconds_bucket{{le="{bound}"}} {below}')
        lines += [f"zeropoint_request_seconds_sum {self._seconds}", f"zeropoint_request_seconds_count {below}"]
        lines += ["# TYPE zeropoint_bytes_held gauge", f"zeropoint_bytes_held {held}"]
        for name in ("calls", "samples") if hasattr(batching, "calls") else ():
            lines += [f"# TYPE zeropoint_program_{name}_total counter"]
            lines += [f"zeropoint_program_{name}_total {getattr(batching, name)}"]
        return "\n".join(lines) + "\n"
