"""Where the counters are, and which aliases have ATOMIC_REQUESTS, as the fixture ``place`` reads it."""

import pytest
from django.db import connections

#: The alias of the counters, then those that have ATOMIC_REQUESTS.
APART = "ratelimit default"
SHARED = "default default"
BOTH = "ratelimit default ratelimit"

#: One file has one writer: on SQLite, a transaction on the counters' own file is told of in
#: ``test_one_file.py``.
SAFE = [APART] if connections["ratelimit"].vendor == "sqlite" else [APART, SHARED, BOTH]

everywhere = pytest.mark.parametrize("place", SAFE, indirect=True)
