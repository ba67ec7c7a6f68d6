"""Ask the limiter again and again, and write a line about each answer: run in a process of its own."""

import json
import sys
import time

import django

from tests.faults.site import PAUSE, UNLIMITED


def ask(limit):
    """Ask a limit once; return an ``Answer`` but for the caller."""
    from ratelimit_app import limiter

    start, begun = time.time(), time.monotonic()
    try:
        decision = limiter.consume(limit, "process")
        status, at = 200, decision.at
        if not decision.allowed:
            status = 503 if decision.unavailable else 429
    except Exception as error:
        status, at = repr(error), 0.0
    return limit, start, time.monotonic() - begun, status, at


def pause():
    """Sleep for a little; return how much longer that has taken, as an answer that nothing was to delay."""
    start, begun = time.time(), time.monotonic()
    time.sleep(PAUSE)
    return UNLIMITED, start, time.monotonic() - begun - PAUSE, 200, 0.0


if __name__ == "__main__":
    django.setup()
    while True:
        for name in sys.argv[1:]:
            sys.stdout.write(json.dumps(ask(name)) + "\n")
            sys.stdout.flush()
        slept = pause()
        sys.stdout.write(json.dumps(slept) + "\n")
