"""What the app tells those who listen."""

from django.dispatch import Signal

#: A call was over the quota of a limit, which refused it, or would have if it were not in shadow mode.
#: Sent with ``sender`` the limit's name and ``decision`` the ``Decision`` of that one limit.
over_quota = Signal()
