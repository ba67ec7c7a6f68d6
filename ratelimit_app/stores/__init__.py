"""Counters in a database: all SQL of the app, one module per vendor.

A store knows no request, no limit and no algorithm: it moves rows.
"""

import functools
import importlib
import importlib.util

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from ratelimit_app.stores.base import Store
from ratelimit_app.stores.row_keys import row_key
from ratelimit_app.stores.rows import Advance, Outcome, Row
from ratelimit_app.stores.sending import TimeOver

__all__ = [
    "Advance",
    "Outcome",
    "Row",
    "Store",
    "TimeOver",
    "database_of",
    "has_store",
    "row_key",
    "store_for",
]


def store_for(alias: str) -> Store:
    """Return the store for a database alias."""
    return _load(connections[alias].vendor)(alias)


def has_store(vendor: str) -> bool:
    """Tell whether there is a module for a ``connection.vendor`` (MariaDB's is ``mysql``)."""
    if importlib.util.find_spec(f"{__name__}.{vendor}") is None:
        return False
    return hasattr(importlib.import_module(f"{__name__}.{vendor}"), "VendorStore")


def database_of(alias: str) -> tuple[object, ...]:
    """Return what two aliases have in common that are two connections to one database."""
    settings = connections[alias].settings_dict
    return tuple(settings[name] for name in ("ENGINE", "HOST", "PORT", "NAME"))


@functools.cache
def _load(vendor: str) -> type[Store]:
    if not has_store(vendor):
        raise ImproperlyConfigured(f"RATELIMIT_DATABASE: no store for the vendor {vendor!r}")
    store: type[Store] = importlib.import_module(f"{__name__}.{vendor}").VendorStore
    return store
