"""The model and the limiter are told the same, on the database under test, and must answer the same."""

import contextlib
import logging

import pytest
from django.core.exceptions import ValidationError
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ratelimit_app import limiter, signals, snapshots
from ratelimit_app.models import Counter, Limit, LimitOverride, LoggedCall
from ratelimit_app.policy import Policy
from ratelimit_app.stores import store_for
from ratelimit_app.testing import frozen_time
from ratelimit_app.windows import to_datetime
from tests.conftest import NOON
from tests.reference.counting import WAYS
from tests.reference.model import Model, Rule
from tests.reference.windows import SECOND, bounds

NAMES = ["a", "b", "c", "coded"]
CODED = {"rate": "3/min", "algorithm": "sliding_window", "cost": 2}
POLICIES = [
    Policy.parse("2/min", name="a"),
    Policy("odd", "sliding_log", 3, 90.5),
    Policy("tiny", "sliding_window", 4, 0.000_003),
    Policy("fast", "token_bucket", 7_000, 1, burst=3),
    Policy("large", "sliding_window", 999_999_999_999_999, 3_600),
]
#: A time zone each, and two seconds before something happens to its clocks.
PLACES = {
    "UTC": NOON,
    "Europe/Berlin": 1_792_889_998,  # 2026-10-25, a Sunday of 25 hours
    "America/Havana": 1_793_509_198,  # 2026-11-01, its midnight comes twice
    "America/St_Johns": 1_289_097_058,  # 2010-11-07, it is the day before again
}
LENGTHS = ["s", "2s", "min", "10 min", "day"]
UNITS = ["calendar day", "calendar week", "month", "year"]

# Most of what is drawn meets in one place: what is spread over many counts fills none of them.
# The numbers stand for the rows, whatever their names are by then.
ANY = [0, 1, *NAMES, "unknown", *POLICIES]
LIMITS = st.sampled_from([0] * 12 + [1] * 4 + ANY)
KEYS = st.sampled_from(["k"] * 5 + ["K"])
COSTS = st.sampled_from([None, None, 1, 1, 1, 2, 2, 3, 4, 5, 7, 12, 10**9, 10**15, 10**30])
QUOTAS = st.sampled_from([1, 2, 3, 3, 4, 5, 5, 8, 10, 60])
GAPS = st.integers(-3, 3) | st.integers(-SECOND, 3 * SECOND) | st.integers(-(10**13), 10**13)
MODES = st.sampled_from(["enforce"] * 4 + ["shadow"])
ALGORITHMS = sorted(WAYS)


@st.composite
def ways(draw, algorithms=ALGORITHMS):
    """Draw the fields of a limit that say how much is counted, and how."""
    algorithm = draw(st.sampled_from(algorithms))
    window = draw(st.sampled_from(LENGTHS + UNITS if algorithm == "fixed_window" else LENGTHS))
    burst = draw(st.none() | QUOTAS) if algorithm == "token_bucket" else None
    return {"rate": f"{draw(QUOTAS)}/{window}", "algorithm": algorithm, "burst": burst}


def usable(fields):
    """Let a call that is refused hold nothing: such a limit would not be valid."""
    return fields | {"count_denied": fields["count_denied"] and fields["algorithm"] != "concurrency"}


MANNERS = st.fixed_dictionaries({"count_denied": st.booleans(), "mode": MODES})
EDITS = (
    ways()
    | st.fixed_dictionaries({"rate": st.builds("{}/min".format, QUOTAS)})
    | st.fixed_dictionaries({"rate": st.builds("{}/2s".format, QUOTAS), "burst": st.none()})
    | st.fixed_dictionaries({"mode": MODES | st.just("off")})
    | st.fixed_dictionaries({"count_denied": st.booleans()})
    | st.fixed_dictionaries({"cost": st.integers(1, 3)})
    | st.fixed_dictionaries({"name": st.sampled_from(NAMES)})
)

OVERRIDES = (
    ways().map(lambda fields: {"rate": fields["rate"], "burst": fields["burst"]})
    | st.fixed_dictionaries({"rate": st.builds("{}/min".format, QUOTAS)})
    | st.fixed_dictionaries({"effect": st.just("blocked")})
    | st.fixed_dictionaries({"effect": st.sampled_from(["exempt", "blocked"])})
)


class LimiterAndModel(RuleBasedStateMachine):
    """Two rows, the first of which begins with a given algorithm, limits in code, and policies."""

    def __init__(self, algorithm):
        super().__init__()
        self.algorithm = algorithm
        self.left_open = contextlib.ExitStack()

    def teardown(self):
        self.left_open.close()

    @initialize(zone=st.sampled_from(list(PLACES)), data=st.data())
    def begin(self, zone, data):
        for model in (Limit, Counter, LoggedCall):
            model.objects.all().delete()
        snapshots.drop()
        self.left_open.enter_context(
            override_settings(RATELIMIT_LIMITS={"coded": CODED}, RATELIMIT_TIME_ZONE=zone)
        )
        self.clock = self.left_open.enter_context(frozen_time(PLACES[zone]))
        signals.over_quota.connect(self.hear)
        self.left_open.callback(signals.over_quota.disconnect, self.hear)
        self.model, self.zone, self.pruned_at, self.told, self.heard = Model(zone), zone, 0, 0, []
        self.overriding = {}
        self.unsettled = []
        self.rows = [
            Limit.objects.create(name=name, **usable(data.draw(ways(algorithms)) | data.draw(MANNERS)))
            for name, algorithms in {"a": [self.algorithm], "b": ALGORITHMS}.items()
        ]

    def hear(self, decision, **kwargs):
        self.heard.append(decision)

    @property
    def now(self):
        return self.clock.read()

    def meant(self, limit):
        return self.rows[limit].name if isinstance(limit, int) else limit

    def find(self, limit):
        """Return the rule that a name or a policy means now, ``None`` for a name that means none."""
        if isinstance(limit, Policy):
            return Rule(limit, ("a policy", limit.name))
        for row in [*self.rows, Limit(name="coded", **CODED)]:
            if row.name == limit:
                manner = row.mode, row.count_denied, row.cost, self.overrides(row)
                return Rule(row.policy(), (row.name, row.pk), *manner)
        return None

    def overrides(self, limit):
        """Return those of a row that are valid with what the row is now."""
        found = {}
        for number, override in self.overriding.items():
            if limit.pk and self.rows[number[0]].pk == limit.pk:
                with contextlib.suppress(ValueError):
                    live = override.live(limit)
                    found[override.key] = live.effect, live.policy, live.ends_at
        return found

    def asked(self, keys):
        return [(getattr(limit, "name", limit), self.find(limit), key) for limit, key in keys.items()]

    def agree(self, answer, expected):
        assert answer == expected
        waits = [wait for part in answer.parts for wait in (part.retry_after, part.reset_after) if wait]
        self.told = round(min(waits, default=0) * SECOND)

    # What is asked ------------------------------------------------------------------------------

    @rule(keys=st.dictionaries(LIMITS, KEYS, min_size=1, max_size=4), cost=COSTS)
    def consume_all(self, keys, cost):
        keys = {self.meant(limit): key for limit, key in keys.items()}
        self.heard.clear()
        decision = limiter.consume_all(keys, cost=cost)
        self.agree(decision, self.model.consume_all(self.asked(keys), cost, self.now))
        self.unsettled.append((decision, self.model.taken))
        assert self.heard == [part for part in decision.parts if part.over_quota]

    @rule(limit=LIMITS, key=KEYS, cost=COSTS, times=st.integers(1, 4))
    def consume(self, limit, key, cost, times):
        limit = self.meant(limit)
        for _ in range(times):
            decision = limiter.consume(limit, key, cost=cost)
            self.agree(decision, self.model.consume_all(self.asked({limit: key}), cost, self.now))
            self.unsettled.append((decision, self.model.taken))

    @rule(limit=LIMITS, key=KEYS, left=st.integers(0, 2))
    def use_up_all_but_some(self, limit, key, left):
        remaining = limiter.peek(self.meant(limit), key).remaining or 0
        self.consume(limit, key, max(1, remaining - left), 1)

    @rule(keys=st.dictionaries(LIMITS, KEYS, min_size=1, max_size=4), cost=COSTS)
    def peek_all(self, keys, cost):
        keys = {self.meant(limit): key for limit, key in keys.items()}
        self.agree(limiter.peek_all(keys, cost=cost), self.model.peek_all(self.asked(keys), cost, self.now))

    @rule(limit=LIMITS, key=KEYS, cost=COSTS)
    def refund(self, limit, key, cost):
        limit = self.meant(limit)
        limiter.refund(limit, key, cost=cost)
        self.model.refund(self.find(limit), key, cost, self.now)
        self.peek(limit, key)

    @rule(which=st.integers(0, 9), cost=st.sampled_from([0, 0, 1, 2, 3, 5, 9, 40]))
    def settle(self, which, cost):
        """Settle one of the last calls, however long ago it was."""
        if not self.unsettled:
            return
        decision, taken = self.unsettled.pop(-1 - which % len(self.unsettled))
        limiter.settle(decision, cost)
        self.model.settle(taken, cost, self.now)
        for part in decision.parts:
            self.peek(part.limit, part.key)

    @rule(limit=st.sampled_from(ANY), key=st.sampled_from("Kk"))
    def reset(self, limit, key):
        limit = self.meant(limit)
        limiter.reset(limit, key)
        self.model.reset(self.find(limit), key, self.now)
        self.peek(limit, key)

    def peek(self, limit, key):
        self.agree(limiter.peek(limit, key), self.model.peek_all(self.asked({limit: key}), None, self.now))

    # What staff do ------------------------------------------------------------------------------

    @rule(number=st.integers(0, 1), edit=EDITS)
    def edit(self, number, edit):
        row = Limit.objects.get(pk=self.rows[number].pk)
        for field, value in edit.items():
            setattr(row, field, value)
        with contextlib.suppress(ValidationError):  # two of a name, say, are not to be had
            row.full_clean()
            row.save()
            self.rows[number] = row

    @rule(number=st.sampled_from([1, 1, 1, 0]))
    def delete_and_make_anew(self, number):
        row = self.rows[number]
        row.delete()
        row.save(force_insert=True)
        self.overriding = {place: each for place, each in self.overriding.items() if place[0] != number}

    @rule(number=st.sampled_from([0, 0, 1]), key=KEYS, fields=OVERRIDES, lasts=st.none() | GAPS)
    def override(self, number, key, fields, lasts):
        self.stop_overriding(number, key)
        ends_at = None if lasts is None else to_datetime(self.now + lasts)
        override = LimitOverride(limit=self.rows[number], key=key, ends_at=ends_at, reason="drawn", **fields)
        with contextlib.suppress(ValidationError):  # a burst, say, that the algorithm of the limit has not
            override.full_clean()
            override.save()
            self.overriding[number, key] = override

    @rule(number=st.sampled_from([0, 0, 1]), key=KEYS)
    def stop_overriding(self, number, key):
        if override := self.overriding.pop((number, key), None):
            override.delete()

    @rule(batch_size=st.integers(1, 4) | st.just(1_000))
    def prune(self, batch_size):
        """Rows may go as soon as only a clock that goes back behind this instant would find them."""
        expired, store = self.count_expired(), store_for("ratelimit")
        assert store.count_expired(self.now) == expired
        deleted = store.prune(self.now, batch_size)
        assert deleted == min(batch_size, expired) == expired - self.count_expired()
        self.pruned_at = self.now

    def count_expired(self):
        return sum(model.objects.filter(expires_at__lte=self.now).count() for model in (Counter, LoggedCall))

    # What the clock does ------------------------------------------------------------------------

    @rule(gap=GAPS)
    def move_or_step_back(self, gap):
        self.move(gap)

    @rule(limit=LIMITS, eighths=st.integers(-9, 12), prune=st.sampled_from([False, False, True]))
    def move_or_step_back_by_a_part_of_a_window(self, limit, eighths, prune):
        start, end = self.window(limit)
        self.move(eighths * (end - start) // 8)
        if prune:
            self.prune(1_000)

    @rule(limit=LIMITS, early=st.integers(0, 1))
    def move_to_the_end_of_a_window(self, limit, early):
        _, end = self.window(limit)
        self.move(end - early - self.now)

    @rule(early=st.integers(0, 1))
    def wait_as_told(self, early):
        self.move(self.told - early)

    def move(self, microseconds):
        """Move the clock, but not behind what was pruned."""
        self.clock.advance(max(microseconds, self.pruned_at - self.now) / SECOND)

    def window(self, limit):
        found = self.find(self.meant(limit))
        return bounds(found.policy.window if found else 60, self.now, self.zone)


@pytest.mark.django_db
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_limiter_does_what_the_model_does(algorithm, caplog):
    caplog.set_level(logging.ERROR, "ratelimit_app")  # names that mean nothing are asked for all the time
    run_state_machine_as_test(
        lambda: LimiterAndModel(algorithm),
        settings=settings(
            stateful_step_count=40,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
