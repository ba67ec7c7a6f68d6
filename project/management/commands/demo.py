"""Set up the demo, say what to try, and serve it."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connections

from ratelimit_app.conf import conf
from ratelimit_app.limits import declared
from ratelimit_app.models import Limit

_USER = "admin"
_PASSWORD = "admin"  # noqa: S105 (served to this machine alone)

_TRY = """
Three answers a minute, then 429 with problem details (every attempt counts):
  curl -i -H 'X-Client-Key: me' {url}/ping
  curl '{url}/status?key=me'
Two answers in ten seconds:
  curl -i -H 'X-Client-ID: me' {url}/work
A view of Django REST framework, a decorated view, a log-in form:
  curl -i {url}/api/reports
  curl -i {url}/export
  curl -s -o /dev/null -w '%{{http_code}}\n' -X POST {url}/login/   (403 without a CSRF token, and counted)
A log-in form where only failures count, 5 a minute for each name and 30 for all of them:
  {url}/sign-in/
What is left to this address of each limit, without counting:
  curl {url}/ratelimit/status/
Edit the limits, and see the answers change within {refresh} seconds:
  {url}/admin/   (user {user}, password {password})
"""


class Command(BaseCommand):
    help = "Migrate, make demo limits and an admin user, say what to try, and serve on 127.0.0.1."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("port", nargs="?", type=int, default=8000, help="The port (default: 8000).")

    def handle(self, *args: Any, **options: Any) -> None:
        for alias in connections:
            call_command("migrate", database=alias, verbosity=0)
        self._make_limits()
        self._make_admin()
        url = f"http://127.0.0.1:{options['port']}"
        self.stdout.write(_TRY.format(url=url, refresh=conf.refresh, user=_USER, password=_PASSWORD))
        # The admin's style sheets come from this server too; there is no other here.
        call_command("runserver", f"127.0.0.1:{options['port']}", use_reloader=False, insecure_serving=True)

    def _make_limits(self) -> None:
        """Put the limits of the settings into the admin, where they can be edited from then on."""
        for name, spec in conf.limits.items():
            if not Limit.objects.filter(name=name).exists():
                limit = declared(name, spec)
                limit.full_clean()
                limit.save()

    def _make_admin(self) -> None:
        users = get_user_model().objects
        if not users.filter(username=_USER).exists():
            users.create_superuser(username=_USER, password=_PASSWORD)
