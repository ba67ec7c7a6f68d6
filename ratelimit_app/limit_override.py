"""The table of overrides: what applies to single keys and networks in place of a limit's own rate."""

import datetime
import typing
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from ratelimit_app import overrides
from ratelimit_app.fields import ExactTextField
from ratelimit_app.overrides import Override
from ratelimit_app.policy import Policy

if typing.TYPE_CHECKING:
    from ratelimit_app.models import Limit

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Effect(models.TextChoices):
    RATE = overrides.RATE, "rate: another rate"
    EXEMPT = overrides.EXEMPT, "exempt: allowed, not counted"
    BLOCKED = overrides.BLOCKED, "blocked: refused"


class KeyField(ExactTextField):
    """A key as ``overrides.normal_key`` writes it, whichever way it was given."""

    def clean(self, value: Any, model_instance: models.Model | None) -> Any:
        return cleaned_key(super().clean(value, model_instance))

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        text = super().pre_save(model_instance, add)
        try:
            text = overrides.normal_key(text)
        except ValueError:
            return text  # reported wherever the limits are read
        setattr(model_instance, self.attname, text)
        return text


class LimitOverride(models.Model):
    """What one limit means for one key or network, as staff edit it."""

    limit = models.ForeignKey(
        "ratelimit_app.Limit",
        on_delete=models.CASCADE,
        related_name="overrides",
        help_text="A limit that is only in code has no row to choose: add one of its name, which wins.",
    )
    key = KeyField(
        max_length=255,
        help_text=(
            "Whom it is for: a key as decisions show it, such as user:42 or global; an address, of which "
            "IPv6 means the /64 around it; or a network, such as 203.0.113.0/24 or 2001:db8::/48. "
            "A longer prefix wins over a shorter one."
        ),
    )
    effect = models.CharField(max_length=10, choices=Effect.choices, default=Effect.RATE)
    rate = models.CharField(
        max_length=64,
        blank=True,
        help_text="Where the effect is another rate, such as 100/min. The same window keeps what is used.",
    )
    burst = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="As that of the limit, for this rate. Empty: the quota."
    )
    ends_at = models.DateTimeField(
        null=True, blank=True, help_text="From then on the limit's own rate applies again. Empty: for good."
    )
    reason = models.TextField(help_text="Why. For staff only: nobody who is limited is told.")

    class Meta:
        ordering = ["limit", "key"]
        constraints = [models.UniqueConstraint(fields=["limit", "key"], name="ratelimit_override_once")]

    def __str__(self) -> str:
        return f"{self.key}: {self.rate or self.effect}"

    def clean(self) -> None:
        limit: Limit | None = getattr(self, "limit", None)
        try:
            self.checked_policy(limit)
        except ValueError as error:
            # It begins with the field that is wrong; all but the burst is told from the rate.
            field = "burst" if str(error).startswith("burst") else "rate"
            raise ValidationError({field: str(error)}) from error

    def live(self, limit: "Limit") -> Override:
        """Return the form in which calls meet it; raise ``ValueError`` if it is not valid."""
        if self.effect not in overrides.EFFECTS:
            raise ValueError(f"effect: unknown {self.effect!r} (have: {', '.join(overrides.EFFECTS)})")
        return Override(self.effect, self.checked_policy(limit), _instant(self.ends_at))

    def checked_policy(self, limit: "Limit | None") -> Policy | None:
        """Return the policy of its rate for a limit, ``None`` where the effect is another one.

        Raises ``ValueError`` where the rate or the burst does not fit the effect or the limit.
        """
        if self.effect != Effect.RATE:
            self._check_no_rate()
            return None
        if limit is None:
            return Policy.parse(self.rate)
        policy = Policy.parse(self.rate, name=limit.name, algorithm=limit.algorithm, burst=self.burst)
        if limit.cost > policy.quota:
            raise ValueError(
                f"rate: a quota from {limit.cost}, which one request costs, or every request is refused "
                f"(blocked says so); got {self.rate!r}"
            )
        return policy

    def _check_no_rate(self) -> None:
        for field, value in {"rate": self.rate, "burst": self.burst}.items():
            if value not in {"", None}:
                raise ValueError(f"{field}: only where the effect is rate, got {value!r}")


def cleaned_key(text: str) -> str:
    """Return a key as it is stored; raise ``ValidationError`` for what is none."""
    try:
        return overrides.normal_key(text)
    except ValueError as error:
        raise ValidationError(str(error)) from error


def _instant(moment: datetime.datetime | None) -> int | None:
    """Return a moment in microseconds since the epoch; without a zone it is in the project's."""
    if moment is None:
        return None
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)
