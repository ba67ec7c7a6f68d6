import io

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections
from django.db.models import BigIntegerField

from ratelimit_app.models import Counter
from ratelimit_app.stores.rows import MAX_COUNT

TABLE = "ratelimit_app_counter"


@pytest.fixture
def constraints(db):
    connection = connections["ratelimit"]
    with connection.cursor() as cursor:
        return connection.introspection.get_constraints(cursor, TABLE)


@pytest.fixture
def columns(db):
    connection = connections["ratelimit"]
    with connection.cursor() as cursor:
        return connection.introspection.get_table_description(cursor, TABLE)


pytestmark = pytest.mark.django_db


def test_key_and_window_are_the_primary_key_and_the_only_unique_constraint(constraints):
    unique = [each for each in constraints.values() if each["unique"] or each["primary_key"]]
    assert [each["columns"] for each in unique] == [["key", "window_start"]]
    assert unique[0]["primary_key"]


def test_counter_has_no_column_but_its_own(columns):
    assert [column.name for column in columns] == ["key", "window_start", "count", "expires_at"]
    assert not any(column.null_ok for column in columns)


def test_only_the_expiry_is_indexed_besides(constraints):
    others = [each["columns"] for each in constraints.values() if each["index"] and not each["primary_key"]]
    assert others == [["expires_at"]]


@pytest.mark.parametrize("name", ["window_start", "count", "expires_at"])
def test_numbers_have_64_bits(columns, name):
    connection = connections["ratelimit"]
    column = next(column for column in columns if column.name == name)
    assert connection.introspection.get_field_type(column.type_code, column) in {
        "BigIntegerField",
        "IntegerField",
    }
    assert isinstance(Counter._meta.get_field(name), BigIntegerField)


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**32, MAX_COUNT, 2**63 - 1, -(2**63)])
def test_numbers_of_64_bits_come_back_as_they_were(number):
    Counter.objects.create(key="k", window_start=number, count=number, expires_at=number)
    assert list(Counter.objects.values_list("key", "window_start", "count", "expires_at")) == [
        ("k", number, number, number)
    ]


def test_key_has_255_characters():
    Counter.objects.create(key="k" * 255, window_start=0, count=1, expires_at=1)
    assert Counter.objects.get().key == "k" * 255


def test_row_is_there_once():
    Counter.objects.create(key="k", window_start=0, count=1, expires_at=1)
    with pytest.raises(IntegrityError):
        Counter.objects.create(key="k", window_start=0, count=2, expires_at=2)


@pytest.mark.parametrize(("one", "other"), [("k", "K"), ("kk", "k"), ("k_", "k%"), ("~", "^"), ("[", "{")])
def test_keys_are_compared_exactly(one, other):
    Counter.objects.create(key=one, window_start=0, count=1, expires_at=1)
    Counter.objects.create(key=other, window_start=0, count=2, expires_at=1)
    assert Counter.objects.get(key=one).count == 1
    assert Counter.objects.get(key=other).count == 2


def test_keys_are_ordered_byte_by_byte_on_every_database():
    keys = ["Z", "a", "B", "~", "!", "_", "{", "0", "aa", "a!", "A"]
    for key in keys:
        Counter.objects.create(key=key, window_start=0, count=1, expires_at=1)
    assert list(Counter.objects.order_by("key").values_list("key", flat=True)) == sorted(keys)


def test_migrations_are_those_of_the_models():
    call_command("makemigrations", "ratelimit_app", check=True, dry_run=True, stdout=io.StringIO())
