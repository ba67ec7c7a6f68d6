"""How many examples are tried, and what strangers may send."""

import unicodedata
import urllib.parse
from collections.abc import Callable

import hypothesis
from hypothesis import strategies as st

#: Few in every run; in a long one (``--hypothesis-profile long``) as many as a night has room for.
IS_LONG = hypothesis.settings.get_current_profile_name() == "long"
fuzzed = hypothesis.settings(
    max_examples=50_000 if IS_LONG else 100,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)

#: What has surprised one parser or another.
ODD = [
    "",
    " ",
    "\x00",
    "\n",
    "\r\n",
    "\x1b[31m",
    "\x7f",
    "\x80",
    "\xff",
    "\ud800",
    "\u2028",
    "\u202e",
    "\ufeff",
    "😀",
    "é",
    "e\u0301",
    "A",
    "a",
    "#",
    "%",
    "%00",
    "%2B",
    "+",
    " + ",
    ":",
    ";",
    ",",
    '"',
    "'",
    "\\",
    "/",
    "//",
    "..",
    "=",
    "&",
    "[",
    "]",
    "{",
    "}",
    "<b>",
    "0",
    "-1",
    "9" * 25,
    "1e9",
    "nan",
    "ip:203.0.113.77",
    "user:1",
    "global",
    "203.0.113.77",
    "::ffff:203.0.113.77",
    "x" * 300,
]

#: What keys are made of, plain; any characters at all, lone surrogates too; what is odd.
plain = st.text("aAbB10:.", min_size=1, max_size=8)
texts = (
    plain
    | st.text(st.characters(exclude_categories=[]), max_size=40)
    | st.lists(st.sampled_from(ODD), max_size=5).map("".join)
)

#: What a database, a parser or a proxy may take for the same text.
VARIANTS: list[Callable[[str], str]] = [
    str.lower,
    str.upper,
    str.strip,
    lambda text: text + " ",
    lambda text: " " + text,
    lambda text: text + "\x00",
    lambda text: text.partition("\x00")[0],
    lambda text: text[:100],
    lambda text: text + "x" * 300,
    lambda text: unicodedata.normalize("NFC", text),
    lambda text: unicodedata.normalize("NFKD", text),
    lambda text: text.encode("ascii", "ignore").decode(),
    lambda text: urllib.parse.quote(text, errors="surrogatepass"),
    lambda text: urllib.parse.unquote(text),
    lambda text: text.replace("+", "%2B"),
    lambda text: "#" + text,
]

#: Two texts that look alike, or have nothing to do with each other.
pairs = st.tuples(texts, texts) | st.tuples(plain | texts, st.sampled_from(VARIANTS)).map(
    lambda drawn: (drawn[0], drawn[1](drawn[0]))
)


def shaped(*pieces: str) -> st.SearchStrategy[str]:
    """Texts made of pieces that a parser knows, and of what it does not."""
    piece = st.sampled_from(pieces) | st.sampled_from(ODD)
    return st.lists(piece, max_size=12).map("".join)


def sent(*pieces: str) -> st.SearchStrategy[str]:
    """What a server hands on of a header or a path: bytes, each as one character (PEP 3333)."""
    shapes = texts | shaped(*pieces) if pieces else texts
    encoded = shapes.map(lambda text: text.encode("utf-8", "surrogatepass"))
    return (st.binary(max_size=60) | encoded).map(lambda octets: octets.decode("latin-1"))


def headers(*pieces: str) -> st.SearchStrategy[str]:
    """The same without what no server takes in a header."""
    return sent(*pieces).map(lambda text: text.translate({0: None, 10: None, 13: None}))
