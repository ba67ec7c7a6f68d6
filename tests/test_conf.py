import datetime
import zoneinfo

import pytest
from django.conf import settings as django_settings

from ratelimit_app.conf import Configuration, conf

#: By setting, in lower case: its default, and another value.
VALUES = {
    "enable": (True, False),
    "database": ("default", "other"),
    "clock": ("database", "local"),
    "refresh": (2, 0),
    "timeout": (0.5, 0),
    "ipv6_prefix": (64, 48),
    "trusted_proxies": (0, ["10.0.0.0/8"]),
    "proxy_header": ("X-Forwarded-For", "Forwarded"),
    "headers": (("ietf",), []),
    "on_error": ("allow", "deny"),
    "refusal": ("", "project.views.ping"),
    "exempt": (("admin:",), []),
    "prune_probability": (0, 0.01),
    "limits": ({}, {"a": "5/m"}),
}


@pytest.fixture
def bare(settings):
    """A project that sets nothing."""
    for name in dir(django_settings):
        if name.startswith("RATELIMIT_"):
            delattr(settings, name)
    return settings


@pytest.mark.parametrize(("name", "default"), [(name, default) for name, (default, _) in VALUES.items()])
def test_setting_that_is_not_given_has_its_default(name, default, bare):
    assert getattr(conf, name) == default


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, value) in VALUES.items()])
def test_setting_is_read_at_use(name, value, settings):
    setattr(settings, f"RATELIMIT_{name.upper()}", value)
    assert getattr(conf, name) == value


def test_time_zone_is_the_projects_unless_it_has_its_own(bare):
    bare.TIME_ZONE = "Europe/Paris"
    assert conf.time_zone == zoneinfo.ZoneInfo("Europe/Paris")
    bare.RATELIMIT_TIME_ZONE = "Asia/Shanghai"
    assert conf.time_zone == zoneinfo.ZoneInfo("Asia/Shanghai")
    noon = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.timezone.utc)
    assert noon.astimezone(conf.time_zone).hour == 20


def test_every_setting_is_tested_here():
    names = {name for name, value in vars(Configuration).items() if isinstance(value, property)}
    assert names == set(VALUES) | {"time_zone"}
