"""What a refused visitor gets: a page, a problem document, or what the project makes of it."""

import pytest
from django.contrib.auth.models import Group
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import path

from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

PROBLEM = "application/problem+json"
PAGE = "text/html; charset=utf-8"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"


def ok(request):
    return HttpResponse("ok")


async def aok(request):
    return HttpResponse("ok")


urlpatterns = [
    path("by-path", ok),
    path("decorated", ratelimit("door")(ok)),
    path("awaited", ratelimit("door")(aok)),
]
WHERE = ["/by-path", "/decorated", "/awaited"]
everywhere = pytest.mark.parametrize("where", WHERE)


@pytest.fixture(autouse=True)
def refused(settings, clock):
    settings.MIDDLEWARE = ["ratelimit_app.middleware.RateLimitMiddleware"]
    settings.RATELIMIT_LIMITS = {"door": {"rate": "1/min", "path": "^/by-path"}}
    limiter.consume("door", "ip:127.0.0.1")


# A page or a document ----------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, PROBLEM),
        ("", PROBLEM),
        ("*/*", PROBLEM),
        ("application/json", PROBLEM),
        ("application/*", PROBLEM),
        ("application/json, text/html;q=0.5", PROBLEM),
        ("text/html;q=0, */*", PROBLEM),
        ("image/png", PROBLEM),
        ("rubbish", PROBLEM),
        (";;q=,\x7f/", PROBLEM),
        ("text/html;q=rubbish", PAGE),
        ("text/html", PAGE),
        ("text/*", PAGE),
        ("application/json;q=0.5, text/html", PAGE),
        (BROWSER, PAGE),
    ],
)
def test_kind_is_what_the_visitor_prefers(accept, kind, where, client):
    answer = client.get(where, headers={} if accept is None else {"Accept": accept})
    assert (answer.status_code, answer["Content-Type"]) == (429, kind)
    assert (answer["Retry-After"], answer["Cache-Control"], answer["Vary"]) == ("60", "no-store", "Accept")
    assert answer["RateLimit"] == '"door";r=0;t=60'


@everywhere
def test_page_says_when_to_try_again(where, client):
    page = client.get(where, headers={"Accept": BROWSER}).text
    assert page.startswith("<!doctype html>")
    assert "Too many requests. Try again in 60 seconds." in page


@everywhere
def test_page_may_be_the_projects_own(where, client, settings, tmp_path):
    (tmp_path / "429.html").write_text("{{ request.path }}: {{ decision.limit }}, {{ detail }}")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    answer = client.get(where, headers={"Accept": BROWSER})
    assert answer.text == f"{where}: door, Too many requests. Try again in 60 seconds."


@everywhere
@pytest.mark.parametrize("broken", ["{% nosuch %}", None], ids=["syntax", "no templates at all"])
def test_page_that_cannot_be_rendered_is_reported_and_the_document_goes_out(
    broken, where, client, settings, tmp_path, caplog
):
    (tmp_path / "429.html").write_text(broken or "")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}] if broken else []
    answer = client.get(where, headers={"Accept": BROWSER})
    assert (answer.status_code, answer["Content-Type"], answer["Retry-After"]) == (429, PROBLEM, "60")
    assert "429.html cannot be rendered" in caplog.text


def test_allowed_answer_does_not_depend_on_what_is_accepted(client):
    limiter.reset("door", "ip:127.0.0.1")
    assert "Vary" not in client.get("/decorated")


# The project's own -------------------------------------------------------------------------------


def own(request, decision):
    return JsonResponse({"slow": decision.limit, "down": request.path}, status=429)


async def own_async(request, decision):
    return JsonResponse(
        {"groups": [group.name async for group in Group.objects.all()]},
        status=429,
        headers={"Vary": "Cookie"},
    )


def busy(request, decision):
    response = HttpResponse("busy", status=503, headers={"Retry-After": "7", "Cache-Control": "private"})
    response.set_cookie("seen", "1")
    return response


def lazy(request, decision):
    return TemplateResponse(request, "429.html", {"detail": "lazily"}, status=429)


def failing(request, decision):
    raise ZeroDivisionError


async def failing_async(request, decision):
    raise ZeroDivisionError


def nothing(request, decision):
    return None


def streaming(request, decision):
    return StreamingHttpResponse(iter([b"slow"]), status=429)


def unrenderable(request, decision):
    return TemplateResponse(request, "no-such-template.html", status=429)


@everywhere
@pytest.mark.parametrize(
    ("function", "status", "body", "fields"),
    [
        ("own", 429, '{"slow": "door", "down": "WHERE"}', {"Retry-After": "60", "Cache-Control": "no-store"}),
        ("own_async", 429, '{"groups": []}', {"Retry-After": "60", "Vary": "Cookie"}),
        ("busy", 503, "busy", {"Retry-After": "7", "Cache-Control": "private"}),
    ],
)
def test_function_of_the_project_makes_the_refusal(function, status, body, fields, where, client, settings):
    settings.RATELIMIT_REFUSAL = f"{__name__}.{function}"
    answer = client.get(where, headers={"Accept": BROWSER})
    assert (answer.status_code, answer.text) == (status, body.replace("WHERE", where))
    assert {name: answer[name] for name in fields} == fields
    assert answer["RateLimit"] == '"door";r=0;t=60'
    assert list(answer.cookies) == (["seen"] if function == "busy" else [])


@everywhere
def test_function_may_return_a_template_response(where, client, settings):
    settings.RATELIMIT_REFUSAL = f"{__name__}.lazy"
    answer = client.get(where)
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    assert "lazily" in answer.text


@everywhere
@pytest.mark.parametrize(
    "function", ["failing", "failing_async", "nothing", "streaming", "unrenderable", "no_such_function"]
)
def test_function_that_fails_is_reported_and_the_apps_own_answer_goes_out(
    function, where, client, settings, caplog
):
    settings.RATELIMIT_REFUSAL = f"{__name__}.{function}"
    answer = client.get(where)
    assert (answer.status_code, answer["Content-Type"], answer["Retry-After"]) == (429, PROBLEM, "60")
    assert "RATELIMIT_REFUSAL" in caplog.text


def ended(request, decision):
    raise SystemExit("the worker was told to stop, by a signal that came just now")


def interrupted(request, decision):
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["/by-path", "/decorated"])
@pytest.mark.parametrize(("function", "error"), [("ended", SystemExit), ("interrupted", KeyboardInterrupt)])
def test_end_of_the_process_is_no_failure_of_the_function(function, error, where, client, settings, caplog):
    settings.RATELIMIT_REFUSAL = f"{__name__}.{function}"
    with pytest.raises(error):
        client.get(where)
    assert not caplog.records
