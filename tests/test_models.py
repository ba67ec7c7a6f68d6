import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections, transaction
from model_bakery import baker

from ratelimit_app import algorithms, limiter
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import MAX_QUOTA, Policy


def errors(**fields):
    """What the form would say, by field."""
    try:
        Limit(**{"name": "a", "rate": "5/m", **fields}).full_clean(validate_unique=False)
    except ValidationError as error:
        return error.message_dict
    return {}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rate": " 10 per 2 minutes "},
        {"rate": "3/month"},
        {"rate": f"{MAX_QUOTA}/calendar week"},
        {"key": "global"},
        {"key": "header:X-Api-Key"},
        {"key": "project.keys.client_key"},
        {"path": "^/api/(v[0-9]+)/"},
        {"methods": "post, PUT/HEAD"},
        {"mode": "off"},
        {"cost": 5},
        {"count_denied": True, "note": "because"},
        {"name": "a" * 64},
    ],
    ids=str,
)
def test_limit_that_is_right_is_accepted(fields):
    assert errors(**fields) == {}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "has space", "slug"),
        ("name", "a" * 65, "at most 64"),
        ("name", "", "blank"),
        ("rate", "", "blank"),
        ("rate", "garbage", "got 'garbage'"),
        ("rate", "0/m", "got 0"),
        ("rate", "5/fortnight", "unknown unit 'fortnight'"),
        ("rate", "5/2 month", "has no multiple"),
        ("algorithm", "magic", "magic"),
        ("burst", 3, "a fixed window has none"),
        ("key", "nobody", "got 'nobody'"),
        ("key", "no.such.function", "cannot be imported"),
        ("key", "", "blank"),
        ("path", "(", "not a regular expression"),
        ("path", "a{99999999999}", "not a regular expression"),
        ("path", "x" * 201, "at most 200"),
        ("methods", "POST, FETCH, GRAB", "FETCH, GRAB"),
        ("mode", "on", "not a valid choice"),
        ("cost", 0, "got 0"),
        ("cost", -1, "greater than or equal to 0"),
        ("cost", 6, "at most the quota"),
        ("cost", 10**20, "less than or equal to"),
    ],
)
def test_limit_that_is_wrong_is_refused_at_its_field(field, value, words):
    found = errors(**{field: value})
    assert list(found) == [field]
    assert words in " ".join(found[field])


def test_several_faults_are_all_told_at_once():
    assert set(errors(rate="garbage", key="nobody", path="(", methods="FETCH")) == {
        "rate",
        "key",
        "path",
        "methods",
    }


@pytest.mark.django_db
def test_name_is_unique():
    baker.make(Limit, name="a", rate="5/m")
    with pytest.raises(ValidationError, match="already exists"):
        Limit(name="a", rate="5/m").full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        baker.make(Limit, name="a", rate="5/m")


@pytest.mark.django_db
def test_limits_are_listed_by_name():
    for name in ("b", "c", "a"):
        baker.make(Limit, name=name, rate="5/m")
    assert [str(limit) for limit in Limit.objects.all()] == ["a", "b", "c"]


def test_defaults_make_a_plain_limit_per_address():
    limit = Limit(name="a", rate="5/m")
    assert limit.policy() == Policy("a", "fixed_window", 5, 60)
    assert (limit.key, limit.mode, limit.cost, limit.count_denied) == ("ip", "enforce", 1, False)
    assert (limit.pattern(), limit.method_set(), limit.checked_cost()) == (None, frozenset(), 1)


def test_algorithms_to_choose_are_those_that_there_are():
    choices = Limit._meta.get_field("algorithm").flatchoices
    assert [value for value, _ in choices] == algorithms.names()


@pytest.mark.parametrize(
    ("methods", "found"),
    [
        ("", set()),
        ("POST", {"POST"}),
        ("post,put", {"POST", "PUT"}),
        ("HEAD", {"GET"}),
        ("GET HEAD", {"GET"}),
        (" OPTIONS / TRACE ", {"OPTIONS", "TRACE"}),
    ],
)
def test_methods_are_read_whatever_parts_them(methods, found):
    assert Limit(methods=methods).method_set() == found


# Counters -----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_counter_holds_what_was_counted_in_whole_microseconds(clock):
    limiter.consume(Policy.parse("5/min", name="a"), "k", cost=2)
    counter = Counter.objects.get()
    assert (counter.count, counter.window_start) == (2, 1_780_315_200_000_000)
    assert counter.expires_at == 1_780_315_320_000_000
    assert str(counter) == f"{counter.key} 1780315200000000: 2"


@pytest.mark.django_db
def test_counter_keys_are_compared_exactly():
    keys = ["a", "A", "a#", "a/b", "a:b", "ip:1", "ip:10"]
    for key in keys:
        Counter.objects.create(key=key, window_start=1, count=1, expires_at=1)
    for key in keys:
        assert Counter.objects.get(key=key).key == key
    assert list(Counter.objects.order_by("key").values_list("key", flat=True)) == sorted(keys)


@pytest.mark.django_db
def test_counter_is_one_per_key_and_window():
    for window_start in (1, 2):
        Counter.objects.create(key="a", window_start=window_start, count=1, expires_at=1)
    with pytest.raises(IntegrityError), transaction.atomic(using="ratelimit"):
        Counter.objects.create(key="a", window_start=1, count=1, expires_at=1)


@pytest.mark.django_db
def test_table_of_counters_has_one_unique_key_and_one_index_of_the_end():
    connection = connections["ratelimit"]
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, Counter._meta.db_table).values()
    unique = [each["columns"] for each in found if each["unique"] or each["primary_key"]]
    others = [each["columns"] for each in found if each["index"] and not each["unique"]]
    assert (unique, others) == ([["key", "window_start"]], [["expires_at"]])
