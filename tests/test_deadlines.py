import multiprocessing
import socket
import threading
import time

import pytest

from ratelimit_app import clock, deadlines
from ratelimit_app.deadlines import Deadline, cut, within
from tests.races import in_threads


def read_for_ever(seconds):
    """Read from a server that never answers, and return what came, and whether the deadline was over."""
    here, there = socket.socketpair()
    with here, there, Deadline(clock.monotonic() + seconds, lambda: cut(here.fileno())) as deadline:
        return here.recv(1), deadline.is_over


def test_wait_for_an_answer_ends_at_its_deadline():
    assert read_for_ever(0.05) == (b"", True)


def test_later_deadline_does_not_delay_a_sooner_one():
    ended = []
    with Deadline(clock.monotonic() + 60, lambda: ended.append("later")):
        assert read_for_ever(0.05) == (b"", True)
    assert not ended


def test_deadlines_of_many_threads_end_each_its_own_wait():
    assert in_threads(8, lambda index: read_for_ever(0.05 + index / 100)) == [(b"", True)] * 8


def test_block_that_has_ended_is_never_cut():
    here, there = socket.socketpair()
    with here, there:
        with Deadline(clock.monotonic() + 0.05, lambda: cut(here.fileno())) as deadline:
            pass
        assert read_for_ever(0.1) == (b"", True)  # the watch has looked since
        there.send(b"x")
        assert (here.recv(1), deadline.is_over) == (b"x", False)


def test_cut_that_fails_ends_no_watch():
    closed = socket.socket()
    closed.close()
    with Deadline(clock.monotonic(), lambda: cut(closed.fileno())):
        assert read_for_ever(0.05) == (b"", True)


def _answer(answers):
    answers.put(read_for_ever(0.05))


def test_child_of_a_fork_has_a_watch_of_its_own():
    read_for_ever(0.01)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_answer, args=(answers,))
    child.start()
    child.join(10)
    assert (child.exitcode, answers.get()) == (0, (b"", True))


def test_within_returns_and_raises_what_the_work_does():
    assert within(60, lambda: 5, print) == 5
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0, print)


def test_within_gives_up_and_disposes_of_what_comes_too_late():
    go_on, late = threading.Event(), []
    with pytest.raises(TimeoutError):
        within(0.01, lambda: go_on.wait() and "connection", late.append)
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "ratelimit-connect":
            thread.join(10)
    assert late == ["connection"]


def test_within_raises_nothing_for_work_that_fails_too_late():
    go_on = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.01, lambda: go_on.wait() and 1 // 0, print)
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "ratelimit-connect":
            thread.join(10)


def test_where_no_thread_can_be_had_all_goes_on_without_deadlines(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(deadlines, "_watch", deadlines._Watch())
    with Deadline(clock.monotonic(), pytest.fail) as deadline:
        assert within(0, lambda: 5, print) == 5
    assert not deadline.is_over


def test_watch_sleeps_while_there_is_nothing_to_watch():
    read_for_ever(0.01)
    before = time.process_time()
    assert deadlines._watch._watched == set()
    assert read_for_ever(0.2) == (b"", True)
    assert time.process_time() - before < 0.1
