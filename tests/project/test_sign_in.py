"""The worked example: failures count, by name and address and by address alone."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ratelimit_app.models import Counter

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

ATTACKER, OTHER = "203.0.113.1", "203.0.113.2"


@pytest.fixture(autouse=True)
def account(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_user("victim", password="right")


def sign_in(name="victim", password="wrong", remote=ATTACKER):
    return Client().post("/sign-in/", {"username": name, "password": password}, REMOTE_ADDR=remote)


def statuses(names):
    return [sign_in(name).status_code for name in names]


def seen(answer, name):
    """Return all that a visitor sees of an answer, but for the name that was sent and the CSRF token."""
    body = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", answer.text).replace(name, "NAME")
    fields = {name: value for name, value in answer.items() if name != "Expires"}  # the time of day
    return answer.status_code, fields, body, sorted(answer.cookies)


def test_guesses_are_refused_at_the_sixth_for_a_name_and_at_the_36th_request_from_an_address():
    assert statuses(["victim"] * 10) == [200] * 5 + [429] * 5
    assert statuses([f"name{number}" for number in range(40)]) == [200] * 25 + [429] * 15


def test_victim_gets_in_from_elsewhere_while_the_attack_goes_on():
    statuses(["victim"] * 10)
    answer = sign_in(password="right", remote=OTHER)
    assert (answer.status_code, answer["Location"]) == (302, "/ratelimit/status/")


def test_right_password_costs_nothing_however_often():
    assert [sign_in(password="right").status_code for _ in range(40)] == [302] * 40
    assert statuses(["victim"] * 6) == [200] * 5 + [429]


def test_looking_at_the_form_is_free():
    assert [Client().get("/sign-in/", REMOTE_ADDR=ATTACKER).status_code for _ in range(40)] == [200] * 40
    assert not Counter.objects.exists()


def test_name_without_an_account_is_answered_in_the_same_way():
    known = [seen(sign_in("victim", remote=ATTACKER), "victim") for _ in range(7)]
    unknown = [seen(sign_in("nobody", remote=OTHER), "nobody") for _ in range(7)]
    assert known == unknown
    assert [status for status, *_ in known] == [200] * 5 + [429] * 2


@pytest.mark.parametrize("spelled", ["Victim", " victim", "victim ", "VICTIM", "\uff56ictim", "\tvictim"])
def test_spellings_of_a_name_are_one_name(spelled):
    statuses(["victim", spelled] * 2 + ["victim"])
    assert sign_in(spelled).status_code == sign_in("victim").status_code == 429


@pytest.mark.parametrize("name", ["a", "a" * 100_000, "é", "😀", "' OR 1=1 --"])
def test_any_name_is_limited(name):
    assert statuses([name] * 6) == [200] * 5 + [429]


@pytest.mark.parametrize("name", ["", " ", "a\x00"])
def test_what_the_form_does_not_even_try_costs_nothing(name):
    assert statuses([name] * 6) == [200] * 6
    assert not Counter.objects.filter(count__gt=0).exists()


def test_names_are_never_stored_as_they_are():
    sign_in("victim")
    assert not Counter.objects.filter(key__contains="victim").exists()


def test_refused_requests_of_ever_new_names_start_no_counters():
    statuses([f"name{number}" for number in range(60)])
    assert Counter.objects.count() == 31
