import contextlib
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratelimit_app.management.stopping import asked_to_stop

SIGNALS = [signal.SIGINT, signal.SIGTERM]
#: A block that tells, as often as it is asked, what it has heard.
TELLING = """
import sys
from ratelimit_app.management.stopping import asked_to_stop
with asked_to_stop() as stop:
    for line in sys.stdin:
        print(repr(stop.by), flush=True)
"""


@pytest.fixture(autouse=True)
def _heard():
    """Undo that whoever runs the tests in the background has made them deaf to SIGINT."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, ended)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def ended(number, frame):
    raise AssertionError("not heard by who should have")


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_is_noted_and_the_block_goes_on(number):
    with asked_to_stop() as stop:
        assert stop.by is None
        signal.raise_signal(number)
        assert stop.by is number


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_do_afterwards_what_they_did_before(number):
    with contextlib.suppress(RuntimeError), asked_to_stop():
        signal.raise_signal(number)
        raise RuntimeError("broken")
    assert [signal.getsignal(each) for each in SIGNALS] == [ended, ended]


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_to_which_the_process_was_made_deaf_is_not_heard(number):
    signal.signal(number, signal.SIG_IGN)
    with asked_to_stop() as stop:
        signal.raise_signal(number)
    assert stop.by is None
    assert signal.getsignal(number) == signal.SIG_IGN


def test_thread_hears_none_and_works_all_the_same():
    def work():
        with asked_to_stop() as stop:
            return stop.by, signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == (None, ended)


@pytest.mark.parametrize("number", SIGNALS)
def test_second_signal_ends_the_process(number):
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def ask():
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    assert ask() == "None"
    process.send_signal(number)
    assert ask() == repr(number)
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == -number
