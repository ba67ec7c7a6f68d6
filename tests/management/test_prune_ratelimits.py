import io
import os
import pty
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from ratelimit_app import limiter
from ratelimit_app.models import Counter
from ratelimit_app.policy import Policy
from ratelimit_app.stores import Store, store_for
from tests.conftest import NOON
from tests.races import environment, in_processes

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parent.parent.parent
NOW = NOON * 1_000_000


def make(number, *, expires_at=NOW, prefix="old"):
    Counter.objects.bulk_create(
        Counter(key=f"{prefix}:{n}", window_start=1, count=1, expires_at=expires_at) for n in range(number)
    )


def prune(*args, **options):
    out = io.StringIO()
    call_command("prune_ratelimits", *args, stdout=out, **options)
    return out.getvalue()


def prune_in_a_process(index):
    return prune("--batch-size=10")


def start(*args, **options):
    """Start the command in a process of its own, on the database of this test run."""
    command = [sys.executable, "manage.py", "prune_ratelimits", *args]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, **options)


def hear_interrupts():
    """Undo that whoever runs the tests in the background has made them deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_all(terminal):
    """What is left to read on a terminal whose other end is closed."""
    text = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # on Linux, the end of a terminal is an error
            return text.decode()
        if not part:
            return text.decode()
        text += part


# Which rows ---------------------------------------------------------------------------------------


def test_window_and_the_one_before_are_kept_and_older_ones_deleted(clock):
    limits = [Policy.parse(rate) for rate in ("5/min", "5/day", "3/month")]
    for limit in limits:
        limiter.consume(limit, "k")
    answers = []
    for step in (0, 59, 60, 0.999999, 0.000001, 0):
        clock.advance(step)
        answers.append((prune(verbosity=1).strip(), Counter.objects.count()))
    none, one = "Expired counters deleted: 0", "Expired counters deleted: 1"
    assert answers == [(none, 3)] * 4 + [(one, 2), (none, 2)]


@pytest.mark.parametrize("rate", ["3/min", "3/day", "3/month"])
def test_limit_that_is_used_up_stays_used_up(rate, clock):
    limit = Policy.parse(rate)
    limiter.consume(limit, "k", cost=3)
    clock.advance(limiter.peek(limit, "k").retry_after - 0.000001)
    prune()
    assert not limiter.consume(limit, "k").allowed


def test_row_at_the_very_end_goes_and_later_ones_stay(clock):
    make(1, expires_at=NOW)
    make(1, expires_at=NOW + 1, prefix="new")
    assert prune() == "Expired counters deleted: 1\n"
    assert Counter.objects.get().key == "new:0"


@pytest.mark.parametrize(("rows", "size"), [(0, 10), (1, 1), (25, 10), (20, 10), (25, 1), (25, 1000)])
def test_batches_of_any_size_delete_all(rows, size, clock):
    make(rows)
    make(2, expires_at=NOW + 1, prefix="new")
    assert prune(f"--batch-size={size}") == f"Expired counters deleted: {rows}\n"
    assert Counter.objects.count() == 2


def test_batches_are_no_larger_than_asked(clock, monkeypatch):
    sizes, send = [], Store.prune

    def spy(self, now, batch_size):
        sizes.append(send(self, now, batch_size))
        return sizes[-1]

    monkeypatch.setattr(Store, "prune", spy)
    make(25)
    prune("--batch-size=10")
    assert sizes == [10, 10, 5, 0]


def test_batches_are_of_a_thousand_unless_told(clock, monkeypatch):
    asked = []
    monkeypatch.setattr(Store, "prune", lambda self, now, batch_size: asked.append(batch_size) or 0)
    prune()
    assert asked == [store_for("ratelimit").batch]


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "many", ""])
def test_batch_size_that_is_none_is_an_error(size, clock):
    make(1)
    with pytest.raises(CommandError, match="--batch-size"):
        prune(f"--batch-size={size}")
    assert Counter.objects.count() == 1


def test_dry_run_counts_and_deletes_nothing(clock):
    make(1234)
    make(2, expires_at=NOW + 1, prefix="new")
    assert prune("--dry-run") == "Expired counters that would be deleted: 1,234\n"
    assert Counter.objects.count() == 1236
    assert prune() == "Expired counters deleted: 1,234\n"


def test_database_may_be_named(clock):
    make(3)
    Counter.objects.using("default").create(key="own", window_start=1, count=1, expires_at=NOW)
    assert prune("--database=default") == "Expired counters deleted: 1\n"
    assert prune("--database=ratelimit") == "Expired counters deleted: 3\n"


def test_database_that_is_unknown_is_an_error(clock):
    with pytest.raises(
        CommandError, match=r"--database: unknown alias 'nosuch' \(have: default, ratelimit\)"
    ):
        prune("--database=nosuch")


# What it says -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("args", [(), ("--dry-run",)])
@pytest.mark.parametrize("out", [io.StringIO, Terminal])
def test_verbosity_0_is_quiet(args, out, clock):
    make(3)
    stdout = out()
    call_command("prune_ratelimits", *args, stdout=stdout, verbosity=0)
    assert stdout.getvalue() == ""


def test_progress_is_not_shown_in_a_file(clock):
    make(30)
    assert prune("--batch-size=10") == "Expired counters deleted: 30\n"


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def after_batches(monkeypatch, number, do):
    """Do something in the middle of a run: when so many batches are deleted."""
    send, done = Store.prune, []

    def prune_and_do(self, now, batch_size):
        done.append(send(self, now, batch_size))
        if len(done) == number:
            do()
        return done[-1]

    monkeypatch.setattr(Store, "prune", prune_and_do)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_signal_ends_it_after_the_batch_and_says_what_was_done(number, code, clock, monkeypatch):
    after_batches(monkeypatch, 2, lambda: signal.raise_signal(number))
    make(50)
    with pytest.raises(CommandError, match=rf"{number.name}: ended after 20 expired counters") as caught:
        prune("--batch-size=10")
    assert caught.value.returncode == code
    assert Counter.objects.count() == 30


@pytest.mark.django_db(transaction=True)
def test_thread_that_hears_no_signals_prunes_too():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(prune_and_close).result() == "Expired counters deleted: 0\n"


def prune_and_close():
    try:
        return prune()
    finally:
        connections.close_all()


# How long it takes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", ""])
def test_max_seconds_that_is_no_number_above_0_is_an_error(seconds, clock):
    make(1)
    with pytest.raises(CommandError, match="--max-seconds"):
        prune(f"--max-seconds={seconds}")
    assert Counter.objects.count() == 1


def test_time_that_runs_out_ends_it_after_the_batch_and_says_that_some_are_left(clock):
    make(50)
    told = prune("--batch-size=10", "--max-seconds=1e-9")
    assert told == "Expired counters deleted: 10; the time is over, and some are left\n"
    assert Counter.objects.count() == 40


def test_time_that_runs_out_with_the_last_batch_leaves_none(clock):
    make(10)
    make(2, expires_at=NOW + 1, prefix="new")
    assert prune("--batch-size=10", "--max-seconds=1e-9") == "Expired counters deleted: 10\n"


def test_time_that_suffices_is_not_mentioned(clock):
    make(50)
    assert prune("--batch-size=10", "--max-seconds=3600") == "Expired counters deleted: 50\n"


# Real processes -----------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_process_ends_with_0_and_says_the_total():
    make(25, expires_at=1)
    process = start("--batch-size=10", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.communicate(timeout=60) == ("Expired counters deleted: 25\n", "")
    assert process.returncode == 0
    assert Counter.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_process_on_a_terminal_shows_progress():
    make(30, expires_at=1)
    terminal, end = pty.openpty()
    process = start("--batch-size=10", stdout=end)
    os.close(end)
    text = read_all(terminal)
    os.close(terminal)
    assert process.wait(60) == 0
    assert [line.strip() for line in text.split("\r") if line.strip()] == [
        "10 of 30 deleted",
        "20 of 30 deleted",
        "30 of 30 deleted",
        "Expired counters deleted: 30",
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_process_that_gets_a_signal_leaves_whole_batches_done(number, code):
    make(9_000, expires_at=1)
    terminal, end = pty.openpty()
    # Nobody reads on: the terminal is full long before the last batch, and the process stands still.
    process = start("--batch-size=3", stdout=end, stderr=subprocess.PIPE, preexec_fn=hear_interrupts)
    os.close(end)
    assert os.read(terminal, 2).startswith(b"\r")
    process.send_signal(number)
    text = read_all(terminal)
    _, error = process.communicate(timeout=60)
    os.close(terminal)
    deleted = 9_000 - Counter.objects.count()
    assert process.returncode == code
    assert 0 < deleted < 9_000
    assert deleted % 3 == 0
    assert error == (
        f"CommandError: {number.name}: ended after {deleted:,} expired counters; the rest can wait.\n"
    )
    assert "Traceback" not in text


@pytest.mark.django_db(transaction=True)
def test_two_processes_at_once_share_the_work():
    make(500)
    make(2, expires_at=NOW + 1, prefix="new")
    said = in_processes(2, 1, "tests.management.test_prune_ratelimits:prune_in_a_process", frozen_at=NOON)
    assert sum(int(text.split()[-1]) for text in said) == 500
    assert Counter.objects.count() == 2
