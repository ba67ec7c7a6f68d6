import pytest
from django.http import HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from model_bakery import baker
from rest_framework.decorators import action, api_view, throttle_classes
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from project.settings import RATELIMIT_LIMITS
from ratelimit_app.checks.views import check_names
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Limit
from ratelimit_app.throttling import RateLimitThrottle
from tests.outages import without_table

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@ratelimit("known", "typo_in_decorator")
def plain(request):
    return HttpResponse("ok")


@method_decorator(ratelimit("typo_on_class"), name="dispatch")
class Plain(View):
    pass


class Throttled(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "typo_in_scope"
    throttle_limits = ("typo_in_limits", "row")


class ByAction(Throttled):
    throttle_scope = None
    throttle_limits = {"list": ["known", "typo_in_dict"], "*": "typo_of_the_rest"}


class Door(RateLimitThrottle):
    limits = ("row", "typo_in_throttle")


class Doored(APIView):
    throttle_classes = (Door,)


class DecoratedMethod(View):
    @ratelimit("typo_on_method", "5/min")
    async def get(self, request):
        return HttpResponse("ok")


class OthersThrottle(APIView):
    throttle_classes = ()
    throttle_scope = "not_ours"


class BesideTheMethod(ViewSet):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = None
    throttle_limits = ()

    @action(detail=False, throttle_limits=["known", "typo_in_action"])
    def limited(self, request):
        return None

    @action(detail=False, throttle_scope="typo_in_scope_of_action")
    def scoped(self, request):
        return None

    @action(detail=False, throttle_classes=[Door])
    def doored(self, request):
        return None

    @action(detail=False, throttle_classes=[], throttle_scope="not_asked")
    def free(self, request):
        return None

    @action(detail=False)
    @ratelimit("typo_on_action")
    def decorated(self, request):
        return None


@api_view(["GET"])
@throttle_classes([RateLimitThrottle])
def function(request):
    return None


router = SimpleRouter()
router.register("beside", BesideTheMethod, basename="beside")
urlpatterns = [
    path("plain", plain),
    path("again", plain),
    path("inner/", include([path("class", Plain.as_view()), path("throttled", Throttled.as_view())])),
    path("by-action", ByAction.as_view()),
    path("doored", Doored.as_view()),
    path("method", DecoratedMethod.as_view()),
    path("others", OthersThrottle.as_view()),
    path("function", function),
    path("as-view", Throttled.as_view(throttle_limits={"list": "typo_in_as_view"}, throttle_scope="row")),
    path("", include(router.urls)),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {"known": "5/min"}
    baker.make(Limit, name="row", rate="5/min", key="ip")


def test_names_that_nobody_has_declared_are_reported_once_each():
    found = check_names(None, databases=["default"])
    assert {warning.id for warning in found} == {"ratelimit_app.W002"}
    assert [warning.msg.split("'")[1] for warning in found] == [
        "typo_in_decorator",
        "typo_on_class",
        "typo_in_scope",
        "typo_in_limits",
        "typo_in_dict",
        "typo_of_the_rest",
        "typo_in_throttle",
        "typo_on_method",
        "typo_in_as_view",
        "typo_on_action",
        "typo_in_throttle",
        "typo_in_action",
        "typo_in_scope_of_action",
    ]
    assert f"{__name__}.plain names the limit" in found[0].msg


@pytest.mark.django_db(transaction=True)
def test_names_are_not_reported_while_rows_cannot_be_read():
    with without_table("default", "ratelimit_app_limit"):
        assert check_names(None, databases=["default"]) == []


@pytest.mark.urls("project.urls")
def test_views_of_the_project_name_no_limit_that_there_is_not(settings):
    settings.RATELIMIT_LIMITS = RATELIMIT_LIMITS
    assert check_names(None, databases=["default"]) == []
    settings.RATELIMIT_LIMITS = {}
    assert len(check_names(None, databases=["default"])) == 5


def test_database_is_not_asked_where_it_may_not_be(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert check_names(None, databases=None) == []


@pytest.mark.parametrize("unusable", [None, 5, ["known"]])
def test_setting_that_is_unusable_is_left_to_its_own_check(unusable, settings):
    settings.RATELIMIT_LIMITS = unusable
    assert "known" in [warning.msg.split("'")[1] for warning in check_names(None, databases=["default"])]


def test_throttle_that_is_no_class_is_nobody_of_ours(monkeypatch):
    monkeypatch.setattr(OthersThrottle, "throttle_classes", (lambda: None,))
    assert "not_ours" not in str(check_names(None, databases=["default"]))
