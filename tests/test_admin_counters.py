"""The page of counters in the admin, through the real client and its real address."""

import zoneinfo
from html.parser import HTMLParser

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from model_bakery import baker

from ratelimit_app import limiter
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import Policy
from ratelimit_app.stores import Store

pytestmark = pytest.mark.django_db

PAGE = "/admin/ratelimit_app/limit/counters/"
HOSTILE = "<script>alert(1)</script>&amp;\"'--%00"


@pytest.fixture
def admin_user(db):
    return User.objects.create_superuser("admin")  # without a password: hashing one takes its time


def log_in(client, *permissions, is_staff=True):
    user = User.objects.create_user("someone", is_staff=is_staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return user


def make(*keys, window_start=0):
    rows = [Counter(key=key, window_start=window_start, count=1, expires_at=0) for key in keys]
    return Counter.objects.bulk_create(rows)


def keys():
    return list(Counter.objects.values_list("key", flat=True).order_by("key"))


def shown(response):
    return [line["key"] for line in response.context["lines"]]


def pages(client, **parameters):
    """Follow the links from page to page."""
    response = client.get(PAGE, parameters)
    yield response
    while following := response.context["next_page"]:
        assert f'href="?{following.replace("&", "&amp;")}"' in response.content.decode()
        response = client.get(f"{PAGE}?{following}")
        yield response


def sent(response, name):
    """Return what a browser would send of the controls of that name, those of the list's form."""
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append(dict(attributes))
    parser.feed(response.content.decode().partition('id="changelist-form"')[2])
    return [attributes["value"] for attributes in found if attributes.get("name") == name]


def buttons(response):
    return sent(response, "key")


# Who may ------------------------------------------------------------------------------------------


def test_page_has_a_name():
    assert reverse("admin:ratelimit_app_counters") == PAGE


@pytest.mark.parametrize("method", ["get", "post"])
def test_page_without_login_leads_to_it(client, method):
    make("a")
    response = getattr(client, method)(PAGE, {"key": "a"})
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/?next=")
    assert keys() == ["a"]


@pytest.mark.parametrize("method", ["get", "post"])
def test_page_for_those_who_are_not_staff_leads_to_the_login(client, method):
    log_in(client, "view_counter", "delete_counter", is_staff=False)
    make("a")
    assert getattr(client, method)(PAGE, {"key": "a"})["Location"].startswith("/admin/login/?next=")
    assert keys() == ["a"]


@pytest.mark.parametrize(
    ("permissions", "get", "post"),
    [
        ([], 403, 403),
        (["view_limit", "change_limit", "delete_limit"], 403, 403),
        (["delete_counter"], 403, 403),
        (["view_counter"], 200, 403),
        (["view_counter", "delete_counter"], 200, 302),
    ],
)
def test_page_takes_permissions(client, permissions, get, post):
    log_in(client, *permissions)
    make("a")
    assert client.get(PAGE).status_code == get
    assert client.post(PAGE, {"key": "a"}).status_code == post
    assert keys() == ([] if post == 302 else ["a"])
    assert LogEntry.objects.exists() is (post == 302)


def test_page_offers_a_reset_to_those_who_may(client):
    user = log_in(client, "view_counter")
    make("a")
    assert buttons(client.get(PAGE)) == []
    user.user_permissions.add(Permission.objects.get(codename="delete_counter"))
    assert buttons(client.get(PAGE)) == ["a"]


# What is shown ------------------------------------------------------------------------------------


def test_row_shows_its_counter(admin_client, clock):
    limit = baker.make(Limit, name="login", rate="5/min")
    for _ in range(3):
        limiter.consume("login", "ip:203.0.113.9")
    (line,) = admin_client.get(PAGE).context["lines"]
    assert line == {
        "limit": "login",
        "key": f"login@{limit.pk}:fixed_window:60:ip:203.0.113.9",
        "window_start": "2026-06-01 12:00:00+00:00",
        "count": 3,
        "expires_at": "2026-06-01 12:02:00+00:00",
    }
    page = admin_client.get(PAGE).content.decode()
    assert all(f">{value}<" in page for value in line.values())


def test_instants_are_in_the_current_time_zone(admin_client, clock):
    limiter.consume(Policy.parse("5/min"), "k")
    with timezone.override(zoneinfo.ZoneInfo("Asia/Kolkata")):
        (line,) = admin_client.get(PAGE).context["lines"]
    assert line["window_start"] == "2026-06-01 17:30:00+05:30"


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (1_780_315_200_500_000, "2026-06-01 12:00:00.500000+00:00"),
        (0, "1970-01-01 00:00:00+00:00"),
        (2**63 - 1, str(2**63 - 1)),
        (253_402_300_800_000_000, "253402300800000000"),
    ],
)
def test_instant_is_exact_and_never_an_error(admin_client, microseconds, text):
    Counter.objects.create(key="a", window_start=microseconds, count=1, expires_at=microseconds)
    with timezone.override(zoneinfo.ZoneInfo("UTC")):
        (line,) = admin_client.get(PAGE).context["lines"]
    assert (line["window_start"], line["expires_at"]) == (text, text)


@pytest.mark.parametrize("name", ["login", "3/month", "a@b", "two words", "a:b", "100%", "<b>"])
def test_row_shows_the_name_of_its_limit(admin_client, settings, name):
    settings.RATELIMIT_LIMITS = {name: "5/min"}
    limiter.consume(name, "k")
    limiter.consume(Policy.parse("5/min", name=name), "k")
    assert [line["limit"] for line in admin_client.get(PAGE).context["lines"]] == [name, name]


def test_row_of_a_name_that_is_stored_as_a_hash_shows_the_hash(admin_client):
    limiter.consume(Policy.parse("5/min", name="/" * 64), "k")
    (line,) = admin_client.get(PAGE).context["lines"]
    assert line["limit"].startswith("#")
    assert line["key"].startswith(line["limit"] + ":")


def test_hostile_key_comes_out_escaped(admin_client):
    limiter.consume(Policy.parse("5/min"), HOSTILE)
    response = admin_client.get(PAGE, {"q": HOSTILE})
    assert b"alert(1)" in response.content
    assert b"<script>alert(1)" not in response.content
    response = admin_client.get(PAGE)
    assert b"<script>alert(1)" not in response.content
    assert buttons(response) == keys()
    assert HOSTILE in keys()[0]


def test_page_without_counters_says_so(admin_client):
    assert b"No counters." in admin_client.get(PAGE).content


@pytest.mark.parametrize("alias", ["default", "ratelimit"])
def test_page_is_about_the_alias_in_the_settings_whatever_the_routers(admin_client, settings, alias):
    settings.RATELIMIT_DATABASE, settings.DATABASE_ROUTERS = alias, []
    Counter.objects.using(alias).create(key="a", window_start=0, count=1, expires_at=0)
    assert shown(admin_client.get(PAGE)) == ["a"]
    admin_client.post(PAGE, {"key": "a"})
    assert not Counter.objects.using(alias).exists()


# Pages --------------------------------------------------------------------------------------------


def test_pages_show_each_row_once_in_the_order_of_bytes(admin_client):
    rows = [("b", start) for start in range(150)]
    rows += [(f"{first}:{i}", start) for first in "~aBZ_%@" for i in range(8) for start in (0, 60)]
    Counter.objects.bulk_create(
        [Counter(key=key, window_start=start, count=start, expires_at=0) for key, start in reversed(rows)]
    )
    seen = [[(line["key"], line["count"]) for line in page.context["lines"]] for page in pages(admin_client)]
    assert [len(page) for page in seen] == [100, 100, 62]
    assert [row for page in seen for row in page] == sorted(rows)


@pytest.mark.parametrize(("rows", "lengths"), [(0, [0]), (99, [99]), (100, [100]), (101, [100, 1])])
def test_last_page_leads_no_further(admin_client, rows, lengths):
    make(*[f"{i:04}" for i in range(rows)])
    assert [len(shown(page)) for page in pages(admin_client)] == lengths


def test_next_page_stays_the_same_when_the_rows_before_it_go(admin_client):
    make(*[f"{i:04}" for i in range(150)])
    following = admin_client.get(PAGE).context["next_page"]
    Counter.objects.filter(key__lte="0099").delete()
    assert shown(admin_client.get(f"{PAGE}?{following}")) == [f"{i:04}" for i in range(100, 150)]


def test_next_page_keeps_the_search_and_leads_back_to_its_beginning(admin_client):
    make(*[f"a&{i:04}" for i in range(150)], "a", "b")
    first, second = pages(admin_client, q="a&")
    assert shown(first) + shown(second) == [f"a&{i:04}" for i in range(150)]
    assert first.context["first_page"] == ""
    assert shown(admin_client.get(f"{PAGE}?{second.context['first_page']}")) == shown(first)


def test_next_page_of_hostile_keys(admin_client):
    make(*[f"{HOSTILE}{i:04}" for i in range(101)])
    assert [len(shown(page)) for page in pages(admin_client)] == [100, 1]


def test_page_asks_one_query_that_counts_and_matches_nothing(admin_client):
    make(*[f"{i:04}" for i in range(150)])
    with CaptureQueriesContext(connections["ratelimit"]) as queries:
        second = list(pages(admin_client, q="0"))[1]
    assert len(shown(second)) == 50
    assert len(queries) == 2
    for query in queries:
        assert " LIMIT 101" in query["sql"]
        assert not any(word in query["sql"].upper() for word in ["COUNT(", "LIKE", "OFFSET", "UPPER("])


# Search -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ["Login@1:ip", "a%c", "a_c", "abc", "login2:x", "login@1:ip", "login@1:ip:9", "~~"]),
        ("login@1:ip", ["login@1:ip", "login@1:ip:9"]),
        ("login", ["login2:x", "login@1:ip", "login@1:ip:9"]),
        ("  login2 ", ["login2:x"]),
        ("L", ["Login@1:ip"]),
        ("a_", ["a_c"]),
        ("a%", ["a%c"]),
        ("%", []),
        ("ogin", []),
        ("login@1:ip:99", []),
        ("~", ["~~"]),
        ("a\\", []),
        ("' OR 1=1", []),
        ("é", []),
        ("\uff41", []),
        ("\x00", []),
        ("login\x00", []),
        ("a" * 255, []),
        ("a" * 20_000, []),
    ],
)
def test_search_finds_keys_that_begin_with_the_text(admin_client, text, found):
    make("Login@1:ip", "a%c", "a_c", "abc", "login2:x", "login@1:ip", "login@1:ip:9", "~~")
    assert shown(admin_client.get(PAGE, {"q": text})) == found


@pytest.mark.parametrize(
    "after",
    [
        "garbage",
        "",
        ":",
        "1",
        "1:",
        ":a",
        "x:a",
        "1.5:a",
        "%D9%A1:a",
        "99999999999999999999:a",
        "%00",
        "1:%00",
        "1:a%00",
        "%ED%A0%80",
        "1:%ED%A0%80",
        "1:%FF",
        "1:%C3%A9",
        "1:" + "a" * 256,
        "1" * 20_000,
        "1&after=",
    ],
)
def test_after_that_is_no_row_starts_from_the_beginning(admin_client, after):
    make("a", "b")
    response = admin_client.get(f"{PAGE}?after={after}")
    assert response.status_code == 200
    assert shown(response) == ["a", "b"]


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ("after=0:a", ["b", "c"]),
        ("after=-1:a", ["a", "b", "c"]),
        ("after=0:aa", ["b", "c"]),
        ("after=999999999999999999:c", []),
        ("after=0:z&q=a", []),
        ("after=0:a&q=b", ["b"]),
        ("q=%ED%A0%80", []),
        ("q=%FF%FE", []),
        ("q=%00&after=%00", []),
        ("q=a&q=b", ["b"]),
        ("q[]=a&%00=%00&=&&", ["a", "b", "c"]),
    ],
)
def test_odd_parameters_are_no_error(admin_client, parameters, found):
    make("a", "b", "c")
    response = admin_client.get(f"{PAGE}?{parameters}")
    assert response.status_code == 200
    assert shown(response) == found


# Reset --------------------------------------------------------------------------------------------


def test_reset_deletes_all_rows_of_the_key_and_no_other(admin_client):
    make("a:ip:1", "a:ip:10", "A:ip:1", "b")
    make("a:ip:1", window_start=60)
    admin_client.post(PAGE, {"key": "a:ip:1"})
    assert keys() == ["A:ip:1", "a:ip:10", "b"]


def test_reset_gives_the_whole_quota_back_at_once(admin_client, clock):
    baker.make(Limit, name="login", rate="2/min")
    assert not [limiter.consume("login", HOSTILE) for _ in range(3)][-1].allowed
    (key,) = buttons(admin_client.get(PAGE))
    admin_client.post(PAGE, {"key": key})
    assert limiter.consume("login", HOSTILE).remaining == 1


def test_reset_leads_back_to_its_page_and_says_what_it_did(admin_client):
    make("a<b>", "a<c>")
    response = admin_client.post(f"{PAGE}?q=a%3C&after=0%3Aa", {"key": "a<b>"}, follow=True)
    assert response.redirect_chain == [(f"{PAGE}?q=a%3C&after=0%3Aa", 302)]
    assert shown(response) == ["a<c>"]
    assert b"Reset a&lt;b&gt;" in response.content


def test_reset_that_cannot_be_done_says_so_and_is_in_no_log(admin_client, monkeypatch):
    make("a")
    with monkeypatch.context() as away:
        away.setattr(Store, "reset", raise_error)
        response = admin_client.post(PAGE, {"key": "a"})
    assert response.status_code == 302
    assert b"nothing was reset" in admin_client.get(PAGE).content
    assert (keys(), LogEntry.objects.count()) == (["a"], 0)


def raise_error(store, key):
    raise OperationalError("away")


@pytest.mark.parametrize("key", [f"login@7:fixed_window:60:{HOSTILE}", "k" * 255])
def test_reset_is_in_the_admin_log_with_nothing_but_the_stored_key(client, key):
    user = log_in(client, "view_counter", "delete_counter")
    make(key)
    client.post(PAGE, {"key": key})
    entry = LogEntry.objects.get()
    assert (entry.user, entry.action_flag) == (user, DELETION)
    assert entry.content_type.model_class() is Counter
    assert (entry.object_id, entry.object_repr) == (key, key[:200])
    assert entry.change_message == "Reset."


def test_reset_comes_out_escaped_in_the_admin_index(admin_client):
    make(HOSTILE)
    admin_client.post(PAGE, {"key": HOSTILE})
    page = admin_client.get("/admin/").content
    assert b"alert(1)" in page
    assert b"<script>alert(1)" not in page


@pytest.mark.parametrize(
    "body", ["", "key=", "key=%00", "key=a%00", "key=%ED%A0%80", "key=%C3%A9", "key=+a", "key=" + "a" * 256]
)
def test_reset_of_what_is_no_key_is_refused(admin_client, body):
    make("a")
    response = admin_client.post(PAGE, body, content_type="application/x-www-form-urlencoded")
    assert response.status_code == 400
    assert keys() == ["a"]
    assert not LogEntry.objects.exists()


def test_reset_without_csrf_token_is_refused(admin_user):
    make("a")
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    assert client.post(PAGE, {"key": "a"}).status_code == 403
    assert keys() == ["a"]
    (token,) = sent(client.get(PAGE), "csrfmiddlewaretoken")
    assert client.post(PAGE, {"key": "a", "csrfmiddlewaretoken": token}).status_code == 302
    assert keys() == []


@pytest.mark.parametrize(("method", "status"), [("get", 200), ("head", 200), ("put", 405), ("delete", 405)])
def test_what_is_not_a_post_changes_nothing(admin_client, method, status):
    make("a")
    assert getattr(admin_client, method)(f"{PAGE}?key=a&q=a&action=reset").status_code == status
    assert keys() == ["a"]
    assert not LogEntry.objects.exists()
