"""The demo as a visitor meets it: a real server, real requests, the real admin."""

import html.parser
import http.cookiejar
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import http_sf
import pytest

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60


class Form(html.parser.HTMLParser):
    """The fields of one form of a page, as a browser would send them back."""

    def __init__(self, page, form_id):
        super().__init__()
        self.fields, self._form_id, self._inside, self._open = {}, form_id, False, ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "form":
            self._inside = found.get("id") == self._form_id
        if not self._inside:
            return
        if tag in ("select", "textarea"):
            self._open = found["name"]
            self.fields.setdefault(self._open, "")
        elif tag == "option" and "selected" in found:
            self.fields[self._open] = found["value"]
        elif tag == "input" and "name" in found and not is_left_out(found):
            self.fields[found["name"]] = found.get("value", "")

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "form"


def is_left_out(found):
    return found["type"] == "submit" or (found["type"] == "checkbox" and "checked" not in found)


class Browser:
    def __init__(self, url):
        self.url = url
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), jar)

    def get(self, where, **headers):
        return self._open(urllib.request.Request(self.url + where, headers=headers))

    def submit(self, where, form_id, **changes):
        """Fill in a form and send it; return the page that it leads to."""
        _, _, page = self.get(where)
        fields = Form(page, form_id).fields
        assert "csrfmiddlewaretoken" in fields, page
        data = urllib.parse.urlencode({**fields, **changes}).encode()
        return self._open(urllib.request.Request(self.url + where, data, {"Referer": self.url + where}))

    def _open(self, request):
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, answer.headers, answer.read().decode()


class Demo:
    """``manage.py demo`` in a copy of the project, so that its files are made there."""

    def __init__(self, home):
        self.home, self.port = home, free_port()
        shutil.copy(ROOT / "manage.py", home)
        for package in ("project", "ratelimit_app"):
            shutil.copytree(ROOT / package, home / package, ignore=shutil.ignore_patterns("__pycache__"))

    def start(self):
        ours = {"DATABASE_URL", "RATELIMIT_DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PYTHONPATH"}
        env = {name: value for name, value in os.environ.items() if name not in ours}
        self._log = (self.home / "log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-u", "manage.py", "demo", str(self.port)],
            cwd=self.home,
            env=env,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        browser = Browser(f"http://127.0.0.1:{self.port}")
        wait_until(lambda: self._answers(browser), self.printed)
        return browser

    def printed(self):
        return (self.home / "log").read_text()

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)
        self._log.close()

    def _answers(self, browser):
        assert self._process.poll() is None, self.printed()
        try:
            return browser.get("/healthz")[0] == 200
        except OSError:
            return False


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until(true, explain):
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.05)


def parsed(headers, field):
    return http_sf.parse(headers[field].encode(), tltype="list")


def until_refused(browser, where, **headers):
    """Ask until the answer is 429; return the last four answers, which lie in one window.

    The minute may turn once meanwhile: then the new one begins with three answers more.
    """
    answers = []
    while not answers or answers[-1][0] != 429:
        answers.append(browser.get(where, **headers))
        assert len(answers) <= 7, answers
    return answers[-4:]


@pytest.fixture
def demo(tmp_path):
    demo = Demo(tmp_path)
    yield demo
    demo.stop()


def test_demo_answers_refuses_and_follows_an_edit_in_the_admin(demo):
    browser = demo.start()

    answers = until_refused(browser, "/ping", **{"X-Client-Key": "me"})
    assert [status for status, _, _ in answers] == [200, 200, 200, 429]
    assert [parsed(headers, "RateLimit")[0][1]["r"] for _, headers, _ in answers] == [2, 1, 0, 0]
    _, headers, body = answers[-1]
    problem, wait = json.loads(body), int(headers["Retry-After"])
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Cache-Control"] == "no-store"
    assert parsed(headers, "RateLimit-Policy") == [("ping", {"q": 3, "w": 60})]
    assert (problem["status"], problem["retry_after"], problem["violated-policies"]) == (429, wait, ["ping"])
    assert 1 <= wait <= 60

    printed = re.findall(r"http://127\.0\.0\.1:\d+(/[^\s']*)", demo.printed())
    assert {"/ping", "/status?key=me", "/work", "/api/reports", "/export", "/login/"} < set(printed)
    assert [where for where in printed if browser.get(where)[0] not in (200, 400, 429)] == []

    user, password = re.search(r"\(user (\S+), password (\S+)\)", demo.printed()).groups()
    status, _, page = browser.submit("/admin/login/", "login-form", username=user, password=password)
    assert (status, "Log out" in page) == (200, True)
    assert browser.get("/static/admin/css/base.css")[0] == 200

    _, _, page = browser.get("/admin/ratelimit_app/limit/?q=ping")
    (where,) = set(re.findall(r'href="(/admin/ratelimit_app/limit/\d+/change/)', page))
    status, _, page = browser.submit(where, "limit_form", rate="1000/60s")
    assert (status, "was changed successfully" in page) == (200, True), page

    edited = [("ping", {"q": 1000, "w": 60})]
    wait_until(lambda: parsed(ask(browser)[1], "RateLimit-Policy") == edited, demo.printed)
    assert ask(browser)[0] == 200

    demo.stop()
    browser = demo.start()
    status, headers, _ = ask(browser)
    assert (status, parsed(headers, "RateLimit-Policy")) == (200, edited)
    status, _, page = browser.submit("/admin/login/", "login-form", username=user, password=password)
    assert (status, "Log out" in page) == (200, True)
    assert "Traceback" not in demo.printed()


def ask(browser):
    return browser.get("/ping", **{"X-Client-Key": "me"})


def test_demo_refuses_from_the_framework_and_the_decorator_in_full(demo):
    browser = demo.start()
    for where, limit, times in (("/api/reports", "reports", 5), ("/export", "export", 2)):
        answers = []
        while not answers or answers[-1][0] != 429:
            answers.append(browser.get(where))
            assert len(answers) <= 2 * times + 1, answers
        _, headers, body = answers[-1]
        assert json.loads(body)["violated-policies"] == [limit]
        assert headers["Content-Length"] == str(len(body))
