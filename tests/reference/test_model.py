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
from ratelimit_app.models import Counter, Limit, LoggedCall
from ratelimit_app.policy import Policy
from ratelimit_app.stores import store_for
from ratelimit_app.testing import frozen_time
from tests.conftest import NOON
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

LIMITS = st.sampled_from(["a", "b"] * 3 + ["c", "coded", "unknown", *POLICIES])
KEYS = st.sampled_from(["k", "k", "K"])
COSTS = st.none() | st.integers(1, 4) | st.integers(1, 12) | st.sampled_from([10**9, 10**15, 10**30])
QUOTAS = st.integers(1, 6) | st.integers(1, 100)
GAPS = st.integers(1, 3) | st.integers(1, 2 * SECOND) | st.integers(1, 90 * SECOND) | st.integers(1, 10**13)
MODES = st.sampled_from(["enforce", "shadow", "off", "enforce", "enforce"])


@st.composite
def ways(draw):
    """Draw the fields of a limit that say how much is counted, and how."""
    algorithm = draw(st.sampled_from(["fixed_window", "sliding_window", "sliding_log", "token_bucket"]))
    window = draw(st.sampled_from(LENGTHS + UNITS if algorithm == "fixed_window" else LENGTHS))
    burst = draw(st.none() | QUOTAS) if algorithm == "token_bucket" else None
    return {"rate": f"{draw(QUOTAS)}/{window}", "algorithm": algorithm, "burst": burst}


ROWS = st.builds(dict.__or__, ways(), st.fixed_dictionaries({"count_denied": st.booleans(), "mode": MODES}))
EDITS = (
    ways()
    | ways().map(lambda fields: {"rate": fields["rate"]})
    | st.fixed_dictionaries({"mode": MODES})
    | st.fixed_dictionaries({"count_denied": st.booleans()})
    | st.fixed_dictionaries({"cost": st.integers(1, 3)})
    | st.fixed_dictionaries({"name": st.sampled_from(NAMES)})
)


class LimiterAndModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.left_open = contextlib.ExitStack()

    def teardown(self):
        self.left_open.close()

    @initialize(zone=st.sampled_from(list(PLACES)), fields=st.tuples(ROWS, ROWS))
    def begin(self, zone, fields):
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
        self.rows = [Limit.objects.create(name=name, **each) for name, each in zip("ab", fields, strict=True)]

    def hear(self, decision, **kwargs):
        self.heard.append(decision)

    @property
    def now(self):
        return self.clock.read()

    def find(self, limit):
        """Return the rule that a name or a policy means now, ``None`` for a name that means none."""
        if isinstance(limit, Policy):
            return Rule(limit, ("a policy", limit.name))
        for row in [*self.rows, Limit(name="coded", **CODED)]:
            if row.name == limit:
                return Rule(row.policy(), (row.name, row.pk), row.mode, row.count_denied, row.cost)
        return None

    def asked(self, keys):
        return [(getattr(limit, "name", limit), self.find(limit), key) for limit, key in keys.items()]

    def agree(self, answer, expected):
        assert answer == expected
        waits = [wait for part in answer.parts for wait in (part.retry_after, part.reset_after) if wait]
        self.told = round(min(waits, default=0) * SECOND)

    # What is asked ------------------------------------------------------------------------------

    @rule(keys=st.dictionaries(LIMITS, KEYS, min_size=1, max_size=4), cost=COSTS)
    def consume_all(self, keys, cost):
        self.heard.clear()
        decision = limiter.consume_all(keys, cost=cost)
        self.agree(decision, self.model.consume_all(self.asked(keys), cost, self.now))
        assert self.heard == [part for part in decision.parts if part.over_quota]

    @rule(limit=LIMITS, key=KEYS, cost=COSTS)
    def consume(self, limit, key, cost):
        decision = limiter.consume(limit, key, cost=cost)
        self.agree(decision, self.model.consume_all(self.asked({limit: key}), cost, self.now))

    @rule(limit=LIMITS, key=KEYS, times=st.integers(2, 6))
    def consume_again_and_again(self, limit, key, times):
        for _ in range(times):
            self.consume(limit, key, None)

    @rule(keys=st.dictionaries(LIMITS, KEYS, min_size=1, max_size=4), cost=COSTS)
    def peek_all(self, keys, cost):
        self.agree(limiter.peek_all(keys, cost=cost), self.model.peek_all(self.asked(keys), cost, self.now))

    @rule(limit=LIMITS, key=KEYS, cost=COSTS)
    def peek(self, limit, key, cost):
        decision = limiter.peek(limit, key, cost=cost)
        self.agree(decision, self.model.peek_all(self.asked({limit: key}), cost, self.now))

    @rule(limit=LIMITS, key=KEYS, cost=COSTS)
    def refund(self, limit, key, cost):
        limiter.refund(limit, key, cost=cost)
        self.model.refund(self.find(limit), key, cost, self.now)
        self.peek(limit, key, None)

    @rule(limit=LIMITS, key=KEYS)
    def reset(self, limit, key):
        limiter.reset(limit, key)
        self.model.reset(self.find(limit), key)
        self.peek(limit, key, None)

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

    @rule(number=st.integers(0, 1))
    def delete_and_make_anew(self, number):
        row = self.rows[number]
        row.delete()
        row.save(force_insert=True)

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
    def move_on(self, gap):
        self.clock.advance(gap / SECOND)

    @rule(gap=GAPS)
    def step_back(self, gap):
        self.clock.advance(-min(gap, self.now - self.pruned_at) / SECOND)

    @rule(early=st.integers(0, 1))
    def wait_as_told(self, early):
        self.clock.advance(max(0, self.told - early) / SECOND)

    @rule(limit=LIMITS, early=st.integers(0, 1))
    def move_to_the_end_of_a_window(self, limit, early):
        if found := self.find(limit):
            _, end = bounds(found.policy.window, self.now, self.zone)
            self.clock.advance((end - early - self.now) / SECOND)


@pytest.mark.django_db
def test_limiter_does_what_the_model_does(caplog):
    caplog.set_level(logging.ERROR, "ratelimit_app")  # names that mean nothing are asked for all the time
    run_state_machine_as_test(
        LimiterAndModel,
        settings=settings(
            stateful_step_count=40,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
