import pytest

from ratelimit_app.hashing import keyed_hash

TEXTS = [
    "",
    "a",
    "A",
    "a ",
    "á",
    "a\u0301",
    "\x00",
    "a\x00",
    "\ud800",
    "\udfff",
    "😀",
    "a" * 10_000,
    "a" * 10_001,
]


def test_hash_is_64_hexadecimal_digits_and_the_same_each_time():
    for text in TEXTS:
        digits = keyed_hash(text)
        assert len(digits) == 64
        assert set(digits) <= set("0123456789abcdef")
        assert keyed_hash(text) == digits


def test_hashes_of_different_texts_differ():
    assert len({keyed_hash(text) for text in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("text", ["", "secret"])
def test_hash_needs_the_secret_key_to_be_made(text, settings):
    before = keyed_hash(text)
    settings.SECRET_KEY = "another"
    assert keyed_hash(text) != before
