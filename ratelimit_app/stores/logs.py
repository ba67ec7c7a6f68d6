"""The log of a key: an entry for each call that was admitted, with the running total of units.

What is used is the difference of two totals: that of the newest entry, and that before the oldest one
which has not expired. Either is one look into an index, however long the log. The row that heads the
log, which holds the total too, is locked before the log is read.
"""

import dataclasses

from django.db.backends.utils import CursorWrapper

from ratelimit_app.algorithms import Logged
from ratelimit_app.stores.rows import Advance, Outcome, Row

# ``key`` is a reserved word of MySQL, but not behind a period.
_READ = """
SELECT coalesce(newest.sequence - oldest.sequence + oldest.units, 0), newest.sequence,
    CASE WHEN oldest.sequence IS NULL THEN 0 ELSE newest.expires_at END, coalesce(oldest.expires_at, 0)
FROM (
    SELECT c.sequence, c.expires_at FROM ratelimit_app_loggedcall c
    WHERE c.key = %s ORDER BY c.sequence DESC LIMIT 1
) AS newest LEFT JOIN (
    SELECT c.sequence, c.units, c.expires_at FROM ratelimit_app_loggedcall c
    WHERE c.key = %s AND c.expires_at > %s ORDER BY c.expires_at, c.sequence LIMIT 1
) AS oldest ON true
"""
_READ_HELD = """
SELECT coalesce(sum(c.units), 0),
    coalesce((SELECT max(e.sequence) FROM ratelimit_app_loggedcall e WHERE e.key = %s), 0),
    coalesce(max(c.expires_at), 0), coalesce(min(c.expires_at), 0)
FROM ratelimit_app_loggedcall c WHERE c.key = %s AND c.expires_at > %s
"""
_ROOM = """
SELECT c.expires_at FROM ratelimit_app_loggedcall c
WHERE c.key = %s AND c.sequence >= %s ORDER BY c.sequence LIMIT 1
"""
_ROOM_HELD = """
SELECT min(c.expires_at) FROM (
    SELECT e.expires_at, sum(e.units) OVER (ORDER BY e.expires_at, e.sequence) AS freed
    FROM ratelimit_app_loggedcall e WHERE e.key = %s AND e.expires_at > %s
) AS c WHERE c.freed >= %s
"""
# The columns in the order of the table, because no one way to name the first suits all databases.
_APPEND = "INSERT INTO ratelimit_app_loggedcall VALUES (%s, %s, %s, %s)"
_FORGET = "DELETE FROM ratelimit_app_loggedcall WHERE ratelimit_app_loggedcall.key = %s"
_END = """
SELECT c.sequence FROM ratelimit_app_loggedcall c
WHERE c.key = %s AND c.expires_at <= %s ORDER BY c.expires_at DESC, c.sequence DESC LIMIT 1
"""
_REMOVE = _FORGET + " AND sequence > %s AND sequence <= %s AND sequence - units >= %s"
# MySQL makes assignments in the order written, each seeing those before it.
_SHORTEN = """
UPDATE ratelimit_app_loggedcall SET units = units - (sequence - %s), sequence = %s
WHERE ratelimit_app_loggedcall.key = %s AND sequence > %s AND sequence <= %s
"""
# In two steps, because a key must be unique at each row that a statement changes.
_SET_ASIDE = """
UPDATE ratelimit_app_loggedcall SET sequence = -sequence
WHERE ratelimit_app_loggedcall.key = %s AND sequence > %s
"""
# The numbers begin anew with the head of a log, when that was pruned or reset: the expiry tells whose it is.
_GIVE_BACK = _FORGET + " AND sequence = %s AND expires_at = %s"
_PUT_BACK = """
UPDATE ratelimit_app_loggedcall SET sequence = -sequence - %s
WHERE ratelimit_app_loggedcall.key = %s AND sequence < 0
"""
_LOCK = """
UPDATE ratelimit_app_counter SET count = count
WHERE ratelimit_app_counter.key = %s AND window_start = %s
"""
_SET_TOTAL = """
UPDATE ratelimit_app_counter SET count = %s
WHERE ratelimit_app_counter.key = %s AND window_start = %s
"""


@dataclasses.dataclass(frozen=True, slots=True)
class _Log:
    """The units used, the newest total, when the last of them expires and the first: zeros if none are."""

    used: int = 0
    total: int = 0
    empty_at: int = 0
    oldest_at: int = 0


def look(cursor: CursorWrapper, advance: Advance, logged: Logged) -> Outcome:
    """Tell whether a log has room for an advance as it is. Writes nothing."""
    log = _read(cursor, advance.row, logged)
    if advance.fits(log.used):
        return Outcome(True, log.used, empty_at=log.empty_at, more_at=log.oldest_at)
    return _refused(cursor, advance, logged, log)


def append(cursor: CursorWrapper, advance: Advance, logged: Logged, *, total: int) -> tuple[bool, Outcome]:
    """Log an advance that has moved the head of its log to a total.

    Returns whether that may stay, and the outcome; where it may not, nothing was logged.
    """
    if total == advance.amount:
        cursor.execute(_FORGET, [advance.row.key])  # the head is new: what a former one left has expired
    log = _read(cursor, advance.row, logged)
    used = log.used + advance.amount
    if used > advance.highest:
        return False, _refused(cursor, advance, logged, log)  # by what was met: others give back meanwhile
    if log.total > total - advance.amount:  # the head was set back behind its entries
        total = log.total + advance.amount
        cursor.execute(_SET_TOTAL, [total, advance.row.key, advance.row.window_start])
    empty_at = max(logged.expires_at, log.empty_at)
    # Entries of a log expire in their order, though the clock may have stepped back.
    expires_at = logged.expires_at if logged.is_held else empty_at
    cursor.execute(_APPEND, [advance.row.key, total, advance.amount, expires_at])
    oldest_at = min(log.oldest_at or expires_at, expires_at)
    if advance.fits(log.used):
        entry = total if logged.is_held else 0
        return True, Outcome(True, used, empty_at=empty_at, more_at=oldest_at, entry=entry)
    return True, _refused(cursor, advance, logged, _Log(used, total, empty_at, oldest_at))


def refund(cursor: CursorWrapper, advance: Advance, logged: Logged) -> None:
    """Take an amount off the newest entries that expire with ``logged`` or before it, down to none.

    Of what is held, only an entry of its own is given back, whole.
    """
    row = advance.row
    if logged.is_held:
        cursor.execute(_GIVE_BACK, [row.key, logged.entry, logged.expires_at])
        return
    cursor.execute(_LOCK, [row.key, row.window_start])
    log = _read(cursor, row, logged)
    cursor.execute(_END, [row.key, logged.expires_at])
    (end,) = cursor.fetchone() or (0,)
    taken = min(log.used - (log.total - end), advance.amount) if log.used else 0
    if taken <= 0:
        return
    left = end - taken
    cursor.execute(_SET_TOTAL, [log.total - taken, row.key, row.window_start])
    cursor.execute(_REMOVE, [row.key, left, end, left])
    cursor.execute(_SHORTEN, [left, left, row.key, left, end])
    if end < log.total:
        cursor.execute(_SET_ASIDE, [row.key, end])
        cursor.execute(_PUT_BACK, [taken, row.key])


def forget(cursor: CursorWrapper, key: str) -> None:
    """Delete the entries of a stored key."""
    cursor.execute(_FORGET, [key])


def _read(cursor: CursorWrapper, row: Row, logged: Logged) -> _Log:
    cursor.execute(_READ_HELD if logged.is_held else _READ, [row.key, row.key, logged.now])
    return _Log(*(int(number) for number in cursor.fetchone() or ()))


def _refused(cursor: CursorWrapper, advance: Advance, logged: Logged, log: _Log) -> Outcome:
    room_at = _room_at(cursor, advance, logged, log, advance.amount)
    more_at = log.oldest_at
    if log.used > advance.ceiling:  # more is used than there is: the oldest entry alone makes no room
        more_at = room_at if advance.amount == 1 else _room_at(cursor, advance, logged, log, 1)
    return Outcome(False, log.used, empty_at=log.empty_at, room_at=room_at, more_at=more_at)


def _room_at(cursor: CursorWrapper, advance: Advance, logged: Logged, log: _Log, units: int) -> int:
    """Return when so much will have expired that so many units fit; 0 where they never do."""
    if units > advance.ceiling:
        return 0
    if logged.is_held:
        cursor.execute(_ROOM_HELD, [advance.row.key, logged.now, log.used + units - advance.ceiling])
    else:
        cursor.execute(_ROOM, [advance.row.key, log.total + units - advance.ceiling])
    return (cursor.fetchone() or (0,))[0] or log.oldest_at
