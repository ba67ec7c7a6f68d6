import datetime

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from model_bakery import baker

from ratelimit_app.models import Limit, LimitOverride
from ratelimit_app.overrides import EFFECTS, Override
from ratelimit_app.policy import Policy

pytestmark = pytest.mark.django_db


@pytest.fixture
def limit():
    return baker.make(Limit, name="a", rate="5/min", key="ip", cost=2)


def made(limit, **fields):
    return LimitOverride(
        **{"limit": limit, "key": "user:42", "rate": "9/min", "reason": "asked for"} | fields
    )


def errors(override):
    try:
        override.full_clean()
    except ValidationError as error:
        return error.message_dict
    return {}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"key": "203.0.113.0/24"},
        {"key": "k" * 255},
        {"rate": "2/calendar week"},
        {"effect": "exempt", "rate": ""},
        {"effect": "blocked", "rate": ""},
        {"ends_at": datetime.datetime(1999, 1, 1, tzinfo=datetime.timezone.utc)},
    ],
    ids=str,
)
def test_override_that_is_right_is_accepted(limit, fields):
    assert errors(made(limit, **fields)) == {}


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"key": ""}, "key", "blank"),
        ({"key": "k" * 256}, "key", "at most 255"),
        ({"key": "203.0.113.9/24"}, "key", "got '203.0.113.9/24'"),
        ({"key": "ip:nobody"}, "key", "got 'ip:nobody'"),
        ({"effect": "maybe", "rate": ""}, "effect", "not a valid choice"),
        ({"rate": ""}, "rate", "got ''"),
        ({"rate": "garbage"}, "rate", "got 'garbage'"),
        ({"rate": "1/min"}, "rate", "a quota from 2, which one request costs"),
        ({"burst": 3}, "burst", "a fixed window has none"),
        ({"effect": "exempt"}, "rate", "only where the effect is rate, got '9/min'"),
        ({"effect": "blocked", "rate": "", "burst": 3}, "burst", "only where the effect is rate, got 3"),
        ({"reason": ""}, "reason", "blank"),
    ],
    ids=str,
)
def test_override_that_is_wrong_is_refused_at_its_field(limit, fields, field, words):
    found = errors(made(limit, **fields))
    assert list(found) == [field]
    assert words in " ".join(found[field])


def test_rate_is_checked_with_the_algorithm_of_the_limit(limit):
    limit.algorithm = "token_bucket"
    assert errors(made(limit, burst=3)) == {}
    assert list(errors(made(limit, rate="9/month"))) == ["rate"]


def test_override_without_a_limit_is_told_so():
    assert list(errors(made(None))) == ["limit"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [("203.0.113.9", "ip:203.0.113.9"), ("2001:db8::1", "ip:2001:db8::/64"), (" user:42 ", "user:42")],
)
def test_key_is_written_in_one_way_however_it_is_saved(limit, given, kept):
    saved = made(limit, key=given)
    saved.save()
    assert saved.key == LimitOverride.objects.get().key == kept
    saved.delete()
    LimitOverride.objects.bulk_create([made(limit, key=given)])
    assert LimitOverride.objects.get().key == kept


def test_key_that_cannot_be_read_is_saved_as_it_is(limit):
    made(limit, key="ip:nobody").save()
    assert LimitOverride.objects.get().key == "ip:nobody"


@pytest.mark.parametrize(("first", "second"), [("k", "k"), ("203.0.113.9", "ip:203.0.113.9")])
def test_override_is_one_for_a_limit_and_a_key(limit, first, second):
    made(limit, key=first).save()
    assert errors(made(limit, key=second)) != {}
    with pytest.raises(IntegrityError), transaction.atomic():
        made(limit, key=second).save()
    made(baker.make(Limit, name="b", rate="5/min"), key=second).save()


@pytest.mark.parametrize("other", ["K", "kk", "ḱ", "k-"])
def test_keys_are_compared_exactly(limit, other):
    made(limit, key="k").save()
    assert errors(made(limit, key=other)) == {}
    made(limit, key=other).save()
    assert LimitOverride.objects.get(key="k").key == "k"


def test_overrides_go_with_their_limit(limit):
    made(limit).save()
    limit.delete()
    assert not LimitOverride.objects.exists()


def test_live_has_the_policy_under_the_name_of_the_limit(limit):
    ends_at = datetime.datetime(2026, 6, 1, 12, 0, 0, 7, tzinfo=datetime.timezone.utc)
    assert made(limit, ends_at=ends_at).live(limit) == Override(
        "rate", Policy.parse("9/min", name="a"), 1_780_315_200_000_007
    )
    assert made(limit, effect="exempt", rate="").live(limit) == Override("exempt")


def test_end_without_a_zone_is_in_that_of_the_project(limit, settings):
    settings.TIME_ZONE = "America/New_York"
    local = datetime.datetime(2026, 6, 1, 8, tzinfo=datetime.timezone.utc).replace(tzinfo=None)
    assert made(limit, ends_at=local).live(limit).ends_at == 1_780_315_200_000_000


def test_effects_to_choose_are_those_that_there_are():
    choices = LimitOverride._meta.get_field("effect").flatchoices
    assert [value for value, _ in choices] == list(EFFECTS)


def test_override_is_shown_by_its_key_and_what_it_does(limit):
    assert str(made(limit)) == "user:42: 9/min"
    assert str(made(limit, effect="blocked", rate="")) == "user:42: blocked"
