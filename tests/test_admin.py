"""The limits in the admin, through the real client and the real addresses."""

import html

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test.utils import CaptureQueriesContext
from model_bakery import baker

from ratelimit_app import limiter
from ratelimit_app.models import Counter, Limit

pytestmark = pytest.mark.django_db

LIST = "/admin/ratelimit_app/limit/"
ADD = f"{LIST}add/"
DELETION_NOTE = "nothing is limited under that name"


@pytest.fixture
def admin_user(db):
    return User.objects.create_superuser("admin")  # without a password: hashing one takes its time


def change(limit):
    return f"{LIST}{limit.pk}/change/"


def delete(limit):
    return f"{LIST}{limit.pk}/delete/"


def filled_in(client, page, **values):
    """Fill in the form of a page as a browser would, with other values here and there."""
    form = client.get(page).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    return {name: "" if value is None else value for name, value in shown.items()} | values


def names(response):
    return [limit.name for limit in response.context["cl"].result_list]


def consume(times=1, limit="login"):
    return [limiter.consume(limit, "ip:203.0.113.9") for _ in range(times)][-1]


# The list -----------------------------------------------------------------------------------------


def test_list_shows_what_matters(admin_client):
    values = {"rate": "7/min", "key": "project.keys.client_id", "path": "^/x/", "methods": "PUT", "cost": 3}
    baker.make(Limit, name="login", mode="shadow", count_denied=True, **values)
    page = admin_client.get(LIST).content.decode()
    row = page[page.index("<tbody") : page.index("</tbody>")]
    for shown in ["login", "fixed window", *map(str, values.values()), ">shadow<", "icon-yes"]:
        assert shown in row


def test_list_offers_filters(admin_client):
    baker.make(Limit, name="login", rate="5/min")
    specs = admin_client.get(LIST).context["cl"].filter_specs
    assert [spec.title for spec in specs] == ["mode", "algorithm", "count denied"]


@pytest.mark.parametrize(
    ("filtered", "found"),
    [("mode__exact=shadow", ["quiet"]), ("count_denied__exact=1", ["strict"])],
)
def test_list_filtered(admin_client, filtered, found):
    baker.make(Limit, name="quiet", rate="5/min", mode="shadow")
    baker.make(Limit, name="strict", rate="5/min", count_denied=True)
    assert names(admin_client.get(f"{LIST}?{filtered}")) == found


@pytest.mark.parametrize("text", ["ogi", "^/acc", "audit"])
def test_list_searched_by_name_path_and_note(admin_client, text):
    baker.make(Limit, name="login", rate="5/min", path="^/accounts/", note="Asked for by the audit.")
    baker.make(Limit, name="other", rate="5/min")
    assert names(admin_client.get(LIST, {"q": text})) == ["login"]


def test_list_shows_limits_that_are_only_in_code(admin_client, settings):
    settings.RATELIMIT_LIMITS = {
        "export": "2/hour",
        "beta": None,
        "old": {"rate": "1/s", "mode": "off"},
        "broken": "2/fortnight",
        "login": "77/min",
    }
    baker.make(Limit, name="login", rate="5/min")
    response = admin_client.get(LIST)
    assert [limit.name for limit in response.context["only_in_code"]] == ["export", "beta", "old"]
    for name, rate in {"export": "2/hour", "beta": "off", "old": "off"}.items():
        row = f'<tr><th scope="row">{name}</th><td>{rate}</td></tr>'
        assert row in "".join(line.strip() for line in response.content.decode().splitlines())
    assert b"77/min" not in response.content


def test_list_with_no_limit_in_code_has_no_second_table(admin_client, settings):
    settings.RATELIMIT_LIMITS = {}
    assert b"Only in code" not in admin_client.get(LIST).content


@pytest.mark.parametrize(
    ("permissions", "shown"), [(["view_limit"], False), (["view_limit", "view_counter"], True)]
)
def test_list_links_to_counters_for_those_who_may_see_them(client, permissions, shown):
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    assert (f'href="{LIST}counters/"' in client.get(LIST).content.decode()) is shown


# The form -----------------------------------------------------------------------------------------


def test_form_has_every_field_with_its_help(admin_client):
    response = admin_client.get(ADD)
    fields = [field for field in Limit._meta.fields if field.editable and not field.primary_key]
    assert set(response.context["adminform"].form.fields) == {field.name for field in fields}
    page = html.unescape(response.content.decode())
    assert all(field.help_text in page for field in fields)
    assert "A fixed window of 60/min lets up to 120 through within 2 s around a window edge" in page


def test_form_with_good_values_makes_a_limit(admin_client):
    values = {
        "rate": "10 per 2 minutes",
        "key": "header:X-Api-Key",
        "path": "^/api/",
        "methods": "post, HEAD",
    }
    response = admin_client.post(ADD, filled_in(admin_client, ADD, name="api", cost="10", **values))
    assert response.status_code == 302
    limit = Limit.objects.get(name="api")
    assert (limit.policy().quota, limit.policy().window, limit.cost, limit.burst) == (10, 120, 10, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("name", value) for value in ["", "two words", "a:b", "naïve", "n" * 65]],
        *[("rate", value) for value in ["", "abc", "10", "1/", "-1/m", "0/m", "5/0s", "1e3/m", "5/m/m"]],
        *[("rate", value) for value in ["5/fortnight", "\u0663/m", "2/2 month", "5/m\x00", "1/9999999999s"]],
        *[("algorithm", value) for value in ["", "no_such_way"]],
        *[("burst", value) for value in ["7", "0", "-1", "many"]],
        *[("key", value) for value in ["", "nobody", "header:", "no.such.function", "project.keys.nobody"]],
        *[("key", value) for value in ["project.settings.DEBUG", "os;system", "ip\x00"]],
        *[
            ("path", value)
            for value in ["(", "[a-", "*", "(?P<a", "a{99999999999}", "x" * 201, "[[a]", "[a||b]"]
        ],
        *[("methods", value) for value in ["FETCH", "GET, FETCH", "123"]],
        *[("mode", value) for value in ["", "maybe"]],
        *[("cost", value) for value in ["", "0", "-1", "1.5", "6", "9" * 30]],
    ],
)
def test_form_with_a_bad_value_says_so_at_its_field(admin_client, field, value):
    values = {"name": "login", "rate": "5/min"} | {field: value}
    response = admin_client.post(ADD, filled_in(admin_client, ADD, **values))
    assert response.status_code == 200
    assert list(response.context["adminform"].form.errors) == [field]
    assert not Limit.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_edit_changes_the_next_decision_in_this_process(admin_client, clock):
    limit = baker.make(Limit, name="login", rate="2/min")
    assert not consume(3).allowed
    admin_client.post(change(limit), filled_in(admin_client, change(limit), rate="5/min"))
    decision = consume()
    assert (decision.allowed, decision.quota, decision.remaining) == (True, 5, 2)


@pytest.mark.django_db(transaction=True)
def test_add_changes_the_next_decision_in_this_process(admin_client, clock, settings):
    settings.RATELIMIT_LIMITS = {"login": "9/min"}
    assert consume().quota == 9
    admin_client.post(ADD, filled_in(admin_client, ADD, name="login", rate="1/min"))
    assert consume().quota == 1


# Deletion -----------------------------------------------------------------------------------------


def test_change_and_delete_pages_say_what_deletion_means(admin_client):
    limit = baker.make(Limit, name="login", rate="5/min")
    selected = {"action": "delete_selected", "_selected_action": [limit.pk]}
    for response in [
        admin_client.get(change(limit)),
        admin_client.get(delete(limit)),
        admin_client.post(LIST, selected),
    ]:
        assert DELETION_NOTE in " ".join(response.content.decode().split())
    assert DELETION_NOTE not in " ".join(admin_client.get(ADD).content.decode().split())


@pytest.mark.django_db(transaction=True)
def test_delete_brings_back_the_limit_in_code(admin_client, clock, settings):
    settings.RATELIMIT_LIMITS = {"login": "1/min"}
    limit = baker.make(Limit, name="login", rate="5/min")
    assert consume(3).quota == 5
    admin_client.post(delete(limit), {"post": "yes"})
    decision = consume()
    assert (decision.allowed, decision.quota) == (True, 1)
    assert not consume().allowed


@pytest.mark.django_db(transaction=True)
def test_delete_with_none_in_code_limits_nothing(admin_client, clock, settings):
    settings.RATELIMIT_LIMITS = {}
    limit = baker.make(Limit, name="login", rate="1/min")
    assert not consume(2).allowed
    admin_client.post(delete(limit), {"post": "yes"})
    assert consume(3).quota is None


@pytest.mark.django_db(transaction=True)
def test_delete_of_selected_limits_changes_the_next_decision(admin_client, clock, settings):
    settings.RATELIMIT_LIMITS = {}
    chosen = [baker.make(Limit, name=name, rate="1/min").pk for name in ["login", "export"]]
    assert not consume(2).allowed
    admin_client.post(LIST, {"action": "delete_selected", "_selected_action": chosen, "post": "yes"})
    assert consume(3).quota is None
    assert not Limit.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_limit_made_anew_inherits_no_counters(admin_client, clock):
    limit = baker.make(Limit, name="login", rate="5/hour")
    consume(3)
    admin_client.post(delete(limit), {"post": "yes"})
    admin_client.post(ADD, filled_in(admin_client, ADD, name="login", rate="5/hour"))
    assert consume().remaining == 4


def test_delete_page_of_a_limit_with_20_000_counters_is_that_of_one_with_none(admin_client, clock):
    limit = baker.make(Limit, name="login", rate="5/min")
    alone = _queries(admin_client, delete(limit))
    consume()
    space = Counter.objects.get().key.removesuffix("203.0.113.9")
    Counter.objects.bulk_create(
        [Counter(key=f"{space}{i}", window_start=0, count=1, expires_at=0) for i in range(20_000)],
        batch_size=1_000,
    )
    assert _queries(admin_client, delete(limit)) == alone
    assert space not in admin_client.get(delete(limit)).content.decode()
    assert len(alone) <= 10
    assert not [sql for sql in alone if "counter" in sql]


def test_delete_leaves_counters_alone(admin_client, clock):
    limit = baker.make(Limit, name="login", rate="5/min")
    consume()
    with CaptureQueriesContext(connections["ratelimit"]) as queries:
        assert admin_client.post(delete(limit), {"post": "yes"}).status_code == 302
    assert len(queries) == 0
    assert Counter.objects.get().count == 1


def _queries(client, page):
    with (
        CaptureQueriesContext(connections["default"]) as queries,
        CaptureQueriesContext(connections["ratelimit"]) as queries_of_counters,
    ):
        assert client.get(page).status_code == 200
    assert len(queries_of_counters) == 0
    return [query["sql"].split(" WHERE ")[0] for query in queries]


@pytest.mark.parametrize(
    "broken",
    [
        {"rate": "garbage"},
        {"algorithm": "magic"},
        {"path": "("},
        {"key": "no.such"},
        {"methods": "FETCH"},
        {"mode": "x"},
        {"cost": 0},
    ],
    ids=lambda broken: next(iter(broken)),
)
def test_admin_stays_up_with_a_row_that_got_in_past_the_form(admin_client, broken):
    limit = baker.make(Limit, name="login", rate="5/min", key="ip")
    Limit.objects.update(**broken)
    for page in (LIST, change(limit), delete(limit), f"{LIST}counters/", ADD):
        assert admin_client.get(page).status_code == 200
    assert admin_client.get("/healthz").status_code == 200
