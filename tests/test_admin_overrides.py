"""Overrides in the Django admin, on the page of their limit and in a list of their own."""

import html

import pytest
from django.contrib.auth.models import Permission, User
from model_bakery import baker

from ratelimit_app import limiter
from ratelimit_app.admin import MAX_INLINE
from ratelimit_app.models import Limit, LimitOverride
from tests.conftest import NOON

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]

LIST = "/admin/ratelimit_app/limitoverride/"
ADD_LIMIT = "/admin/ratelimit_app/limit/add/"
KEY = "ip:203.0.113.9"
GOOD = {"key": "203.0.113.0/24", "effect": "rate", "rate": "9/min", "reason": "asked for by sales"}


@pytest.fixture
def admin_user(db):
    return User.objects.create_superuser("admin")  # without a password: hashing one takes its time


@pytest.fixture
def limit():
    return baker.make(Limit, name="login", rate="2/min", key="ip", note="")


def page_of(limit):
    return f"/admin/ratelimit_app/limit/{limit.pk}/change/"


def values(form):
    """What a browser would send of a form; a date and its time are two fields."""
    sent = {}
    for bound in form:
        parts = getattr(bound.field.widget, "widgets", None)
        shown = bound.field.widget.decompress(bound.value()) if parts else [bound.value()]
        names = [f"{bound.html_name}_{i}" for i in range(len(shown))] if parts else [bound.html_name]
        sent |= dict(zip(names, shown, strict=True))
    return {name: value for name, value in sent.items() if value is not None and value is not False}


def send(client, page, *added, limit=None, **changes):
    """Send the page of a limit with other values in the rows of its overrides, by number, and new rows."""
    context = client.get(page).context
    sent = values(context["adminform"].form) | (limit or {})
    for inline in context["inline_admin_formsets"]:
        rows = inline.formset.initial_form_count()
        sent |= values(inline.formset.management_form)
        for form in inline.formset.initial_forms:
            sent |= values(form)
        for number, row in enumerate(added, start=rows):
            sent |= {f"overrides-{number}-{field}": value for field, value in row.items()}
        sent["overrides-TOTAL_FORMS"] = rows + len(added)
    return client.post(page, sent | {f"overrides-{field}": value for field, value in changes.items()})


def errors(response):
    assert response.status_code == 200
    (inline,) = response.context["inline_admin_formsets"]
    return [list(form.errors) for form in inline.formset.forms if form.errors]


def quota(key=KEY):
    return limiter.peek("login", key).quota


# On the page of the limit -------------------------------------------------------------------------


def test_override_is_added_edited_and_deleted_and_shows_at_once(admin_client, limit):
    page = page_of(limit)
    assert quota() == 2
    assert send(admin_client, page, GOOD).status_code == 302
    assert (quota(), quota("ip:198.51.100.1")) == (9, 2)
    assert LimitOverride.objects.get().key == "ip:203.0.113.0/24"
    assert send(admin_client, page, **{"0-rate": "7/min"}).status_code == 302
    assert quota() == 7
    assert send(admin_client, page, **{"0-effect": "blocked", "0-rate": ""}).status_code == 302
    assert not limiter.consume("login", KEY).allowed
    assert send(admin_client, page, **{"0-DELETE": "on"}).status_code == 302
    assert quota() == 2
    assert not LimitOverride.objects.exists()


def test_limit_is_added_with_its_overrides(admin_client, settings):
    settings.RATELIMIT_LIMITS = {"login": "3/min"}
    fields = {"name": "login", "rate": "5/min", "algorithm": "token_bucket"}
    assert send(admin_client, ADD_LIMIT, GOOD | {"burst": "4"}, limit=fields).status_code == 302
    assert (quota(), quota("ip:198.51.100.1")) == (9, 5)
    assert limiter.peek("login", KEY).remaining == 4


def test_override_ends_at_the_time_that_was_sent(admin_client, limit, clock):
    send(admin_client, page_of(limit), GOOD | {"ends_at_0": "2026-06-01", "ends_at_1": "12:00:30"})
    assert clock.now == NOON
    clock.advance(29.999999)
    assert quota() == 9
    clock.advance(0.000001)
    assert quota() == 2
    assert send(admin_client, page_of(limit), limit={"rate": "4/min"}).status_code == 302
    assert quota() == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("key", value) for value in ["", "203.0.113.9/24", "ip:nobody", "10.0.0.0/33", "k" * 256, "k\x00"]],
        *[("effect", value) for value in ["", "maybe"]],
        *[("rate", value) for value in ["", "garbage", "0/m", "5/fortnight", "1/min"]],
        *[("burst", value) for value in ["3", "0", "-1", "many"]],
        *[("ends_at", value) for value in ["yesterday", "2026-13-01"]],
        ("reason", ""),
    ],
)
def test_bad_value_is_told_at_its_field(admin_client, limit, field, value):
    Limit.objects.update(cost=2)
    row = GOOD | ({"ends_at_0": value, "ends_at_1": "12:00"} if field == "ends_at" else {field: value})
    assert errors(send(admin_client, page_of(limit), row)) == [[field]]
    assert not LimitOverride.objects.exists()


@pytest.mark.parametrize("field", ["rate", "burst"])
def test_rate_where_the_effect_is_another_is_told(admin_client, limit, field):
    row = GOOD | {"effect": "exempt", "rate": "", field: "9/min" if field == "rate" else "9"}
    assert errors(send(admin_client, page_of(limit), row)) == [[field]]


@pytest.mark.parametrize("second", ["203.0.113.0/24", "ip:203.0.113.0/24", " 203.0.113.0/24 "])
def test_two_overrides_of_one_key_are_refused(admin_client, limit, second):
    response = send(admin_client, page_of(limit), GOOD, GOOD | {"key": second})
    assert response.status_code == 200
    assert "duplicate" in response.content.decode()
    assert send(admin_client, page_of(limit), GOOD).status_code == 302
    assert send(admin_client, page_of(limit), GOOD | {"key": second}).status_code == 200
    assert LimitOverride.objects.count() == 1


def test_override_is_checked_with_the_algorithm_that_is_sent_with_it(admin_client, limit):
    page, bursting = page_of(limit), GOOD | {"burst": "3"}
    assert errors(send(admin_client, page, bursting)) == [["burst"]]
    assert send(admin_client, page, bursting, limit={"algorithm": "token_bucket"}).status_code == 302
    assert errors(send(admin_client, page, limit={"algorithm": "fixed_window"})) == [["burst"]]


@pytest.mark.parametrize("broken", [{"algorithm": "magic"}, {"algorithm": ""}, {"name": ""}, {"cost": "x"}])
def test_fault_of_the_limit_is_not_told_of_its_overrides(admin_client, limit, broken):
    response = send(admin_client, page_of(limit), GOOD, limit=broken)
    assert errors(response) == []
    assert list(response.context["adminform"].form.errors) == list(broken)


def test_page_has_the_help_of_every_field(admin_client, limit):
    text = html.unescape(admin_client.get(page_of(limit)).content.decode())
    for field in LimitOverride._meta.fields:
        if field.name not in {"id", "limit"}:
            assert field.help_text in text


def test_page_of_a_limit_with_many_overrides_leaves_them_to_the_list(admin_client, limit):
    rows = [
        LimitOverride(limit=limit, key=f"user:{i}", effect="exempt", reason="r")
        for i in range(MAX_INLINE + 1)
    ]
    LimitOverride.objects.bulk_create(rows[:-1])
    assert len(admin_client.get(page_of(limit)).context["inline_admin_formsets"]) == 1
    assert send(admin_client, page_of(limit), **{"0-reason": "another"}).status_code == 302
    rows[-1].save()
    response = admin_client.get(page_of(limit))
    assert response.context["inline_admin_formsets"] == []
    assert f'href="{LIST}?limit__id__exact={limit.pk}"' in response.content.decode()
    assert send(admin_client, page_of(limit), limit={"rate": "4/min"}).status_code == 302
    assert (quota(), LimitOverride.objects.count()) == (4, MAX_INLINE + 1)


def test_list_of_limits_counts_overrides(admin_client, limit):
    for key in ("a", "b"):
        baker.make(LimitOverride, limit=limit, key=key, effect="exempt")
    assert (
        '<td class="field-exceptions">2</td>'
        in admin_client.get("/admin/ratelimit_app/limit/").content.decode()
    )


@pytest.mark.parametrize(
    ("permissions", "status", "shown"),
    [
        ([], 302, 0),
        (["view_limitoverride"], 302, 0),
        (["view_limitoverride", "add_limitoverride"], 302, 1),
    ],
)
def test_overrides_are_for_those_who_may(client, limit, permissions, status, shown):
    user = User.objects.create_user("staff", is_staff=True)
    allowed = ["view_limit", "change_limit", *permissions]
    user.user_permissions.set(Permission.objects.filter(codename__in=allowed))
    client.force_login(user)
    assert len(client.get(page_of(limit)).context["inline_admin_formsets"]) == bool(permissions)
    assert send(client, page_of(limit), GOOD).status_code == status
    assert LimitOverride.objects.count() == shown


# In the list of their own -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "203.0"}, 1),
        ({"q": "sales"}, 1),
        ({"effect__exact": "exempt"}, 1),
        ({"q": "nobody"}, 0),
        ({}, 2),
    ],
)
def test_list_is_searched_and_filtered(admin_client, limit, query, found):
    LimitOverride.objects.create(limit=limit, **GOOD)
    LimitOverride.objects.create(limit=limit, key="user:42", effect="exempt", reason="staff")
    assert len(admin_client.get(LIST, query).context["cl"].result_list) == found


def test_override_is_added_in_the_list(admin_client, limit):
    sent = GOOD | {"limit": limit.pk}
    assert admin_client.post(f"{LIST}add/", sent).status_code == 302
    assert quota() == 9
    for wrong in ({"limit": ""}, {"limit": limit.pk + 1}, {"limit": limit.pk}):
        response = admin_client.post(f"{LIST}add/", GOOD | wrong)
        assert response.status_code == 200
        assert response.context["adminform"].form.errors


def test_admin_stays_up_with_an_override_that_got_in_past_the_form(admin_client, limit):
    made = LimitOverride.objects.create(limit=limit, **GOOD)
    for broken in ({"rate": "garbage"}, {"effect": "x"}, {"key": "ip:nobody"}, {"burst": 0}):
        LimitOverride.objects.update(**broken)
        for page in (page_of(limit), LIST, f"{LIST}{made.pk}/change/", f"{LIST}{made.pk}/delete/"):
            assert admin_client.get(page).status_code == 200
