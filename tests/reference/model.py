"""The public contract in plain Python, slow and obvious: what the app is held against."""

import dataclasses
import math

from ratelimit_app.decision import Decision
from ratelimit_app.policy import Policy
from tests.reference.counting import WAYS, capacity
from tests.reference.windows import SECOND


@dataclasses.dataclass(frozen=True)
class Rule:
    """A limit as it is now; ``identity`` tells it from all others, also from former ones of its name."""

    policy: Policy
    identity: object
    mode: str = "enforce"
    count_denied: bool = False
    cost: int = 1
    #: By key: the effect, its policy if that is a rate, and the instant of its end.
    overrides: dict = dataclasses.field(default_factory=dict)

    def override(self, key, now):
        effect, policy, ends_at = self.overrides.get(key, (None, None, None))
        is_over = ends_at is not None and ends_at <= now
        return (None, None, None) if is_over else (effect, policy, ends_at)

    def for_key(self, key, now):
        """Return the rule that counts for a key."""
        _, policy, _ = self.override(key, now)
        return dataclasses.replace(self, policy=policy) if policy else self

    def counts(self, key, now):
        return self.mode != "off" and self.override(key, now)[0] not in {"exempt", "blocked"}

    def blocks(self, key, now):
        return self.mode != "off" and self.override(key, now)[0] == "blocked"

    def blocked(self, key, cost, now):
        """Return the decision about a call of a key that is blocked."""
        ends_at = self.override(key, now)[2]
        wait = None if ends_at is None else (ends_at - now) / SECOND
        shadow = self.mode == "shadow"
        return Decision(
            allowed=shadow,
            limit=self.policy.name,
            key=key,
            cost=cost,
            quota=self.policy.quota,
            remaining=0,
            reset_after=wait or 0.0,
            retry_after=0.0 if shadow else wait,
            policy=self.policy,
            shadow=shadow,
            over_quota=True,
            more_after=wait,
            at=now / SECOND,
        )


@dataclasses.dataclass
class Part:
    """One limit asked by one key: its count, and whether the cost fits."""

    rule: Rule
    key: str
    cost: int
    count: object
    now: int

    mark: object = None

    def __post_init__(self):
        self.fits = self.fits_at(self.now)

    def fits_at(self, at):
        return self.count.used(self.rule.policy, at, self.now) + self.cost <= capacity(self.rule.policy)

    def take(self):
        if self.fits:
            self.count.take(self.rule.policy, self.cost, self.now)
            self.mark = self.count.mark(self.rule.policy, self.now)
        elif self.rule.count_denied:
            self.count.count_denied(self.rule.policy, self.cost, self.now)

    def decision(self):
        policy, now = self.rule.policy, self.now
        used = self.count.used(policy, now, now)
        shadow = self.rule.mode == "shadow"
        full_at = first_instant(now, lambda at: self.count.used(policy, at, now) == 0)
        return Decision(
            allowed=self.fits or shadow,
            limit=policy.name,
            key=self.key,
            cost=self.cost,
            quota=policy.quota,
            remaining=self.remaining(now),
            reset_after=(full_at - now) / SECOND,
            retry_after=0.0 if self.fits or shadow else self.wait(),
            used=used,
            policy=policy,
            shadow=shadow,
            over_quota=not self.fits,
            more_after=self.wait_for_more(),
            at=now / SECOND,
        )

    def remaining(self, at):
        policy = self.rule.policy
        return max(0, capacity(policy) - self.count.used(policy, at, self.now))

    def wait_for_more(self):
        left = self.remaining(self.now)
        if left == capacity(self.rule.policy):
            return None
        return (first_instant(self.now, lambda at: self.remaining(at) > left) - self.now) / SECOND

    def wait(self):
        if self.cost > capacity(self.rule.policy):
            return None
        return (first_instant(self.now, self.fits_at) - self.now) / SECOND


class Model:
    """Everything that the limiter knows. ``asked`` is a list of a name, its rule (or ``None``) and a key."""

    def __init__(self, zone):
        self.zone = zone
        self.counts = {}
        self.taken = []

    def consume_all(self, asked, cost, now):
        parts = self.parts(asked, cost, now)
        counted = [part for part in parts if part]
        refused = [part for part in counted if part.rule.mode == "enforce" and not part.fits]
        if not any(rule and rule.mode == "enforce" and rule.blocks(key, now) for _, rule, key in asked):
            for part in refused or counted:
                part.take()
        self.taken = [part for part in counted if part.mark is not None]
        return self.answer(asked, cost, now, parts)

    def peek_all(self, asked, cost, now):
        return self.answer(asked, cost, now, self.parts(asked, cost, now))

    def refund(self, rule, key, cost, now):
        if rule and rule.counts(key, now):
            rule = rule.for_key(key, now)
            self.count(rule, key).give_back(rule.policy, cost or rule.cost, now)

    def settle(self, taken, cost, now):
        for part in taken:
            policy, count = part.rule.policy, self.count(part.rule, part.key)
            if policy.algorithm == "concurrency":
                continue  # what is held, its holder gives back
            if cost < part.cost:
                count.give_back_own(policy, part.cost - cost, part.mark, now)
            elif cost > part.cost:
                count.take(policy, cost - part.cost, now)

    def reset(self, rule, key, now):
        if rule and rule.mode != "off":
            for each in (rule, rule.for_key(key, now)):
                self.counts.pop(self.place(each, key), None)

    def parts(self, asked, cost, now):
        return [
            self.part(rule.for_key(key, now), key, cost, now) if rule and rule.counts(key, now) else None
            for _, rule, key in asked
        ]

    def part(self, rule, key, cost, now):
        return Part(rule, key, cost or rule.cost, self.count(rule, key), now)

    def answer(self, asked, cost, now, parts):
        return together(
            [
                part.decision() if part else uncounted(name, rule, key, cost, now)
                for (name, rule, key), part in zip(asked, parts, strict=True)
            ]
        )

    def count(self, rule, key):
        way = WAYS[rule.policy.algorithm]
        return self.counts.setdefault(self.place(rule, key), way(rule.policy.window, self.zone))

    def place(self, rule, key):
        """Another name, way of counting or window has a count of its own; another quota has not."""
        return rule.identity, rule.policy.algorithm, rule.policy.window, key


def uncounted(name, rule, key, cost, now):
    if rule is None or rule.mode == "off":
        return Decision(True, name, key, cost or 1)
    if rule.blocks(key, now):
        return rule.blocked(key, cost or rule.cost, now)
    return Decision(True, name, key, cost or rule.cost)


def together(decisions):
    """Let one speak for all: who refuses for longest, else who has the least left, a shadow last."""
    if len(decisions) == 1:
        return decisions[0]
    speakers = [decision for decision in decisions if not decision.allowed]
    if speakers:
        longest = max(or_infinite(each.retry_after) for each in speakers)
        speakers = [each for each in speakers if or_infinite(each.retry_after) == longest]
    else:
        speakers = [decision for decision in decisions if not decision.shadow] or decisions
    least = min(speakers, key=lambda each: or_infinite(each.remaining))
    return dataclasses.replace(least, decisions=tuple(decisions))


def or_infinite(value):
    return math.inf if value is None else value


def first_instant(now, holds):
    """Return the first instant from now on at which something holds that then holds for good."""
    if holds(now):
        return now
    step = 1
    while not holds(now + step):
        step *= 2
    before, after = now + step // 2, now + step
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (before, middle) if holds(middle) else (middle, after)
    return after
