"""The migration guides are true: their projects answer the same requests alike, before and after."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "migrating.md").read_text()

#: What the guides' projects have besides.
SETTINGS = """
SECRET_KEY = "for the test"
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "rest_framework",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SILENCED_SYSTEM_CHECKS = ["ratelimit_app.W001"]  # the counters are in the one file of this project
"""
URLS = {
    "drf": """
        from django.urls import path
        from shop import views

        urlpatterns = [
            path("", views.front),
            path("upload", views.Upload.as_view()),
            path("search", views.Search.as_view()),
        ]
        """,
    "django-ratelimit": """
        from django.urls import path
        from shop import views

        handler403 = "shop.views.forbidden"
        urlpatterns = [
            path("", views.front),
            path("upload", views.upload),
            path("send", views.send),
            path("send-again", views.send_again),
            path("search", views.search),
            path("report", views.Report.as_view()),
        ]
        """,
}

#: Asks what it is told to ask, at one instant, and prints the answers.
DRIVER = """
import json, sys, time
time.time = lambda *_: 1_780_315_200.5
import django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from ratelimit_app.testing import frozen_time

call_command("migrate", verbosity=0)
call_command("check", fail_level="WARNING", databases=["default"], stderr=sys.stderr, stdout=sys.stderr)
clients = {"": Client(), "ann": Client()}
clients["ann"].force_login(User.objects.create(username="ann"))
with frozen_time(1_780_315_200.5):
    for who, method, path, headers in json.loads(sys.argv[1]):
        answer = clients[who].generic(method, path, headers=headers)
        body = answer.content.decode() if path.startswith("/search?") else ""
        print(json.dumps([answer.status_code, body]))
"""
KEY, OTHER = {"X-Api-Key": "a"}, {"X-Api-Key": "b"}
REQUESTS = {
    "drf": [
        *[("", "GET", "/", {})] * 4,
        *[("ann", "GET", "/", {})] * 3,
        *[("ann", "POST", "/upload", {})] * 3,
        *[("ann", "GET", "/search", {})] * 3,
        *[("", "GET", "/search", {})] * 3,
    ],
    "django-ratelimit": [
        *[("", "GET", "/", {})] * 4,
        *[("", "POST", "/upload", {})] * 6,
        *[("ann", "POST", "/upload", {})] * 6,
        *[("ann", "GET", "/upload", {})] * 6,
        ("", "GET", "/send", KEY),
        *[("", "GET", "/send-again", KEY)] * 2,
        ("", "GET", "/send", OTHER),
        *[("", "GET", "/search?q=a", {})] * 3,
        *[("", "GET", "/search?q=b", {})] * 1,
        *[("", "GET", "/report", {})] * 2,
    ],
}
STATUSES = {
    "drf": [*[200] * 3, 429, *[200] * 3, 200, 200, 429, *[200, 200, 429] * 2],
    "django-ratelimit": [
        *[200, 200, 200, 429],
        *[*[200] * 5, 429] * 2,
        *[200] * 6,
        *[200, 200, 429],
        200,
        *[200] * 4,
        *[200, 429],
    ],
}


def blocks(source, when):
    """Return the guide's files at one end, by path."""
    found = re.findall(
        rf"^( *)```python\n *# (shop/\w+\.py), {source}, {when}\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL
    )
    return {path: textwrap.dedent(code) for _, path, code in found}


def answers(source, when, folder):
    """Make the project, ask it, and return its answers."""
    files = {"shop/__init__.py": "", "shop/urls.py": textwrap.dedent(URLS[source]), **blocks(source, when)}
    assert {"shop/settings.py", "shop/views.py"} <= set(files)
    files["shop/settings.py"] = SETTINGS + files["shop/settings.py"]
    for path, code in files.items():
        (folder / path).parent.mkdir(exist_ok=True, parents=True)
        (folder / path).write_text(code)
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(REQUESTS[source])],
        cwd=folder,
        env={"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("source", ["drf", "django-ratelimit"])
def test_project_answers_alike_before_and_after(source, tmp_path):
    before = answers(source, "before", tmp_path / "before")
    after = answers(source, "after", tmp_path / "after")
    assert [status for status, _ in before] == STATUSES[source]
    assert after == before


def test_every_block_of_the_guides_is_one_that_is_run():
    run = [path for source in REQUESTS for when in ("before", "after") for path in blocks(source, when)]
    assert len(run) == PAGE.count("```python") == 9
