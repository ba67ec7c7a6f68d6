"""The instant that counts: by the clock that all hosts agree on, where the counters' database has one."""

import contextlib

from ratelimit_app import clock, outages
from ratelimit_app.conf import conf
from ratelimit_app.outages import Unanswered
from ratelimit_app.stores import store_for


def now() -> int:
    """Return the instant in microseconds since the epoch, by the clock that all hosts agree on."""
    if not _follows_server():
        clock.follow_local()
    elif clock.is_due():
        with contextlib.suppress(Unanswered):  # until it answers, by what was measured before
            clock.follow(_server_time)
    return clock.now()


def _server_time() -> int:
    return outages.ask(conf.database, lambda store: store.server_time())


def known() -> int | None:
    """Return the instant, ``None`` where the database would have to be asked for it."""
    return None if _follows_server() and clock.is_due() else clock.now()


def _follows_server() -> bool:
    return conf.clock == "database" and store_for(conf.database).has_clock
