"""The columns that keys are stored in."""

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

#: How each vendor is told to compare byte by byte; SQLite does so by itself. ``ascii_bin`` ignores
#: trailing spaces, of which a stored key has none, and takes one byte a character in the index.
_EXACT = {
    "postgresql": 'COLLATE "C"',
    "mysql": "CHARACTER SET ascii COLLATE ascii_bin",
}

#: The same for any characters: PostgreSQL compares those byte by byte, too.
_EXACT_TEXT = {"mysql": "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}


class ExactASCIIField(models.CharField):  # type: ignore[type-arg] # not generic at run time
    """A text of printable ASCII without spaces, compared exactly on every database."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return f"{super().db_type(connection)} {_EXACT.get(connection.vendor, '')}".rstrip()


class ExactTextField(models.CharField):  # type: ignore[type-arg] # not generic at run time
    """A text of any characters, compared exactly on every database, but for spaces at its end."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return f"{super().db_type(connection)} {_EXACT_TEXT.get(connection.vendor, '')}".rstrip()
