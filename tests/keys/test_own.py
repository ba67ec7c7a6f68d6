import operator
import sys

import pytest
from django.test import RequestFactory

from ratelimit_app import keys
from ratelimit_app.models import Counter


def request():
    return RequestFactory().get("/", REMOTE_ADDR="203.0.113.9")


def none(request):
    return None


def number(request):
    return 42


def wrong(request):
    raise LookupError("no such tenant")


def leave(request):
    sys.exit("no more")


def interrupt(request):
    raise KeyboardInterrupt


async def awaited(request):
    return "never"


def later(request):
    answer = awaited(request)
    answer.close()
    return answer


class NoText:
    pass


def no_text(request):
    return NoText()


class Tenant:
    def __call__(self, request):
        return "tenant:1"


tenant = Tenant()
path = operator.attrgetter("path")
not_callable = 5


@pytest.mark.parametrize(
    ("name", "key"), [("none", None), ("number", "42"), ("tenant", "tenant:1"), ("path", "/")]
)
def test_own_function_returns_a_text_or_none(name, key):
    assert keys.load(f"{__name__}.{name}")(request()) == key


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "failed"),
        ("no_text", "returned a NoText"),
        ("later", "returned a coroutine"),
    ],
)
def test_own_function_that_fails_counts_by_address_and_is_reported_once(name, words, caplog):
    key = keys.load(f"{__name__}.{name}")
    assert [key(request()), key(request())] == ["ip:203.0.113.9"] * 2
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", f"The key function {name} {words}")
    ]


@pytest.mark.parametrize(("name", "error"), [("leave", SystemExit), ("interrupt", KeyboardInterrupt)])
def test_end_of_the_process_is_no_failure_of_the_function(name, error, caplog):
    """A server's signal to a worker comes as such an error, wherever the worker is."""
    with pytest.raises(error):
        keys.load(f"{__name__}.{name}")(request())
    assert caplog.records == []


@pytest.mark.django_db
def test_own_function_that_returns_none_limits_nothing(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": f"{__name__}.none"}}
    answers = [client.get("/export") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert "RateLimit" not in answers[0]
    assert not Counter.objects.exists()
