"""Who may open which page of the admin, and change what it shows."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from model_bakery import baker

from ratelimit_app.models import Counter, Limit, LimitOverride

pytestmark = pytest.mark.django_db

APP = "/admin/ratelimit_app/"

#: By page the right that shows it, and the right that its POST takes. No sequence comes to 999999.
PAGES = {
    "limit/": ("view_limit", None),
    "limit/add/": ("add_limit", "add_limit"),
    "limit/999999/change/": ("view_limit", "change_limit"),
    "limit/999999/delete/": ("delete_limit", "delete_limit"),
    "limit/999999/history/": ("view_limit", None),
    "limitoverride/": ("view_limitoverride", None),
    "limitoverride/add/": ("add_limitoverride", "add_limitoverride"),
    "limitoverride/999999/change/": ("view_limitoverride", "change_limitoverride"),
    "limitoverride/999999/delete/": ("delete_limitoverride", "delete_limitoverride"),
    "limitoverride/999999/history/": ("view_limitoverride", None),
    "limit/counters/": ("view_counter", "delete_counter"),
}
ALL = [
    f"{action}_{model}"
    for model in ("limit", "limitoverride", "counter")
    for action in ("view", "add", "change", "delete")
]
FORM = {
    "name": "mine",
    "rate": "1/day",
    "algorithm": "fixed_window",
    "key": "ip",
    "mode": "off",
    "cost": "1",
    "charge": "before",
    "limit": "999999",
    "effect": "rate",
    "reason": "why",
    "post": "yes",
    "overrides-TOTAL_FORMS": "0",
    "overrides-INITIAL_FORMS": "0",
}


@pytest.fixture(autouse=True)
def rows():
    limit = baker.make(Limit, pk=999_999, name="login", rate="5/min", key="ip")
    baker.make(LimitOverride, pk=999_999, limit=limit, key="user:1", effect="exempt")
    Counter.objects.create(key="ip", window_start=0, count=1, expires_at=0)


def kept():
    return [list(model.objects.order_by("pk").values()) for model in (Limit, LimitOverride, Counter)]


def staff_with(*permissions):
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("page", PAGES)
def test_page_is_shown_by_its_own_right_and_by_no_other(page):
    right, _ = PAGES[page]
    changes = right.replace("view_", "change_")  # who may change a row may look at it
    shows = {right} if "counter" in right else {right, changes}
    assert staff_with(*set(ALL) - shows).get(APP + page).status_code == 403
    User.objects.all().delete()
    assert staff_with(right).get(APP + page).status_code == 200


@pytest.mark.parametrize("page", PAGES)
def test_page_is_shown_to_nobody_who_is_not_staff(page):
    user = User.objects.create_user("member")
    user.user_permissions.set(Permission.objects.filter(codename__in=ALL))
    member = Client()
    member.force_login(user)
    before = kept()
    for client in (Client(), member):
        for answer in (client.get(APP + page), client.post(APP + page, FORM)):
            assert answer.status_code == 302
            assert answer["Location"].startswith("/admin/login/?next=")
    assert kept() == before


@pytest.mark.parametrize("page", [page for page, (_, right) in PAGES.items() if right])
def test_page_changes_nothing_without_its_right(page):
    _, right = PAGES[page]
    before = kept()
    assert staff_with(*set(ALL) - {right}).post(APP + page, FORM).status_code == 403
    assert kept() == before
    User.objects.all().delete()
    assert staff_with(*ALL).post(APP + page, FORM).status_code == 302
    assert kept() != before


@pytest.mark.parametrize("page", ["limit/", "limitoverride/"])
def test_selected_rows_are_deleted_by_those_alone_who_may(page):
    sent = {"action": "delete_selected", "_selected_action": "999999", "post": "yes"}
    before = kept()
    right = "delete_" + page.rstrip("/")
    staff_with(*set(ALL) - {right}).post(APP + page, sent)
    assert kept() == before
    User.objects.all().delete()
    staff_with(*ALL).post(APP + page, sent)
    assert kept() != before


@pytest.mark.parametrize(
    "page",
    ["limit/999999/change/", "limit/999999/delete/", "limitoverride/999999/delete/", "limit/counters/"],
)
def test_page_changes_nothing_without_a_csrf_token(page):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("admin"))
    before = kept()
    assert client.post(APP + page, FORM).status_code == 403
    assert kept() == before
