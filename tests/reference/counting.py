"""How many units count at an instant, by what each way of counting says of itself.

Each class is one count: of one limit, one way of counting, one window and one key. Instants are
microseconds since the epoch. ``used(policy, at, now)`` is the units that count at an instant which is
``now`` or later, if nothing more is taken.
"""

import math
from fractions import Fraction

from tests.reference.windows import SECOND, bounds

#: What one call can be counted as at most.
LARGEST = 10**15


class FixedWindow:
    """The units of the window that the instant lies in."""

    def __init__(self, window, zone):
        self.window, self.zone = window, zone
        self.taken = {}

    def used(self, policy, at, now):
        return self.known(self.begins(at), now)

    def known(self, start, now):
        # The clock may have been in a later window before: what that one holds is met when it comes.
        return self.taken.get(start, 0) if start <= now else 0

    def begins(self, at):
        return bounds(self.window, at, self.zone)[0]

    def take(self, policy, units, now):
        start = self.begins(now)
        self.taken[start] = self.taken.get(start, 0) + units

    def count_denied(self, policy, cost, now):
        self.take(policy, min(cost, LARGEST), now)

    def give_back(self, policy, units, now):
        start = self.begins(now)
        self.taken[start] = max(0, self.taken.get(start, 0) - units)

    def mark(self, policy, now):
        """Return what a call that was just taken needs to be given back later."""
        return now

    def give_back_own(self, policy, units, mark, now):
        self.give_back(policy, units, mark)


class SlidingWindow(FixedWindow):
    """The units of the window, and the share of the last one's that is recent, in whole units up."""

    def used(self, policy, at, now):
        start, end = bounds(self.window, at, self.zone)
        length = end - start
        recent = Fraction(end - at, length)
        return self.known(start, now) + math.ceil(self.known(start - length, now) * recent)


class SlidingLog:
    """The units of all calls that are less than a window's length old."""

    def __init__(self, window, zone):
        self.length = round(window * SECOND)
        self.calls = []

    def used(self, policy, at, now):
        return sum(units for expires_at, units in self.calls if expires_at > at)

    def take(self, policy, units, now):
        # In their order, though the clock may have stepped back.
        expires_at = max([now + self.length, *(expires_at for expires_at, _ in self.calls)])
        self.calls.append((expires_at, units))

    def count_denied(self, policy, cost, now):
        self.take(policy, min(cost, policy.quota + 1), now)

    def give_back(self, policy, units, now):
        """The newest calls give back first; what has expired has nothing to give."""
        units = min(units, self.used(policy, now, now))
        self.calls = without(self.calls, units)

    def mark(self, policy, now):
        return now, self.calls[-1][0]

    def give_back_own(self, policy, units, mark, now):
        """Of the calls that expire no later than this one, the newest give back first."""
        taken_at, expires_at = mark
        earlier = [call for call in self.calls if call[0] <= expires_at]
        there = sum(units for at, units in earlier if at > taken_at)
        self.calls = without(earlier, min(units, there)) + self.calls[len(earlier) :]


class TokenBucket:
    """The tokens that are missing, those that have come back in part among them.

    What is kept is the instant at which the bucket is full, in nanoseconds: an edit of the rate keeps
    that instant.
    """

    def __init__(self, window, zone):
        self.window = round(window * SECOND) * 1_000
        self.full_at = 0

    def used(self, policy, at, now):
        return math.ceil(Fraction(max(0, self.full_at - at * 1_000), self.token(policy)))

    def token(self, policy):
        return math.ceil(Fraction(self.window, policy.quota))

    def take(self, policy, units, now):
        self.full_at = max(self.full_at, now * 1_000) + units * self.token(policy)

    def count_denied(self, policy, cost, now):
        """A bucket that is empty owes at most another one."""
        before = self.full_at
        self.take(policy, min(cost, capacity(policy) + 1), now)
        if self.full_at > now * 1_000 + 2 * capacity(policy) * self.token(policy):
            self.full_at = before

    def give_back(self, policy, units, now):
        self.full_at = max(0, self.full_at - units * self.token(policy))

    def mark(self, policy, now):
        return self.full_at

    def give_back_own(self, policy, units, mark, now):
        """What has been refilled of it by itself is not given back."""
        missing = max(0, mark - now * 1_000)
        self.full_at = max(0, self.full_at - min(units * self.token(policy), missing))


class Concurrency(SlidingLog):
    """The units that are held; those who hold them give them back themselves."""

    def take(self, policy, units, now):
        self.calls.append((now + self.length, units))

    def give_back(self, policy, units, now):
        pass


WAYS = {
    "concurrency": Concurrency,
    "fixed_window": FixedWindow,
    "sliding_window": SlidingWindow,
    "sliding_log": SlidingLog,
    "token_bucket": TokenBucket,
}


def without(calls, units):
    """Return calls without so many units of the newest."""
    calls = list(calls)
    while units:
        expires_at, newest = calls.pop()
        if newest > units:
            calls.append((expires_at, newest - units))
        units -= min(units, newest)
    return calls


def capacity(policy):
    """Return the units that are there when nothing is used."""
    return policy.burst or policy.quota
