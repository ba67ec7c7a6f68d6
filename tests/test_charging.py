"""Cost and charging as views and visitors meet them: through the real client."""

import asyncio
import logging
import threading

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import authenticate
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import charging, limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter
from ratelimit_app.stores import store_for
from ratelimit_app.throttling import RateLimitThrottle
from tests import races
from tests.outages import outage

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

ME = "ip:127.0.0.1"
ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket"]
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def behave(request):
    """Do what the query says, in the words of the views below."""
    told = request.GET
    if "cost" in told:
        charging.set_cost(request, told.get("of", "tokens"), int(told["cost"]))
    if "refund" in told:
        charging.refund(request, told["refund"])
    if "fail" in told:
        charging.fail(request)
    if "raise" in told:
        raise ZeroDivisionError
    return int(told.get("status", 200))


@ratelimit("tokens")
def plain(request):
    return HttpResponse("ok", status=behave(request))


@ratelimit("tokens")
async def awaited(request):
    await asyncio.sleep(0)
    return HttpResponse("ok", status=behave(request))


@ratelimit("tokens")
async def telling_late(request):
    async def parts():
        yield "ok"
        await charging.aset_cost(request, "tokens", 3)

    return StreamingHttpResponse(parts())


@method_decorator(ratelimit("tokens"), name="dispatch")
class ByClass(View):
    def get(self, request):
        return HttpResponse("ok", status=behave(request))


class Framework(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "tokens"

    def get(self, request):
        return Response("ok", status=behave(request))


@ratelimit("tokens")
@ratelimit("other")
def twofold(request):
    return HttpResponse("ok", status=behave(request))


@ratelimit("tokens", "other")
def both(request):
    return HttpResponse("ok", status=behave(request))


@ratelimit("tokens")
def streaming(request):
    def parts():
        yield b"a"
        charging.set_cost(request, "tokens", 7)
        charging.set_cost(request, "tokens", 9)
        yield b"b"

    return StreamingHttpResponse(parts())


@ratelimit("tokens")
def logging_in(request):
    authenticate(request, username="nobody", password="wrong")
    return HttpResponse("try again")


@ratelimit("tokens")
def limiting_inside(request):
    with limiter.limited("other", ME):
        return HttpResponse("ok")


#: All who came: those who are let in wait until the others are refused.
settled = threading.Barrier(8, timeout=60)


@ratelimit("tokens")
def held(request):
    settled.wait()
    return HttpResponse("ok", status=behave(request))


@ratelimit("5/min")
def inline(request):
    return HttpResponse("ok", status=behave(request))


urlpatterns = [
    path("telling-late", telling_late),
    path("plain", plain),
    path("awaited", awaited),
    path("class", ByClass.as_view()),
    path("framework", Framework.as_view()),
    path("twofold", twofold),
    path("both", both),
    path("streaming", streaming),
    path("logging-in", logging_in),
    path("limiting-inside", limiting_inside),
    path("inline", inline),
    path("held", held),
]

every_view = pytest.mark.parametrize("where", ["/plain", "/awaited", "/class", "/framework"])
with_and_without_middleware = pytest.mark.parametrize("middleware", [True, False])


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def charge(settings):
    """Set the limits up: ``tokens`` and ``other``, with fields of their own."""

    def set_up(charge, *, other=None, **fields):
        settings.RATELIMIT_LIMITS = {
            "tokens": {"rate": "5/min", "charge": charge, **fields},
            "other": other or "100/min",
        }

    return set_up


@pytest.fixture
def client(client):
    client.raise_request_exception = False
    return client


def used(limit="tokens"):
    return limiter.peek(limit, ME).used


def shown(answer):
    return answer["RateLimit"].partition(";")[2].partition(";")[0]


# What a request costs -----------------------------------------------------------------------------


@every_view
@with_and_without_middleware
@pytest.mark.parametrize(
    ("charged", "query", "cost"),
    [
        ("before", "", 1),
        ("before", "?status=404", 1),
        ("before", "?fail", 1),
        ("before", "?cost=3", 3),
        ("before", "?refund=tokens", 0),
        ("after", "", 1),
        ("after", "?cost=0", 0),
        ("after", "?cost=1", 1),
        ("after", "?cost=4", 4),
        ("after", "?cost=4711", 4711),
        ("after", "?cost=4&status=500", 4),
        ("failures", "", 0),
        ("failures", "?status=302", 0),
        ("failures", "?status=399", 0),
        ("failures", "?status=400", 1),
        ("failures", "?status=503", 1),
        ("failures", "?status=429", 0),
        ("failures", "?fail", 1),
        ("failures", "?fail&refund=tokens", 0),
        ("failures", "?status=400&cost=3", 3),
        ("failures", "?cost=2&of=other", 0),
        ("successes", "", 1),
        ("successes", "?status=400", 0),
        ("successes", "?fail", 0),
        ("successes", "?status=429", 0),
        ("successes", "?refund=tokens", 0),
    ],
)
def test_request_costs_what_its_charge_says(
    where, middleware, charged, query, cost, client, charge, settings
):
    if not middleware:
        settings.MIDDLEWARE = []
    charge(charged)
    answer = client.get(where + query)
    assert answer.status_code == int(answer.wsgi_request.GET.get("status", 200))
    assert used() == cost
    if answer.status_code != 429:
        assert shown(answer) == f"r={max(0, 5 - cost)}"


def test_async_stream_may_tell_its_cost_while_it_is_sent(charge):
    charge("after")

    async def visit():
        response = await AsyncClient().get("/telling-late")
        return [part async for part in response.streaming_content]

    assert async_to_sync(visit)() == [b"ok"]
    assert used() == 3


@pytest.mark.parametrize("where", ["/plain", "/awaited", "/class", "/framework"])
@with_and_without_middleware
@pytest.mark.parametrize(
    ("charged", "cost"), [("before", 1), ("after", 1), ("failures", 1), ("successes", 0)]
)
def test_view_that_raises_has_failed(where, middleware, charged, cost, client, charge, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    charge(charged)
    assert client.get(f"{where}?raise").status_code == 500
    assert used() == cost


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("charged", ["after", "failures", "successes"])
def test_no_more_get_in_at_once_than_the_quota(charged, charge):
    charge(charged)
    settled.reset()

    def visit(index):
        answer = Client().get("/held?cost=0&of=tokens")
        if answer.status_code == 429:
            settled.wait()
        return answer.status_code

    assert sorted(races.in_threads(8, visit)) == [200] * 5 + [429] * 3
    assert used() == 0


@every_view
@with_and_without_middleware
def test_cost_of_the_limit_is_given_back_whole(where, middleware, client, charge, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    charge("failures", cost=2)
    assert [client.get(where).status_code for _ in range(9)] == [200] * 9
    assert [client.get(f"{where}?status=400").status_code for _ in range(3)] == [400, 400, 429]
    assert used() == 4


@with_and_without_middleware
@pytest.mark.parametrize("where", ["/both", "/twofold"])
@pytest.mark.parametrize("charged", ["after", "failures", "successes"])
def test_request_that_another_limit_refuses_is_free(middleware, where, charged, client, charge, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    charge(charged, other="1/min")
    limiter.consume("other", ME)
    assert client.get(where).status_code == 429
    assert used() == 0


def test_request_that_another_limit_refuses_costs_what_is_charged_before(client, charge):
    charge("before", other="1/min")
    limiter.consume("other", ME)
    assert client.get("/twofold").status_code == 429
    assert used() == 1


@pytest.mark.parametrize("charged", ["failures", "successes"])
def test_refusal_inside_the_view_is_neither_failure_nor_success(charged, client, charge):
    charge(charged, other="1/min")
    limiter.consume("other", ME)
    assert client.get("/limiting-inside").status_code == 429
    assert used() == 0


@pytest.mark.parametrize("own", [302, 503])
def test_refusal_of_a_status_of_the_projects_own_is_neither(own, client, charge, settings, monkeypatch):
    monkeypatch.setitem(globals(), "refuse", lambda request, decision: HttpResponse(status=own))
    settings.RATELIMIT_REFUSAL = f"{__name__}.refuse"
    for charged in ("failures", "successes"):
        charge(charged, other="1/min")
        limiter.consume("other", ME)
        assert client.get("/twofold").status_code == own
        assert used() == 0


@pytest.mark.parametrize("where", ["/both", "/twofold"])
@with_and_without_middleware
@pytest.mark.parametrize(
    ("query", "costs"), [("", (0, 1)), ("?status=400", (1, 0)), ("?cost=4&of=other", (0, 4))]
)
def test_limits_of_different_charge_are_settled_each_in_its_way(
    where, middleware, query, costs, client, charge, settings
):
    if not middleware:
        settings.MIDDLEWARE = []
    charge("failures", other={"rate": "9/min", "charge": "successes"})
    client.get(where + query)
    assert (used(), used("other")) == costs


@with_and_without_middleware
def test_limit_met_twice_is_settled_once(middleware, client, charge, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    charge("failures", path="^/plain")
    assert [client.get("/plain").status_code for _ in range(3)] == [200] * 3
    assert used() == 0
    client.get("/plain?status=400")
    assert used() == 1


def test_limit_of_a_path_is_settled_by_the_middleware(client, charge):
    charge("failures", path="^/")
    client.get("/logging-in")
    client.get("/inline")
    client.get("/nowhere")
    assert used() == 1


def test_inline_limit_is_called_by_its_rate(client):
    assert [client.get("/inline?cost=5&of=5/min").status_code for _ in range(2)] == [200, 429]


def test_shadow_limit_is_charged_and_never_refuses(client, charge):
    charge("after", mode="shadow", other="9/min")
    answers = [client.get("/both?cost=9") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert used() == 9  # what is over the quota takes nothing
    assert not any("tokens" in answer["RateLimit"] for answer in answers)


def test_log_in_that_django_calls_failed_has_failed_though_its_form_answers_200(client, charge):
    charge("failures")
    assert client.get("/logging-in").status_code == 200
    assert used() == 1


def test_log_in_that_fails_outside_a_request_is_nobodys():
    assert authenticate(username="nobody", password="wrong") is None


def test_limits_that_are_off_or_unknown_or_free_are_never_charged(client, charge, settings):
    charge("after", mode="off")
    client.get("/plain?cost=9")
    charge("after")
    client.options("/plain?cost=9")
    settings.RATELIMIT_ENABLE = False
    client.get("/plain?cost=9")
    assert not Counter.objects.exists()


def test_cost_of_a_limit_that_there_is_not_is_reported_and_charges_nothing(client, charge, caplog):
    charge("after")
    assert client.get("/plain?cost=9&of=tokns").status_code == 200
    assert [(each.levelname, "'tokns'" in each.message) for each in caplog.records] == [("WARNING", True)]
    assert used() == 1


def test_cost_of_a_limit_that_the_request_has_not_met_is_nothing_to_report(client, charge, caplog):
    charge("after")
    client.get("/plain?cost=9&of=other")
    assert (caplog.records, used("other")) == ([], 0)


@pytest.mark.parametrize("cost", [-1, 1.0, "1", None, True, float("nan")])
def test_cost_that_is_none_is_an_error(cost):
    with pytest.raises(ValueError, match=r"^cost: a whole number of units from 0, got"):
        charging.set_cost(RequestFactory().get("/"), "tokens", cost)


@pytest.mark.parametrize("cost", [10**15, 10**30])
@every_algorithm
def test_cost_past_all_measure_is_a_debt_and_no_error(cost, algorithm, client, charge, caplog):
    charge("after", algorithm=algorithm)
    assert [client.get(f"/plain?cost={cost}").status_code for _ in range(2)] == [200, 429]
    assert not [each for each in caplog.records if each.name == "ratelimit_app"]


# Debts, and how they are paid ---------------------------------------------------------------------


@every_algorithm
@pytest.mark.parametrize(
    ("cost", "waits"),
    [
        (5, {"fixed_window": 50, "sliding_window": 62, "sliding_log": 60, "token_bucket": 12}),
        (10, {"fixed_window": 50, "sliding_window": 86, "sliding_log": 60, "token_bucket": 72}),
        (50, {"fixed_window": 50, "sliding_window": 106, "sliding_log": 60, "token_bucket": 552}),
    ],
)
def test_debt_refuses_until_it_is_paid(algorithm, cost, waits, client, clock, charge):
    charge("after", algorithm=algorithm)
    clock.advance(10)
    answer = client.get(f"/plain?cost={cost}")
    assert (answer.status_code, shown(answer)) == (200, "r=0")
    refused = client.get("/plain")
    assert (refused.status_code, shown(refused)) == (429, "r=0")
    wait = int(refused["Retry-After"])
    assert wait == waits[algorithm]
    clock.advance(wait - 1)
    assert client.get("/plain").status_code == 429
    clock.advance(1)
    assert client.get("/plain").status_code == 200


@every_algorithm
def test_debt_survives_pruning(algorithm, client, clock, charge):
    charge("after", algorithm=algorithm)
    client.get("/plain?cost=50")
    wait = limiter.peek("tokens", ME).retry_after
    for _ in range(20):
        clock.advance((wait - 0.001) / 20)
        store_for("ratelimit").prune(clock.read(), 1_000)
        assert client.get("/plain").status_code == 429
    clock.advance(0.1)
    assert client.get("/plain").status_code == 200


def test_debt_beside_counted_refusals_is_taken_whole(client, charge):
    charge("after", algorithm="token_bucket", count_denied=True)
    client.get("/plain?cost=50")
    assert used() == 50


# A response that comes late -----------------------------------------------------------------------


@every_algorithm
def test_refund_after_the_window_gives_nothing_to_the_next(algorithm, clock, charge):
    charge("before", algorithm=algorithm)
    first = limiter.consume("tokens", ME, cost=5)
    clock.advance(125)
    assert limiter.consume("tokens", ME, cost=5).allowed
    limiter.settle(first, 0)
    assert not limiter.peek("tokens", ME).allowed


def test_refund_is_taken_off_the_window_that_it_was_taken_from(clock, charge):
    charge("before")
    clock.advance(59)
    first = limiter.consume("tokens", ME, cost=3)
    clock.advance(2)
    limiter.consume("tokens", ME, cost=2)
    limiter.settle(first, 1)
    assert sorted(Counter.objects.values_list("count", flat=True)) == [1, 2]


def test_refund_of_a_log_is_of_its_own_call_and_not_of_a_later_one(clock, charge):
    charge("before", algorithm="sliding_log")
    first = limiter.consume("tokens", ME, cost=2)
    clock.advance(50)
    limiter.consume("tokens", ME, cost=3)
    limiter.settle(first, 0)
    assert used() == 3
    clock.advance(10)
    assert used() == 3
    clock.advance(50)
    assert used() == 0


@pytest.mark.parametrize(
    ("later", "between", "left"),
    [(0, 0, 5), (0, 2, 3), (6, 0, 5), (24, 0, 5), (24, 4, 1), (36, 4, 1)],
)
def test_refund_of_a_bucket_is_without_what_has_come_back_by_itself(later, between, left, clock, charge):
    """The bucket refills one in 12 s: never more is given back than is missing of what the call took."""
    charge("before", algorithm="token_bucket")
    first = limiter.consume("tokens", ME, cost=3)
    clock.advance(later)
    if between:
        assert limiter.consume("tokens", ME, cost=between).allowed
    limiter.settle(first, 0)
    assert limiter.peek("tokens", ME).remaining == left


def test_debt_is_taken_from_the_window_in_which_it_is_told(clock, charge):
    charge("before")
    decision = limiter.consume("tokens", ME)
    clock.advance(60)
    limiter.settle(decision, 9)
    assert used() == 8


# Streams, told late -------------------------------------------------------------------------------


@with_and_without_middleware
def test_stream_that_tells_its_cost_late_is_charged_then_and_once(middleware, client, charge, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    charge("after")
    answer = client.get("/streaming")
    assert used() == 1
    assert (answer.getvalue(), used()) == (b"ab", 7)


@pytest.mark.parametrize(("charged", "cost"), [("failures", 0), ("successes", 1)])
def test_stream_that_tells_its_cost_after_it_was_settled_changes_nothing(charged, cost, client, charge):
    charge(charged)
    assert (client.get("/streaming").getvalue(), used()) == (b"ab", cost)


# Trouble ------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["table", "server"])
@pytest.mark.parametrize("query", ["?cost=9", "?cost=0"])
def test_outage_when_it_is_settled_breaks_no_response(kind, query, client, charge, monkeypatch, caplog):
    charge("after")
    down = outage(kind)

    def break_down(request):
        down.__enter__()
        return behave_well(request)

    behave_well = behave
    monkeypatch.setitem(globals(), "behave", break_down)
    answer = client.get("/plain" + query)
    down.__exit__(None, None, None)
    assert (answer.status_code, answer.content) == (200, b"ok")
    assert shown(answer) == "r=4"
    assert {record.levelno for record in caplog.records if record.name == "ratelimit_app"} == {logging.ERROR}
    assert used() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("charged", ["failures", "successes"])
def test_charge_is_kept_though_the_views_transaction_is_rolled_back(charged, client, charge, monkeypatch):
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    charge(charged)
    client.get("/plain?raise")
    assert used() == (charged == "failures")


# What a request takes -----------------------------------------------------------------------------


def by_query(request):
    return eval(request.GET["cost"])


class CostByMethod(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "tokens"

    def throttle_cost(self, request):
        return by_query(request)

    def get(self, request):
        return Response("ok")


class CostByFunction(CostByMethod):
    throttle_cost = staticmethod(by_query)


class CostOfRubbish(CostByMethod):
    throttle_cost = "3"


class CostOfThree(CostByMethod):
    throttle_cost = 3


def answering(request):
    return HttpResponse("ok")


urlpatterns += [
    path("by-function", ratelimit("tokens", cost=by_query)(answering)),
    path("three", ratelimit("tokens", cost=3)(answering)),
    path("nothing", ratelimit("tokens", cost=0)(answering)),
    path("framework-by-method", CostByMethod.as_view()),
    path("framework-by-function", CostByFunction.as_view()),
    path("framework-rubbish", CostOfRubbish.as_view()),
    path("framework-three", CostOfThree.as_view()),
]

every_cost = pytest.mark.parametrize(
    "where", ["/by-function", "/framework-by-method", "/framework-by-function"]
)


@every_cost
@pytest.mark.parametrize("cost", [1, 3, 5])
def test_cost_function_says_what_is_taken(where, cost, client, charge):
    charge("before")
    assert client.get(f"{where}?cost={cost}").status_code == 200
    assert used() == cost
    assert client.get(f"{where}?cost={6 - cost}").status_code == 429


@every_cost
def test_cost_above_the_quota_never_fits(where, client, charge):
    charge("before")
    answer = client.get(f"{where}?cost=6")
    assert (answer.status_code, "Retry-After" in answer) == (429, False)


@every_cost
def test_cost_of_nothing_is_free_even_where_nothing_is_left(where, client, charge):
    charge("before")
    limiter.consume("tokens", ME, cost=5)
    assert client.get(f"{where}?cost=0").status_code == 200
    assert client.get(f"{where}?cost=1").status_code == 429


@every_cost
@pytest.mark.parametrize("rubbish", ["-1", "1.0", "True", "None", "'3'", "[]", "1/0", "nosuch"])
def test_cost_function_that_fails_is_reported_and_the_limits_own_cost_counts(
    where, rubbish, client, charge, caplog
):
    charge("before", cost=2)
    assert client.get(f"{where}?cost={rubbish}").status_code == 200
    assert used() == 2
    [record] = [each for each in caplog.records if each.name == "ratelimit_app"]
    assert record.levelno == logging.ERROR
    assert "The cost" in record.message


def test_cost_of_a_framework_view_that_is_rubbish_is_reported_too(client, charge, caplog):
    charge("before", cost=2)
    assert client.get("/framework-rubbish").status_code == 200
    assert used() == 2
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(("where", "cost"), [("/three", 3), ("/nothing", 0), ("/framework-three", 3)])
def test_cost_that_is_a_number_is_taken(where, cost, client, charge):
    charge("before")
    client.get(where)
    assert used() == cost


async def awaited_cost(request):
    return 1


@pytest.mark.parametrize("cost", [-1, 1.5, True, "1", [1], awaited_cost])
def test_cost_that_a_decorator_cannot_take_is_an_error(cost):
    with pytest.raises(ValueError, match=r"^cost: a whole number of units from 0 or a function"):
        ratelimit("tokens", cost=cost)
