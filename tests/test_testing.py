from concurrent.futures import ThreadPoolExecutor

import pytest

from ratelimit_app import clock as app_clock
from ratelimit_app.testing import frozen_time


def test_frozen_time_stands_still():
    with frozen_time(1_780_315_200) as clock:
        assert (clock.now, app_clock.now()) == (1_780_315_200.0, 1_780_315_200_000_000)
        assert (clock.now, app_clock.now()) == (1_780_315_200.0, 1_780_315_200_000_000)


@pytest.mark.parametrize(
    ("by", "now"), [(0.5, 100_500_000), (0.000001, 100_000_001), (-40, 60_000_000), (0, 100_000_000)]
)
def test_advance_moves_it_either_way_to_the_microsecond(by, now):
    with frozen_time(100) as clock:
        clock.advance(by)
        assert (app_clock.now(), clock.read(), clock.now) == (now, now, now / 1_000_000)


def test_many_small_steps_do_not_drift():
    with frozen_time(1_780_315_200) as clock:
        for _ in range(1_000):
            clock.advance(0.1)
        assert clock.now == 1_780_315_300.0


def test_frozen_time_holds_in_all_threads():
    with frozen_time(100), ThreadPoolExecutor(1) as pool:
        assert pool.submit(app_clock.now).result() == 100_000_000


def test_frozen_times_nest():
    with frozen_time(100):
        with frozen_time(200):
            assert app_clock.now() == 200_000_000
        assert app_clock.now() == 100_000_000


def test_time_goes_on_after_an_error():
    with pytest.raises(ZeroDivisionError), frozen_time(100):
        raise ZeroDivisionError
    assert app_clock.frozen is None
