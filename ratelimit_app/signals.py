"""What the app tells those who listen."""

from django.dispatch import Signal

#: A call was over the quota of a limit, which refused it, or would have if it were not in shadow mode.
#: Sent with ``sender`` the limit's name and ``decision`` the ``Decision`` of that one limit.
over_quota = Signal()

#: The counters' database has not answered a question, or a lock was held for too long: calls go by
#: ``on_error``. Sent with the log line, once a minute at most: with ``sender`` the alias, ``error`` the
#: database's error, and ``is_busy`` whether it was a lock.
outage = Signal()
