import asyncio
import gzip
import json

import http_sf
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.test import Client
from django.urls import include, path
from model_bakery import baker
from rest_framework.decorators import api_view

from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter, Limit
from tests.outages import outage

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

MIDDLEWARE = "ratelimit_app.middleware.RateLimitMiddleware"
ME = "ip:127.0.0.1"
#: Names that make a long refusal, which is smaller when it is compressed.
MANY = [f"{'a' * 60}{number}" for number in range(8)]


def view(request, **kwargs):
    return HttpResponse("ok")


def streaming(request):
    return StreamingHttpResponse(iter([b"a", b"b"]))


async def streaming_async(request):
    async def parts():
        yield b"a"
        yield b"b"

    return StreamingHttpResponse(parts())


def failing(request):
    raise ZeroDivisionError


def forbidden(request):
    raise PermissionDenied


def missing(request):
    raise Http404


def raising(request):
    with limiter.limited("named", ME):
        return HttpResponse("ok")


async def raising_async(request):
    async with limiter.limited("named", ME):
        return HttpResponse("ok")


def busy(request):
    return HttpResponse("busy", status=429, headers={"Retry-After": "7"})


async def awaited(request):
    await asyncio.sleep(0)
    return HttpResponse("ok")


inside = [path("one", view, name="one"), path("two", view, name="two")]
urlpatterns = [
    path("api/things", view, name="things"),
    path("api/things/<int:pk>", view, name="thing"),
    path("api/streaming", streaming),
    path("api/streaming-async", streaming_async),
    path("api/failing", failing),
    path("api/forbidden", forbidden),
    path("api/missing", missing),
    path("api/raising", raising),
    path("api/raising-async", raising_async),
    path("api/raising-drf", api_view(["GET"])(lambda request: raising(request))),
    path("api/busy", busy),
    path("api/awaited", awaited),
    path("api/probe", view, name="probe"),
    path("api/probe2", view, name="probe2"),
    path("api/probe-with-own", ratelimit("named")(view), name="own"),
    path("api/many", ratelimit(*MANY)(view)),
    path("api/inside/", include((inside, "inside"))),
    path("api/status/", include("ratelimit_app.urls")),
    path("elsewhere", view),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        "api": {"rate": "2/min", "path": "^/api/"},
        "named": "1/min",
    }


def statuses(client, where, times=3, method="get", **extra):
    return [getattr(client, method)(where, **extra).status_code for _ in range(times)]


def parsed(answer, field):
    return http_sf.parse(answer[field].encode(), tltype="list")


# What is sent -------------------------------------------------------------------------------------


def test_allowed_answer_carries_the_fields(client, clock):
    clock.advance(12.5)
    answer = client.get("/api/things")
    assert (answer.status_code, answer.content) == (200, b"ok")
    assert parsed(answer, "RateLimit-Policy") == [("api", {"q": 2, "w": 60})]
    assert parsed(answer, "RateLimit") == [("api", {"r": 1, "t": 48})]
    assert "Retry-After" not in answer
    assert "Cache-Control" not in answer


def test_refused_answer_in_full(client, clock, settings):
    settings.MIDDLEWARE = [MIDDLEWARE]
    clock.advance(12.5)
    answer = [client.get("/api/things") for _ in range(3)][-1]
    assert answer.status_code == 429
    assert dict(answer.items()) == {
        "Content-Type": "application/problem+json",
        "Cache-Control": "no-store",
        "Vary": "Accept",
        "Retry-After": "48",
        "RateLimit-Policy": '"api";q=2;w=60',
        "RateLimit": '"api";r=0;t=48',
    }
    assert json.loads(answer.content) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota exceeded",
        "status": 429,
        "detail": "Too many requests. Try again in 48 seconds.",
        "violated-policies": ["api"],
        "retry_after": 48,
    }


@pytest.mark.parametrize(("into", "wait"), [(0, 60), (58.2, 2), (59.3, 1), (59.999, 1)])
def test_retry_after_is_whole_seconds_after_which_it_works(into, wait, client, clock):
    clock.advance(into)
    answer = [client.get("/api/things") for _ in range(3)][-1]
    assert answer["Retry-After"] == str(wait)
    assert answer.json()["retry_after"] == wait
    clock.advance(wait)
    assert client.get("/api/things").status_code == 200


def secret(request):
    return "secret-key"


def test_key_is_never_shown(client, settings):
    settings.RATELIMIT_LIMITS = {"api": {"rate": "1/min", "path": "^/api/", "key": f"{__name__}.secret"}}
    answers = [client.get("/api/things") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert not any("secret-key" in answer.text + str(answer.headers) for answer in answers)


def test_limit_elsewhere_leaves_an_answer_as_it_is(client):
    answer = client.get("/elsewhere")
    assert answer.status_code == 200
    assert not [name for name, _ in answer.items() if name.startswith(("RateLimit", "Retry"))]


def test_shadow_is_never_shown(client, settings):
    settings.RATELIMIT_LIMITS = {
        "shade": {"rate": "1/min", "path": "^/api/", "mode": "shadow"},
        "api": {"rate": "3/min", "path": "^/api/"},
    }
    answers = [client.get("/api/things") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [parsed(answer, "RateLimit") for answer in answers] == [
        [("api", {"r": r, "t": 60})] for r in (2, 1, 0, 0)
    ]
    assert not [answer for answer in answers if "shade" in answer.text + str(answer.headers)]


def test_shadow_alone_shows_nothing(client, settings):
    settings.RATELIMIT_LIMITS = {"shade": {"rate": "1/min", "path": "^/api/", "mode": "shadow"}}
    answers = [client.get("/api/things") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert not any("RateLimit" in answer for answer in answers)


def test_view_that_raises_still_carries_the_fields_and_is_counted(client):
    client.raise_request_exception = False
    answers = [client.get("/api/failing") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [500, 500, 429]
    assert [parsed(answer, "RateLimit")[0][1]["r"] for answer in answers] == [1, 0, 0]


@pytest.mark.django_db(transaction=True)
def test_view_that_raises_in_its_transaction_is_counted(client, monkeypatch):
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    client.raise_request_exception = False
    assert statuses(client, "/api/failing", 4) == [500, 500, 429, 429]


@pytest.mark.parametrize("where", ["/api/streaming", "/api/streaming-async"])
def test_streaming_answer_carries_the_fields_and_stays_one(where, client, async_client):
    if where == "/api/streaming":  # Django lets no async stream go out by WSGI without a warning
        answer = client.get(where)
        assert (answer.streaming, answer.getvalue()) == (True, b"ab")
    else:

        async def ask():
            answer = await async_client.get(where)
            return answer, b"".join([part async for part in answer])

        answer, body = async_to_sync(ask)()
        assert (answer.streaming, body) == (True, b"ab")
    assert parsed(answer, "RateLimit")[0][1]["r"] == 1


@pytest.mark.parametrize("where", ["/api/raising", "/api/raising-async", "/api/raising-drf"])
def test_refusal_that_a_view_raises_is_the_429_and_shows_all_limits(where, client, async_client):
    limiter.consume("named", ME)
    for get in (client.get, async_to_sync(async_client.get)):
        answer = get(where)
        assert (answer.status_code, answer["Retry-After"]) == (429, "60")
        assert answer.json()["violated-policies"] == ["named"]
        assert [name for name, _ in parsed(answer, "RateLimit")] == ["api", "named"]
        assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("where", ["/api/forbidden", "/api/missing"])
def test_other_exceptions_are_answered_by_django_with_the_fields(where, client):
    answer = client.get(where)
    assert answer.status_code == {"/api/forbidden": 403, "/api/missing": 404}[where]
    assert parsed(answer, "RateLimit") == [("api", {"r": 1, "t": 60})]


def test_429_of_the_views_own_is_left_alone(client):
    answer = client.get("/api/busy")
    assert (answer.status_code, answer.content, answer["Retry-After"]) == (429, b"busy", "7")
    assert answer["Content-Type"].startswith("text/html")
    assert parsed(answer, "RateLimit") == [("api", {"r": 1, "t": 60})]


@pytest.mark.parametrize("where", ["/api/things", "/api/many"])
def test_refusal_that_another_middleware_compresses_stays_readable(where, client, settings):
    settings.MIDDLEWARE = [
        MIDDLEWARE,
        "django.middleware.http.ConditionalGetMiddleware",
        "django.middleware.gzip.GZipMiddleware",
    ]
    settings.RATELIMIT_LIMITS = {name: {"rate": "1/min", "path": "^/api/things"} for name in MANY}
    limiter.consume_all(dict.fromkeys(MANY, ME))
    answer = client.get(where, headers={"Accept-Encoding": "gzip"})
    body = gzip.decompress(answer.content) if answer.get("Content-Encoding") == "gzip" else answer.content
    assert json.loads(body)["status"] == 429
    assert answer.get("Content-Length", str(len(answer.content))) == str(len(answer.content))


# What is counted ----------------------------------------------------------------------------------


def test_options_are_free_and_never_refused(client):
    assert statuses(client, "/api/things", 5, "options") == [200] * 5
    assert statuses(client, "/api/things") == [200, 200, 429]
    assert client.options("/api/things").status_code == 200
    assert Counter.objects.get().count == 2


def test_head_counts_as_get(client, settings):
    settings.RATELIMIT_LIMITS = {"api": {"rate": "2/min", "path": "^/api/", "methods": "GET"}}
    answers = [client.head("/api/things"), client.get("/api/things"), client.head("/api/things")]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert (answers[2].content, answers[2]["Retry-After"]) == (b"", "60")


def test_other_methods_than_the_limits_are_free(client, settings):
    settings.RATELIMIT_LIMITS = {"api": {"rate": "1/min", "path": "^/api/", "methods": "POST"}}
    assert statuses(client, "/api/things") == [200] * 3
    assert statuses(client, "/api/things", 2, "post") == [200, 429]


def test_query_and_rest_of_the_path_make_no_other_counter(client):
    for where in ("/api/things?a=1", "/api/things/2", "/%61pi/things", "/api/things/3?b"):
        last = client.get(where).status_code
    assert last == 429
    assert Counter.objects.count() == 1


def test_address_that_leads_nowhere_starts_no_counter(client):
    assert statuses(client, "/api/nowhere") == [404] * 3
    assert statuses(client, "//api/things") == [404] * 3
    assert not Counter.objects.exists()


def test_path_is_searched_unless_it_is_anchored(client, settings):
    settings.RATELIMIT_LIMITS = {"any": {"rate": "1/min", "path": "things"}}
    assert statuses(client, "/api/things/5", 2) == [200, 429]


def test_path_does_not_see_where_the_site_is_mounted(client):
    assert statuses(client, "/api/things", SCRIPT_NAME="/mounted") == [200, 200, 429]


def test_user_key_works_though_the_middleware_is_before_that_of_accounts(client, settings):
    settings.RATELIMIT_LIMITS = {"api": {"rate": "1/min", "path": "^/api/", "key": "user"}}
    client.force_login(baker.make(User))
    assert client.get("/api/things", REMOTE_ADDR="203.0.113.1").status_code == 200
    assert client.get("/api/things", REMOTE_ADDR="203.0.113.2").status_code == 429
    assert Client().get("/api/things", REMOTE_ADDR="203.0.113.2").status_code == 200


def test_several_limits_on_a_path_are_all_or_nothing(client, settings):
    settings.RATELIMIT_LIMITS = {
        "wide": {"rate": "9/min", "path": "^/api/"},
        "tight": {"rate": "1/min", "path": "^/api/things"},
    }
    answers = [client.get("/api/things") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    assert answers[-1].json()["violated-policies"] == ["tight"]
    assert sorted(Counter.objects.values_list("count", flat=True)) == [1, 1]


# What is exempt -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exempt", "free"),
    [
        ([], set()),
        (["probe"], {"/api/probe"}),
        (["one"], set()),
        (["inside:one"], {"/api/inside/one"}),
        (["inside:"], {"/api/inside/one", "/api/inside/two"}),
        (["inside"], set()),
        (["probe", "inside:two"], {"/api/probe", "/api/inside/two"}),
    ],
    ids=str,
)
def test_exemption_is_by_view_name_or_namespace(exempt, free, client, settings):
    settings.RATELIMIT_EXEMPT = exempt
    for where in ("/api/probe", "/api/probe2", "/api/inside/one", "/api/inside/two"):
        limiter.reset("api", ME)
        expected = [200] * 3 if where in free else [200, 200, 429]
        assert statuses(client, where) == expected, where


def test_exempt_view_starts_no_counter_and_shows_no_fields(client, settings):
    settings.RATELIMIT_EXEMPT = ["probe"]
    assert "RateLimit" not in client.get("/api/probe")
    assert not Counter.objects.exists()


def test_exempt_view_keeps_the_limits_on_itself(client, settings):
    settings.RATELIMIT_EXEMPT = ["own"]
    assert statuses(client, "/api/probe-with-own", 2) == [200, 429]


def test_exemption_is_by_the_view_found_not_by_the_text_of_the_path(client, settings):
    settings.RATELIMIT_EXEMPT = ["probe"]
    assert statuses(client, "/api/probe/../things") == [404] * 3
    assert statuses(client, "/api/things?/api/probe") == [200, 200, 429]


def test_status_view_is_never_refused(client, settings):
    settings.RATELIMIT_EXEMPT = []
    limiter.consume("api", ME, cost=2)
    assert statuses(client, "/api/things", 1) == [429]
    assert statuses(client, "/api/status/status/") == [200] * 3


@pytest.mark.urls("project.urls")
def test_probe_and_admin_stay_reachable_under_a_tight_limit_on_every_path(client, settings):
    staff = baker.make(User, username="ann", is_staff=True, is_superuser=True)
    staff.set_password("secret")
    staff.save()
    baker.make(Limit, name="all", rate="1/day", path=".*", key="ip")
    assert statuses(client, "/export", 2) == [200, 429]
    assert statuses(client, "/healthz", 100) == [200] * 100
    answer = client.post("/admin/login/?next=/admin/", {"username": "ann", "password": "secret"})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    change = f"/admin/ratelimit_app/limit/{Limit.objects.get().pk}/change/"
    form = client.get(change).context["adminform"].form.initial
    posted = {name: value for name, value in form.items() if value is not None} | {"rate": "9/day"}
    assert client.post(change, posted).status_code == 302
    assert statuses(client, "/export", 1) == [200]
    assert [row.count for row in Counter.objects.all() if row.key.startswith("all")] == [2]


# Async, and outages -------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["/api/awaited", "/api/things"])
def test_views_under_asgi_are_limited(where, async_client):
    get = async_to_sync(async_client.get)
    answers = [get(where) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [parsed(answer, "RateLimit")[0][1]["r"] for answer in answers] == [1, 0, 0]


def test_async_view_under_wsgi_is_limited(client):
    assert statuses(client, "/api/awaited") == [200, 200, 429]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["table", "server"])
def test_outage_lets_the_site_answer_without_fields(kind, client):
    assert statuses(client, "/api/things") == [200, 200, 429]
    with outage(kind):
        answer = client.get("/api/things")
    assert (answer.status_code, answer.content) == (200, b"ok")
    assert "RateLimit" not in answer
    assert statuses(client, "/api/things", 1) == [429]


def test_everything_off_by_setting_is_free_and_shows_nothing(client, settings):
    settings.RATELIMIT_ENABLE = False
    answers = [client.get("/api/things") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert "RateLimit" not in answers[0]
