"""The site whose counters are on a server that breaks: its settings."""

from pathlib import Path
from typing import Any

#: What is to happen while the counters cannot be asked: a limit for each.
ANSWERS = ["allow", "deny", "local"]

LIMITS = [*ANSWERS, "total"]

#: What needs no counters: it takes as long as the machine has other things to do.
UNLIMITED = "up"

#: Seconds between the rounds of a caller.
PAUSE = 0.1

#: Units that each of these limits allows in a second, of all callers of one key together.
QUOTA = 3


def settings(counters: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of processes that have their counters there, and all else in a file."""
    return {
        "DATABASES": {
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "site.sqlite3"},
            "ratelimit": {**counters, "CONN_MAX_AGE": 60},
        },
        "ROOT_URLCONF": "tests.faults.urls",
        "RATELIMIT_LIMITS": {
            **{answer: {"rate": f"{QUOTA}/s", "key": "global", "on_error": answer} for answer in ANSWERS},
            "total": {"rate": "1000000/5000 day", "key": "global"},
        },
    }
