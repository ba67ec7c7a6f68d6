"""System checks, a file for each concern; the ids are for good, and a new check takes the next number."""

from ratelimit_app.checks import (
    callers,
    databases,
    middleware,
    proxies,
    rates,
    settings,
    sqlite,
    timeouts,
    transactions,
    views,
)

__all__ = [
    "callers",
    "databases",
    "middleware",
    "proxies",
    "rates",
    "settings",
    "sqlite",
    "timeouts",
    "transactions",
    "views",
]
