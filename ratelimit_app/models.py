"""The tables: the limits that staff edit and their overrides, the counters, and the calls of sliding logs."""

import re
from collections.abc import Callable

from django.core.exceptions import ValidationError
from django.db import models

from ratelimit_app import algorithms, keys
from ratelimit_app.fields import ExactASCIIField
from ratelimit_app.limit_override import LimitOverride as LimitOverride
from ratelimit_app.policy import MAX_NAME_LENGTH, Policy, check_units

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})


def algorithm_choices() -> list[tuple[str, str]]:
    return [(name, name.replace("_", " ")) for name in algorithms.names()]


class Mode(models.TextChoices):
    ENFORCE = "enforce", "enforce: refuse what is over the quota"
    SHADOW = "shadow", "shadow: count and report, never refuse"
    OFF = "off", "off"


class Charge(models.TextChoices):
    BEFORE = "before", "before: each request, when it comes"
    AFTER = "after", "after: what the view says that it has cost"
    FAILURES = "failures", "failures: requests that fail"
    SUCCESSES = "successes", "successes: requests that do not fail"


class OnError(models.TextChoices):
    ALLOW = "allow", "allow: let calls through, uncounted"
    DENY = "deny", "deny: refuse them with 503, to be tried again"
    LOCAL = "local", "local: count them in each process by itself"


class Limit(models.Model):
    """How often something may happen, as staff edit it."""

    name = models.SlugField(
        max_length=MAX_NAME_LENGTH,
        unique=True,
        help_text="What code calls this limit by. A renamed limit starts to count anew.",
    )
    rate = models.CharField(
        max_length=64,
        help_text=(
            "How many units per time: 5/s, 100/min, 100/10s, 10 per 2 minutes, 3/month. "
            "A day is 24 hours from 00:00 UTC; 5/calendar day, calendar week, month and year begin at "
            "midnight in the project's time zone. A fixed window of 60/min lets up to 120 through "
            "within 2 s around a window edge. Another quota keeps what is used (of a token bucket: "
            "the time until it is full), another window starts to count anew."
        ),
    )
    algorithm = models.CharField(
        max_length=32,
        choices=algorithm_choices,
        default="fixed_window",
        help_text="The way of counting. Another one starts to count anew.",
    )
    burst = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Capacity in units, for algorithms that have one apart from the rate. Empty: the quota.",
    )
    key = models.CharField(
        max_length=200,
        default="ip",
        help_text=(
            "Whose limit it is: ip; user or user_or_ip (the account, or the address of who is not "
            "logged in); session; token (of the Authorization header); header:X-Api-Key; path:name (a "
            "parameter of the URL); field:name (of a form or a JSON body); global (everyone together); "
            "the dotted path of a function of the request; or several, joined by ' + ', such as "
            "ip + field:username. Where a part is missing, it is the address. Sessions, tokens, headers "
            "and fields are kept as hashes."
        ),
    )
    path = models.CharField(
        max_length=200,
        blank=True,
        help_text=(
            "For the middleware: a regular expression that is searched in the path, such as ^/api/. "
            "Empty: only where code names the limit."
        ),
    )
    methods = models.CharField(
        max_length=100,
        blank=True,
        help_text="Such as POST, PUT. HEAD counts as GET. Empty: all of them but OPTIONS, which is free.",
    )
    mode = models.CharField(max_length=10, choices=Mode.choices, default=Mode.ENFORCE)
    count_denied = models.BooleanField(
        default=False,
        help_text="Count the calls that this limit refuses, too: the count then runs past the quota.",
    )
    cost = models.PositiveBigIntegerField(default=1, help_text="Units that one request takes.")
    charge = models.CharField(
        max_length=10,
        choices=Charge.choices,
        default=Charge.BEFORE,
        help_text=(
            "Which requests cost something. All of them take the cost when they come, so that no more get "
            "in at once; what turns out to be free is given back with the response. A request fails by "
            "a status from 400, a log-in that fails, or when the view says so. Another limit's refusal is "
            "neither failure nor success."
        ),
    )
    on_error = models.CharField(
        max_length=10,
        choices=OnError.choices,
        blank=True,
        help_text=(
            "What happens while the counters' database does not answer. Empty: RATELIMIT_ON_ERROR. Where a "
            "counter is only locked for too long, 'allow' refuses too."
        ),
    )
    note = models.TextField(blank=True, help_text="Why this limit is as it is. For staff only.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        errors: dict[str, str] = {}
        for field, check in self._checks():
            try:
                check()
            except ValueError as error:
                # What is wrong with the rate is wrong with the policy and the cost too: said once, and
                # of the field that it begins with.
                named = str(error).partition(":")[0]
                if str(error) not in errors.values():
                    errors[named if hasattr(self, named) else field] = str(error)
        if errors:
            raise ValidationError(errors)

    def policy(self) -> Policy:
        """Return the policy of this row; raise ``ValueError`` where it does not make one."""
        return Policy.parse(self.rate, name=self.name, algorithm=self.algorithm, burst=self.burst)

    def pattern(self) -> re.Pattern[str] | None:
        """Return the path as a compiled expression; raise ``ValueError`` where it is none."""
        try:
            return re.compile(self.path) if self.path else None
        except (re.error, OverflowError, RecursionError, Warning) as error:  # where warnings are errors
            raise ValueError(f"path: not a regular expression ({error}), got {self.path!r}") from error

    def method_set(self) -> frozenset[str]:
        """Return the methods named, GET for HEAD; raise ``ValueError`` for an unknown one."""
        named = {method.upper() for method in re.findall(r"[^\W_]+", self.methods)}
        named = {"GET" if method == "HEAD" else method for method in named}
        if not named <= METHODS:
            raise ValueError(f"methods: unknown {', '.join(sorted(named - METHODS))}")
        return frozenset(named)

    def checked_cost(self) -> int:
        """Return the cost; raise ``ValueError`` where one request would cost more than the quota."""
        check_units("cost", self.cost)
        if self.cost > Policy.parse(self.rate).quota:
            raise ValueError(f"cost: at most the quota, or every request is refused; got {self.cost}")
        return self.cost

    def checked_charge(self) -> str:
        """Return what is charged; raise ``ValueError`` for an unknown word."""
        if self.charge not in Charge.values:
            raise ValueError(f"charge: unknown {self.charge!r} (have: {', '.join(Charge.values)})")
        if algorithms.holds(self.algorithm) and self.charge != Charge.BEFORE:
            raise ValueError(f"charge: what is held is given back by itself: 'before', got {self.charge!r}")
        return self.charge

    def checked_count_denied(self) -> bool:
        """Return whether refused calls count; raise ``ValueError`` where they would hold something."""
        if self.count_denied and algorithms.holds(self.algorithm):
            raise ValueError(f"count_denied: a call that is refused holds nothing, got {self.count_denied!r}")
        return self.count_denied

    def checked_on_error(self) -> str:
        """Return what an outage does, empty for the setting; raise ``ValueError`` for an unknown word."""
        if self.on_error not in ("", *OnError.values):
            raise ValueError(f"on_error: unknown {self.on_error!r} (have: {', '.join(OnError.values)})")
        return self.on_error

    def _checks(self) -> list[tuple[str, Callable[[], object]]]:
        return [
            ("key", lambda: keys.load(self.key)),
            ("path", self.pattern),
            ("methods", self.method_set),
            ("algorithm", lambda: algorithms.load(self.algorithm)),
            ("rate", lambda: Policy.parse(self.rate)),
            ("burst", lambda: Policy.parse(self.rate, algorithm=self.algorithm, burst=self.burst)),
            ("cost", self.checked_cost),
            ("charge", self.checked_charge),
            ("count_denied", self.checked_count_denied),
            ("on_error", self.checked_on_error),
            ("name", self.policy),
        ]


class Counter(models.Model):
    """Units counted for one limit and one key in one window. Instants are microseconds since the epoch."""

    pk = models.CompositePrimaryKey("key", "window_start")
    key = ExactASCIIField(max_length=255)
    window_start = models.BigIntegerField()
    count = models.BigIntegerField()
    expires_at = models.BigIntegerField()

    class Meta:
        # Only ``expires_at`` is indexed: while a row counts it stays the same, or moves on once a minute,
        # so that PostgreSQL can update the row within its page (HOT).
        indexes = [models.Index(fields=["expires_at"], name="ratelimit_expires_at")]

    def __str__(self) -> str:
        return f"{self.key} {self.window_start}: {self.count}"


class LoggedCall(models.Model):
    """A call that a sliding log has admitted: the running total of units after it, and its own.

    The counter of the same key heads the log. Statements name the columns in this order.
    """

    pk = models.CompositePrimaryKey("key", "sequence")
    key = ExactASCIIField(max_length=255)
    sequence = models.BigIntegerField()
    units = models.BigIntegerField()
    expires_at = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="ratelimit_log_expires_at"),
            models.Index(fields=["key", "expires_at", "sequence"], name="ratelimit_log_oldest"),
        ]

    def __str__(self) -> str:
        return f"{self.key} {self.sequence}: {self.units}"
