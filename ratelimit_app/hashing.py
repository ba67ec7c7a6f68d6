"""Keyed hashes, for what is too long, too odd or too secret to be stored as it is."""

from django.utils.crypto import salted_hmac


def keyed_hash(text: str) -> str:
    """Return the HMAC-SHA-256 of a text under the project's ``SECRET_KEY``, as 64 hexadecimal digits.

    Any text will do, lone surrogates included: different texts have different hashes.
    """
    value = text.encode("utf-8", "surrogatepass")
    return salted_hmac("ratelimit_app", value, algorithm="sha256").hexdigest()
