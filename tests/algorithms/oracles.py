"""Published sequences as step tables, to be run on the bare algorithms and through every store."""

import dataclasses
from collections.abc import Callable
from typing import Any

from ratelimit_app.decision import Decision
from ratelimit_app.limits import LiveLimit
from ratelimit_app.policy import Policy


class Peek(int):
    """A cost that is only asked for, not taken."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Steps ``(at, cost, allowed, remaining, retry_after)``, in seconds.

    ``rates`` are the limits that all of the steps meet, as one decision; ``retry_after`` is ``None``
    where waiting never helps. A step may end with more fields of its decision, among them another key.
    """

    rates: tuple[str, ...]
    steps: list[tuple[Any, ...]]
    algorithm: str = "fixed_window"
    burst: int | None = None
    count_denied: bool = False

    @property
    def policies(self) -> list[Policy]:
        return [Policy.parse(rate, algorithm=self.algorithm, burst=self.burst) for rate in self.rates]

    @property
    def limits(self) -> list[LiveLimit]:
        return [
            LiveLimit(policy, space=policy.name, count_denied=self.count_denied) for policy in self.policies
        ]


def play(table: Table, ask: Callable[[float, int, str], Decision]) -> list[tuple[Any, ...]]:
    """Take the steps of a table by ``ask(at, cost, key)``; return them with what came of them."""
    steps = []
    for at, cost, _, _, _, *more in table.steps:
        fields = more[0] if more else {}
        decision = ask(at, cost, fields.get("key", "k"))
        met = {name: getattr(decision, name) for name in fields}
        came = at, cost, decision.allowed, decision.remaining, decision.retry_after
        steps.append((*came, met) if more else came)
    return steps


#: Sixty calls in the second before the edge of a minute, and sixty in the one after: instants from the edge.
_BEFORE = [round(-1 + 0.016 * call, 3) for call in range(60)]
_AFTER = [round(0.016 * call, 3) for call in range(60)]


def _boundary(algorithm: str, after: list[tuple[bool, int, float]]) -> Table:
    steps = [(at, 1, True, 59 - call, 0) for call, at in enumerate(_BEFORE)]
    steps += [(at, 1, *came) for at, came in zip(_AFTER, after, strict=True)]
    return Table(("60/min",), steps, algorithm)


BOUNDARY = {
    "the boundary: 120 by a fixed window": _boundary(
        "fixed_window", [(True, 59 - call, 0) for call in range(60)]
    ),
    "the boundary: 60 by a log": _boundary("sliding_log", [(False, 0, round(59 - at, 3)) for at in _AFTER]),
    "the boundary: 60 by a sliding window": _boundary(
        "sliding_window", [(False, 0, round(1 - at, 3)) for at in _AFTER]
    ),
    "the boundary: 61 by a bucket": _boundary(
        "token_bucket", [(True, 0, 0)] + [(False, 0, round(1 - at, 3)) for at in _AFTER[1:]]
    ),
}


FIXED_WINDOW = {
    "DRF: a fourth call": Table(
        ("3/min",),
        [(0, 1, True, 2, 0), (0, 1, True, 1, 0), (0, 1, True, 0, 0), (0, 1, False, 0, 60)],
    ),
    "DRF: every 20 s": Table(
        ("3/min",),
        [
            (0, 1, True, 2, 0),
            (20, 1, True, 1, 0),
            (40, 1, True, 0, 0),
            (60, 1, True, 2, 0),
            (80, 1, True, 1, 0),
        ],
    ),
    "throttled-py: mixed costs": Table(
        ("5/min",),
        [
            (0, Peek(1), True, 5, 0, {"used": 0}),
            (0, 1, True, 4, 0, {"used": 1}),
            (0, 4, True, 0, 0, {"used": 5}),
            (0, 4, False, 0, 60, {"used": 5}),
            (0, Peek(1), False, 0, 60, {"used": 5}),
        ],
    ),
    "the source's windows: every attempt is counted": Table(
        ("3/60s",),
        [(0, 1, True, 2, 0), (15, 1, True, 1, 0), (30, 1, True, 0, 0)]
        + [(45, 1, False, 0, 15, {"used": 4, "retry_after_seconds": 15})]
        + [(45, Peek(1), False, 0, 15, {"used": 4})] * 2
        + [(60, 1, True, 2, 0, {"used": 1})],
        count_denied=True,
    ),
    "limits: a cost that never fits takes nothing": Table(
        ("10 per 2 min",),
        [
            (0, 11, False, 10, None),
            (0, 5, True, 5, 0),
            (0, Peek(6), False, 5, 120),
            (0, 6, False, 5, 120),
            (0, 5, True, 0, 0),
            (0, 11, False, 0, None),
        ],
    ),
    "DRF: cost 9 twice under 10": Table(
        ("10/min",), [(0, 9, True, 1, 0), (0, 9, False, 1, 60), (0, 1, True, 0, 0)]
    ),
    "Symfony: every 5 s": Table(
        ("10/60s",),
        [(5 * i, 1, True, 9 - i, 0) for i in range(9)]
        + [(45, 1, True, 0, 0), (45, 1, False, 0, 15), (50, 1, False, 0, 10), (59.5, 1, False, 0, 0.5)]
        + [(60, 1, True, 9, 0)],
    ),
    "the wait at the end of a window": Table(
        ("1/min",),
        [
            (0, 1, True, 0, 0),
            (0, 1, False, 0, 60),
            (58.2, 1, False, 0, 1.8),
            (59.3, 1, False, 0, 0.7),
            (59.999, 1, False, 0, 0.001),
            (60, 1, True, 0, 0),
        ],
    ),
    "refused calls do not move the window": Table(
        ("1/min",),
        [(0, 1, True, 0, 0)]
        + [(at, 1, False, 0, 60 - at) for at in (10, 20, 30, 40, 50)]
        + [(60, 1, True, 0, 0)],
    ),
    "a clock that steps back over an edge grants what was left before it, once": Table(
        ("2/min",),
        [(0, 1, True, 1, 0), (0, 1, True, 0, 0), (-1, 1, True, 1, 0), (-1, 1, True, 0, 0)]
        + [(-1, 1, False, 0, 1), (0, 1, False, 0, 60)] * 3
        + [(60, 1, True, 1, 0)],
    ),
    "several: DRF 3/s and 6/min": Table(
        ("3/s", "6/min"),
        [
            (0, 1, True, 2, 0),
            (0, 1, True, 1, 0),
            (0, 1, True, 0, 0),
            (0, 1, False, 0, 1),
            (1, 1, True, 2, 0),
            (1, 1, True, 1, 0),
            (1, 1, True, 0, 0),
            (1, 1, False, 0, 59),
            (2, 1, False, 0, 58),
        ],
    ),
    "several: Symfony 4/1 s, 8/10 s and 16/30 s": Table(
        ("4/1s", "8/10s", "16/30s"),
        [
            (0, 4, True, 0, 0),
            (0, 1, False, 0, 1),
            (1, 3, True, 1, 0),
            (1, 1, True, 0, 0),
            (1, 1, False, 0, 9),
        ],
    ),
    "several: one that never fits": Table(
        ("2/s", "9/min"),
        [(0, 3, False, 2, None), (0, 2, True, 0, 0), (0, 3, False, 0, None), (1, 2, True, 0, 0)],
    ),
}

#: 100 a minute, burst 20: all at once, and then two calls each time that a token is back.
_SOURCE: list[tuple[Any, ...]] = [(0, 1, True, left, 0) for left in range(19, -1, -1)]
_SOURCE += [
    step
    for at in (round(0.6 * token, 1) for token in range(1, 101))
    for step in ((at, 1, True, 0, 0), (at, 1, False, 0, 0.6))
]

TOKEN_BUCKET = {
    "redis-cell: one a second, burst 5": Table(
        ("1/s",),
        [(0, 6, False, 5, None)]
        + [(0, 1, True, left, 0, {"reset_after": 5 - left}) for left in (4, 3, 2, 1, 0)]
        + [(0, 1, False, 0, 1), (3, 1, True, 2, 0), (3.1, 1, True, 1, 0, {"reset_after": 3.9})]
        + [(4, 1, True, 1, 0)]
        + [(8, 1, True, 4, 0), (9.5, 1, True, 4, 0), (9.5, Peek(1), True, 4, 0), (9.5, 2, True, 2, 0)]
        + [(9.5, 5, False, 2, 3), (15, 6, False, 5, None)],
        algorithm="token_bucket",
        burst=5,
    ),
    "throttled-py: 60 a minute, burst 10": Table(
        ("60/min",),
        [
            (0, Peek(1), True, 10, 0),
            (0, 1, True, 9, 0),
            (0, 10, False, 9, 1),
            (1, 5, True, 5, 0),
            (1, 8, False, 5, 3),
            (1, 5, True, 0, 0),
            (1, 1, False, 0, 1),
        ],
        algorithm="token_bucket",
        burst=10,
    ),
    "bucket4j: 100 per 100 s, 70 left": Table(
        ("100/100s",),
        [(0, 30, True, 70, 0), (0, 80, False, 70, 10), (0, 120, False, 70, None)],
        algorithm="token_bucket",
    ),
    "the source's bucket: 23 in 2 s": Table(
        ("100/min",),
        [*_SOURCE[:26], (2, 1, False, 0, 0.4)],
        algorithm="token_bucket",
        burst=20,
    ),
    "the source's bucket: 120 in 60 s": Table(("100/min",), _SOURCE, algorithm="token_bucket", burst=20),
    # A token is a little late, for its nanoseconds are rounded up: where a whole one would just be back
    # it is not, but none is lost.
    "54 a minute, burst 20: all of one call a second": Table(
        ("54/min",),
        [(0, 1, True, 19, 0)] + [(at, 1, True, 18 - at // 10, 0) for at in range(1, 60)],
        algorithm="token_bucket",
        burst=20,
    ),
    "a clock that steps back grants nothing": Table(
        ("2/min",),
        [(0, 1, True, 1, 0), (0, 1, True, 0, 0)]
        + [(at, 1, False, 0, 30 - at) for at in (-3_600, -60, -1, 0, -60, 29)]
        + [(30, 1, True, 0, 0)],
        algorithm="token_bucket",
    ),
}

SLIDING_WINDOW = {
    "Cloudflare: 50 a minute, 42 before, 18 now": Table(
        ("50/min",),
        [
            (0, 42, True, 8, 0),
            (75, 18, True, 0, 0),
            (75, 1, False, 0, 0.714_286),
            (75.714_286, 1, True, 0, 0),
        ],
        algorithm="sliding_window",
    ),
    "Symfony: 5,000 an hour, 4,000 before, 500 now": Table(
        ("5000/hour",),
        [
            (0, 4_000, True, 1_000, 0),
            (4_500, 500, True, 1_500, 0, {"used": 3_500}),
            (4_500, 1_501, False, 1_500, 0.9),
        ],
        algorithm="sliding_window",
    ),
    "limits: 100 a minute, 40 before, 80 now": Table(
        ("100/min",),
        [
            (0, 40, True, 60, 0),
            (90, 80, True, 0, 0, {"used": 100}),
            (90, 1, False, 0, 1.5),
            (100, 1, True, 5, 0, {"used": 95}),
        ],
        algorithm="sliding_window",
    ),
    "a clock that steps back over an edge grants what was left before it, once, and counts it": Table(
        ("2/min",),
        [(0, 1, True, 1, 0), (0, 1, True, 0, 0), (-1, 1, True, 1, 0), (-1, 1, True, 0, 0)]
        + [(-1, 1, False, 0, 31), (0, 1, False, 0, 90)] * 3
        + [(89, 1, False, 0, 1), (90, 1, True, 0, 0)],
        algorithm="sliding_window",
    ),
    "a clock that steps back over the edge of a busy minute grants nothing": Table(
        ("2/min",),
        [
            (-40, 2, True, 0, 0),
            (29, 1, False, 0, 1),
            (30, 1, True, 0, 0),
            (-1, 1, False, 0, 31),
            (30, 1, False, 0, 30),
        ],
        algorithm="sliding_window",
    ),
    "60 before, 12 now: a wait of a second": Table(
        ("60/min",),
        [(0, 60, True, 0, 0), (72, 12, True, 0, 0), (72, 1, False, 0, 1), (73, 1, True, 0, 0)],
        algorithm="sliding_window",
    ),
}

SLIDING_LOG = {
    "the source's log: 2 per 10 s": Table(
        ("2/10s",),
        [
            (0, 1, True, 1, 0),
            (0, 1, True, 0, 0),
            (0.2, 1, False, 0, 9.8, {"retry_after_seconds": 10}),
            (0.2, 1, True, 1, 0, {"key": "another"}),
            (9.8, 1, False, 0, 0.2, {"retry_after_seconds": 1}),
            (9.999_999, 1, False, 0, 0.000_001),
            (10, 1, True, 1, 0),
        ],
        algorithm="sliding_log",
    ),
    "costs: the wait is for as many entries as are needed": Table(
        ("10/min",),
        [
            (0, 2, True, 8, 0),
            (10, 3, True, 5, 0),
            (20, 5, True, 0, 0),
            (30, 1, False, 0, 30),
            (30, 2, False, 0, 30),
            (30, 3, False, 0, 40),
            (30, 5, False, 0, 40),
            (30, 6, False, 0, 50),
            (30, 10, False, 0, 50),
            (30, 11, False, 0, None),
            (60, Peek(3), False, 2, 10),
            (60, 2, True, 0, 0),
            (80, 9, False, 8, 40),
            (80, 8, True, 0, 0),
        ],
        algorithm="sliding_log",
    ),
    "a clock that steps back grants nothing, by a log": Table(
        ("2/min",),
        [(0, 1, True, 1, 0), (0, 1, True, 0, 0)]
        + [(at, 1, False, 0, 60 - at) for at in (-3_600, -60, -1, 0, -60, 59)]
        + [(60, 1, True, 1, 0)],
        algorithm="sliding_log",
    ),
    "several: 3/s and 6/min": Table(
        ("3/s", "6/min"),
        [(at / 4, 1, True, 2 - at, 0) for at in range(3)]
        + [(0.75, 1, False, 0, 0.25)]
        + [(1 + at / 4, 1, True, 0, 0) for at in range(3)]
        + [(1.75, 1, False, 0, 58.25), (60, 1, True, 0, 0), (60, 1, False, 0, 0.25)],
        algorithm="sliding_log",
    ),
}

ALL = BOUNDARY | FIXED_WINDOW | TOKEN_BUCKET | SLIDING_WINDOW | SLIDING_LOG
