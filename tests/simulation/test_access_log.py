import contextlib
import gzip
import io

import pytest

from ratelimit_app.simulation.access_log import AccessLog, Entry, opened, parse
from ratelimit_app.simulation.log_arrivals import is_client
from ratelimit_app.simulation.progress import hidden
from tests.conftest import NOON

AT = NOON * 1_000_000
DATE = "01/Jun/2026:12:00:00 +0000"
COMMON = f'192.0.2.1 - - [{DATE}] "GET /a HTTP/1.1" 200 5'
COMBINED = COMMON + ' "https://example.com/?q=\\"x\\"" "Mozilla/5.0 (X11) [en] \\"y\\""'


def line(second=0, address="192.0.2.1"):
    return f'{address} - - [01/Jun/2026:12:{second // 60:02}:{second % 60:02} +0000] "GET /a HTTP/1.1" 200 5'


def read(*lines):
    """Read lines as a log; return it, and its entries."""
    log = AccessLog(io.BytesIO("\n".join(lines).encode()), is_client)
    return log, list(log)


@pytest.mark.parametrize(
    "text", [COMMON, COMBINED, COMMON + " 0.003", COMMON.replace(" 5", " -")], ids=range(4)
)
def test_line_in_a_common_or_combined_format_is_read(text):
    assert parse(text) == Entry(AT, "192.0.2.1", "-", "GET /a HTTP/1.1")


@pytest.mark.parametrize(
    ("old", "new", "entry"),
    [
        ("192.0.2.1", "2001:db8::7", Entry(AT, "2001:db8::7", "-", "GET /a HTTP/1.1")),
        ("- - ", "- jane ", Entry(AT, "192.0.2.1", "jane", "GET /a HTTP/1.1")),
        ("- - ", "- Jane Doe [x] ", Entry(AT, "192.0.2.1", "Jane Doe [x]", "GET /a HTTP/1.1")),
        ("- - ", "- 花子 ", Entry(AT, "192.0.2.1", "花子", "GET /a HTTP/1.1")),
        ("GET /a HTTP/1.1", r"GET /\"b\"?c=\\ HTTP/1.1", None),
        ("GET /a HTTP/1.1", r"\x16\x03\x01", None),
        ("GET /a HTTP/1.1", "", None),
    ],
)
def test_fields_are_read_as_they_are_written(old, new, entry):
    assert parse(COMMON.replace(old, new)) == (entry or Entry(AT, "192.0.2.1", "-", new))


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("01/Jun/2026:14:30:00 +0230", 0),
        ("01/Jun/2026:08:30:00 -0330", 0),
        ("31/May/2026:12:00:59 -2359", 59 - 60),
        ("02/Jun/2026:00:00:01 +0000", 43_201),
        ("01/Jun/2026:21:00:00 +0900", 0),
    ],
)
def test_date_is_read_with_its_offset(date, seconds):
    assert parse(COMMON.replace(DATE, date)).at == AT + seconds * 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no line at all",
        COMMON[:60],
        COMMON.replace("Jun", "jun"),
        COMMON.replace("01/Jun", "31/Jun"),
        COMMON.replace("12:00:00", "24:00:00"),
        COMMON.replace("2026", "9999"),
        COMMON.replace(" +0000", ""),
        COMMON.replace("2026", "\uff12\uff10\uff12\uff16"),
        COMMON.replace(" 200 ", " ok "),
        COMMON.replace('"GET', "GET"),
        '{"time": "2026-06-01T12:00:00Z", "remote_addr": "192.0.2.1"}',
    ],
)
def test_line_in_another_format_is_an_error(text):
    with pytest.raises(ValueError, match=r"got|day is out of range|hour must be in"):
        parse(text)


def test_bad_lines_are_counted_and_passed_over():
    log, entries = read(
        line(0), "", "half a li", line(1), line(2, "example.com:80 192.0.2.1"), line(3, "a.b")
    )
    assert [entry.at - AT for entry in entries] == [0, 1_000_000]
    assert (log.good, log.bad, log.first_bad) == (2, 4, (2, ""))


def test_line_that_never_ends_is_bad_and_not_kept():
    log, entries = read("x" * 200_000, line())
    assert (len(entries), log.bad) == (1, 4)
    assert log.first_bad == (1, "x" * 80)


def test_bytes_that_are_no_text_are_shown_as_such():
    log = AccessLog(io.BytesIO(COMMON.replace(" - - ", " - x ").encode().replace(b"x", b"\xff")), is_client)
    assert [entry.user for entry in log] == [r"\xff"]


def test_log_of_no_lines_has_no_entries():
    log, entries = read()
    assert (entries, log.good, log.bad, log.late) == ([], 0, 0, 0)


def test_lines_out_of_order_are_put_in_order():
    log, entries = read(*(line(second) for second in (3, 1, 2, 1, 0)))
    assert [(entry.at - AT) // 1_000_000 for entry in entries] == [0, 1, 1, 2, 3]
    assert log.late == 0


def test_line_far_out_of_order_counts_at_the_instant_that_was_reached(monkeypatch):
    monkeypatch.setattr("ratelimit_app.simulation.access_log._HELD", 2)
    log, entries = read(*(line(second) for second in (10, 20, 30, 40, 5, 50)))
    assert [(entry.at - AT) // 1_000_000 for entry in entries] == [10, 20, 20, 30, 40, 50]
    assert log.late == 1


def test_lines_held_back_are_at_most_10_000():
    log = AccessLog(io.BytesIO((line() + "\n").encode() * 30_000), is_client)
    next(iter(log))
    assert log.good == 10_001


# Files --------------------------------------------------------------------------------------------


def lines_of(name, watch=hidden):
    with opened(str(name), watch) as stream:
        return list(AccessLog(stream, is_client))


@pytest.mark.parametrize("name", ["access.log", "access.log.gz", "-1"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_file_is_read_by_what_is_in_it_whatever_its_name(tmp_path, name, pack):
    text = "".join(line(second) + "\n" for second in range(50)).encode()
    (tmp_path / name).write_bytes(pack(text))
    assert len(lines_of(tmp_path / name)) == 50


def test_gzip_of_several_parts_is_read_to_its_end(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"".join(gzip.compress((line(second) + "\n").encode()) for second in range(3)))
    assert len(lines_of(path)) == 3


def test_gzip_that_is_cut_off_is_an_error(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(gzip.compress((line() + "\n").encode() * 1_000)[:-20])
    with pytest.raises(EOFError):
        lines_of(path)


def test_progress_is_told_of_every_byte_of_the_file(tmp_path):
    path, told, sizes = tmp_path / "log", [], []
    path.write_bytes(gzip.compress((line() + "\n").encode() * 5_000))

    def watch(size):
        sizes.append(size)
        return contextlib.nullcontext(told.append)

    lines_of(path, watch)
    assert sizes == [path.stat().st_size] == [sum(told)]
