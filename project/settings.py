"""The demo and test project: SQLite by default, any database by its URL."""

import os
import tempfile
from pathlib import Path

import environ

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

SECRET_KEY = env.str("SECRET_KEY", default="for the demo and the tests only")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "testserver"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "ratelimit_app",
    "project",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    # Before the CSRF check, so that what fails it is counted too.
    "ratelimit_app.middleware.RateLimitMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# The counters have a connection of their own, which can be tuned for them alone. On SQLite it is a
# file of their own too, because a file has one writer at a time.
_default_url = env.str("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'demo.sqlite3'}")
_counters_url = env.str(
    "RATELIMIT_DATABASE_URL",
    default=f"sqlite:///{BASE_DIR / 'demo-counters.sqlite3'}"
    if _default_url.startswith("sqlite")
    else _default_url,
)
DATABASES = {
    "default": env.db_url_config(_default_url),
    "ratelimit": env.db_url_config(_counters_url),
}
for _alias, _database in DATABASES.items():
    if _database["ENGINE"] == "django.db.backends.sqlite3":
        _database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        }
        # Tests race with threads and processes: that takes a file. Each run has its own.
        _database["TEST"] = {"NAME": f"{tempfile.gettempdir()}/ratelimit-test-{_alias}-{os.getpid()}.sqlite3"}
DATABASE_ROUTERS = ["ratelimit_app.routers.CounterRouter"]

RATELIMIT_DATABASE = "ratelimit"
RATELIMIT_EXEMPT = ["admin:", "healthz"]
RATELIMIT_LIMITS = {
    "ping": {"rate": "3/60s", "key": "project.keys.client_key", "count_denied": True},
    "work": {"rate": "2/10s", "key": "project.keys.client_id", "algorithm": "sliding_log"},
    "reports": {"rate": "5/min", "key": "user_or_ip"},
    "export": {"rate": "2/min"},
    "login": {"rate": "5/min", "path": "^/login/", "methods": "POST"},
    "api": {"rate": "100/min", "path": "^/api/"},
    # Only failures cost: 5 for each name from one address, and 30 for all names from it.
    "sign-in-name": {
        "rate": "5/min",
        "key": "project.keys.tried_name",
        "charge": "failures",
        "methods": "POST",
    },
    "sign-in-address": {"rate": "30/min", "key": "ip", "charge": "failures", "methods": "POST"},
}
