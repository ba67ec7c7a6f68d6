import fcntl
import gzip
import io
import os
import pty
import struct
import subprocess
import sys
import termios
import tracemalloc
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from matplotlib import image
from model_bakery import baker

from ratelimit_app import algorithms
from ratelimit_app.models import Counter, Limit
from ratelimit_app.simulation import scenarios

ROOT = Path(__file__).parent.parent.parent
BAD = "no line at all"
BOUNDARY = """\
algorithm       came  passed  refused  most in 2 s  most in 60 s  in a window  per minute
fixed_window     120     120        0          120           120           60       3,600
sliding_log      120      60       60           60            60           60       1,800
sliding_window   120      60       60           60            60           60       1,800
token_bucket     120      61       59           61            61           60       1,830
"""
SHOWN = [f"--algorithm={line.split()[0]}" for line in BOUNDARY.splitlines()[1:]]


def line(second=0, address="192.0.2.1", user="-", request="GET /a HTTP/1.1"):
    date = f"01/Jun/2026:{12 + second // 3600}:{second // 60 % 60:02}:{second % 60:02} +0000"
    return f'{address} - {user} [{date}] "{request}" 200 5'


def simulate(*args, **options):
    """Run the command; return what it wrote to standard output and to standard error."""
    out, err = io.StringIO(), io.StringIO()
    call_command("simulate_ratelimits", *map(str, args), stdout=out, stderr=err, no_color=True, **options)
    return out.getvalue(), err.getvalue()


def table(*args):
    """Run the command; return the rows of its first table, by their first cells."""
    out, _ = simulate(*args, "-v0", "--top=0")
    rows = [text.replace(",", "").split() for text in out.splitlines()]
    return {
        row[0]: dict(zip(["came", "passed", "refused"], map(int, row[1:]), strict=False)) for row in rows[1:]
    }


@pytest.fixture
def log(tmp_path):
    def write(*lines, name="access.log"):
        path = tmp_path / name
        path.write_text("".join(text + "\n" for text in lines))
        return path

    return write


# Scenarios ----------------------------------------------------------------------------------------


def test_boundary_prints_the_published_figures():
    out, err = simulate("boundary", *SHOWN)
    assert out == "60 calls in the second before a window's edge, 60 in the one after:\n" + BOUNDARY
    assert err == ""


def test_verbosity_0_prints_the_table_only():
    assert simulate("boundary", "-v0", *SHOWN) == (BOUNDARY, "")


def test_every_algorithm_is_tried_where_none_is_chosen():
    assert list(table("boundary")) == [name for name in algorithms.names() if not algorithms.holds(name)]


def test_algorithms_rate_and_burst_may_be_chosen():
    args = ("--rate=100/min", "--algorithm=token_bucket", "--algorithm=fixed_window", "--burst=20")
    out, _ = simulate("boundary", *args, "-v0")
    assert [row.split("  ")[0] for row in out.splitlines()[1:]] == ["token_bucket, burst 20", "fixed_window"]


def test_every_scenario_is_offered(capsys):
    with pytest.raises(SystemExit):
        call_command("simulate_ratelimits", "--help")
    assert ", ".join(scenarios.names()) in " ".join(capsys.readouterr().out.split())


@pytest.mark.django_db
def test_limit_of_the_project_may_be_tried():
    baker.make(Limit, name="mine", rate="5/min", algorithm="sliding_log", mode="shadow")
    out, _ = simulate("boundary", "--limit=mine", "-v0")
    assert out.splitlines()[1].split() == ["sliding_log", "10", "5", "5", "5", "5", "5", "150"]
    assert Counter.objects.count() == 0


def test_multiple_of_a_rate_that_is_too_much_is_an_error():
    with pytest.raises(CommandError, match="--rate: too much for fairness"):
        simulate("fairness", "--rate=1000000000/min", "--algorithm=sliding_log")


# Logs ---------------------------------------------------------------------------------------------


def test_log_is_told_by_algorithm_and_by_key(log):
    path = log(*[line()] * 5, line(1, "192.0.2.2"), *[line(2, "192.0.2.3")] * 4)
    out, err = simulate(path, "--rate=2/min", "--algorithm=fixed_window", "--top=1")
    assert out == (
        f"2/min by ip, 10 lines of {path}:\n"
        "algorithm     came  passed  refused  most in 2 s  most in 60 s  in a window\n"
        "fixed_window    10       5        5            3             5            5\n"
        "\n"
        "Refused most:\n"
        "key           fixed_window\n"
        "ip:192.0.2.1             3\n"
    )
    assert err == ""


@pytest.mark.parametrize(("by", "passed"), [("ip", 4), ("user", 6), ("path", 2), ("global", 2)])
def test_log_is_counted_by_what_is_asked_for(log, by, passed):
    path = log(*[line()] * 3, *[line(user="jane")] * 3, *[line(address="192.0.2.2")] * 3)
    assert table(path, "--rate=2/min", f"--by={by}")["sliding_log"]["passed"] == passed


@pytest.mark.django_db
def test_limit_of_the_project_takes_its_own_lines_by_its_own_key_and_cost(log):
    baker.make(Limit, name="mine", rate="6/min", path="^/a", methods="GET", key="global", cost=2)
    path = log(*[line()] * 3, *[line(address="192.0.2.2")] * 3, *[line(request="POST /a HTTP/1.1")] * 3)
    assert table(path, "--limit=mine") == {"fixed_window": {"came": 6, "passed": 3, "refused": 3}}
    assert table(path, "--limit=mine", "--by=ip")["fixed_window"]["passed"] == 6


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["header:X-Api-Key", "project.keys.client_id"])
def test_limit_whose_key_a_log_does_not_tell_is_counted_by_ip_and_says_so(log, key):
    baker.make(Limit, name="mine", rate="2/min", key=key)
    path = log(*[line()] * 3)
    out, err = simulate(path, "--limit=mine")
    assert "mine by ip, 3 lines" in out
    assert err == "--limit: a log does not tell the key of 'mine': counted by ip, or as --by says\n"
    assert simulate(path, "--limit=mine", "--by=user")[1] == ""
    assert simulate(path, "--limit=mine", "-v0")[1] == ""


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["ip", "user", "user_or_ip", "global"])
def test_limit_whose_key_a_log_tells_is_counted_by_it_without_a_word(log, key):
    baker.make(Limit, name="mine", rate="2/min", key=key)
    assert simulate(log(line()), "--limit=mine")[1] == ""


def test_bad_lines_are_counted_reported_and_skipped(log):
    path = log(line(), BAD, line(), "")
    out, err = simulate(path, "--rate=2/min")
    assert "2 lines of" in out
    assert err == f"Bad lines, skipped: 2; the first is line 2: '{BAD}'\n"
    assert simulate(path, "--rate=2/min", "-v0")[1] == ""


def test_lines_far_out_of_order_are_reported(log, monkeypatch):
    monkeypatch.setattr("ratelimit_app.simulation.access_log._HELD", 1)
    path = log(line(60), line(70), line(0))
    assert simulate(path, "--rate=2/min")[1] == "Lines too far out of order, counted late: 1\n"


@pytest.mark.parametrize("lines", [[], [BAD, "another"]], ids=["empty", "bad"])
def test_log_of_no_good_line_is_an_error(log, lines):
    with pytest.raises(CommandError, match=f"INPUT: of {len(lines)} lines of .*, none is in the common or"):
        simulate(log(*lines), "--rate=2/min")


def test_gzip_is_read_whatever_its_name(tmp_path):
    (tmp_path / "log").write_bytes(gzip.compress((line() + "\n").encode() * 3))
    assert table(tmp_path / "log", "--rate=2/min")["token_bucket"]["passed"] == 2


def test_gzip_that_is_cut_off_is_an_error(tmp_path):
    (tmp_path / "log").write_bytes(gzip.compress((line() + "\n").encode() * 1_000)[:-20])
    with pytest.raises(CommandError, match=r"INPUT: .* cannot be read to its end"):
        simulate(tmp_path / "log", "--rate=2/min")


def test_standard_input_is_a_dash(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((line() + "\n").encode() * 3)))
    assert table("-", "--rate=2/min")["sliding_window"]["passed"] == 2


def test_interrupt_says_so_and_how_it_ended(log, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("ratelimit_app.management.commands.simulate_ratelimits.replay", interrupted)
    with pytest.raises(CommandError, match="Interrupted") as caught:
        simulate(log(line()), "--rate=2/min")
    assert caught.value.returncode == 130


def test_memory_does_not_grow_with_the_log(log, monkeypatch):
    monkeypatch.setattr("ratelimit_app.simulation.access_log._HELD", 100)

    def peak_of(lines):
        path = log(*(line(number // 20, f"192.0.2.{number % 9}") for number in range(lines)))
        tracemalloc.reset_peak()
        simulate(path, "--rate=60/min", "--algorithm=sliding_log")
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        short, long = peak_of(3_000), peak_of(23_000)
    finally:
        tracemalloc.stop()
    # A list of 20,000 more arrivals takes five times that.
    assert long - short < 300_000


# What it is given ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["boundry"], r"INPUT: there is no file 'boundry', nor such a scenario \(have: boundary, "),
        (["nosuch", "--rate=2/min"], "INPUT: there is no file 'nosuch', nor such"),
        (["/", "--rate=2/min"], "INPUT: / is a directory"),
        (["/"], "INPUT: / is a directory"),
        ([f"{__file__}/x.log"], "INPUT: .*x.log cannot be read: .*Not a directory"),
        ([__file__], "--rate or --limit: a log needs one"),
        (["-"], "--rate or --limit: a log needs one"),
        (["boundary", "--rate=2/fortnight"], "--rate: unknown unit 'fortnight'"),
        (["boundary", "--rate=2/month", "--algorithm=sliding_log"], "--rate: a sliding log has one length"),
        (["fairness", "--rate=1/36525 days", "--algorithm=token_bucket"], "--rate: a bucket of 1 takes more"),
        (["boundary", "--algorithm=nosuch"], "--algorithm: invalid choice: 'nosuch'"),
        (["boundary", "--burst=0"], "--burst: a whole number from 1 to .*, got 0"),
        (["boundary", "--burst=9", "--algorithm=fixed_window"], "--burst: fixed_window has none"),
        (["boundary", "--by=ip"], "--by: only for a log, boundary is a scenario"),
        (["x.log", "--by=cookie"], "--by: invalid choice: 'cookie'"),
        (["x.log", "--rate=2/min", "--top=-1"], "--top: a number of keys from 0, got -1"),
        (["boundary", "--limit=login", "--rate=2/min"], "--rate: not beside --limit"),
        (["boundary", "--limit=login", "--algorithm=sliding_log"], "--algorithm: not beside --limit"),
        (["boundary", "--limit=login", "--burst=5"], "--burst: not beside --limit"),
        (["boundary", "--limit=nosuch"], r"--limit: 'nosuch' is unknown \(have: api, .*work\)"),
        (["boundary", "--plot=a.nosuch"], r"--plot: unknown format of a.nosuch \(have: .*png.*svg"),
        (["boundary", "--plot=a"], "--plot: unknown format of a "),
        (["boundary", "--plot=/nosuch/a.png"], "--plot: there is no directory /nosuch"),
    ],
)
@pytest.mark.django_db
def test_argument_that_cannot_be_used_is_an_error(args, message):
    with pytest.raises(CommandError, match=message):
        simulate(*args)


@pytest.mark.django_db
def test_limit_that_is_off_is_an_error():
    baker.make(Limit, name="mine", rate="5/min", mode="off")
    with pytest.raises(CommandError, match="--limit: 'mine' is off"):
        simulate("boundary", "--limit=mine")


# What is drawn and shown --------------------------------------------------------------------------


def test_plot_is_drawn(tmp_path):
    simulate("boundary", *SHOWN, f"--plot={tmp_path / 'a.png'}")
    assert image.imread(tmp_path / "a.png").shape == (1000, 800, 4)


def run(*args, without=(), **options):
    """Run the command in a process of its own, on a machine that lacks some packages."""
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({list(without)!r}))
runpy.run_path("manage.py", run_name="__main__")
"""
    command = [sys.executable, "-c", code, "simulate_ratelimits", *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, text=True, **options)


@pytest.mark.parametrize("lines", [0, 1])
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_reader_who_has_had_enough_ends_it_quietly(tmp_path, lines, unbuffered):
    plot, env = tmp_path / "a.png", {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with run("boundary", f"--plot={plot}", env=env, **pipes) as process:
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert plot.stat().st_size


def test_plot_without_matplotlib_says_what_to_install():
    process = run("boundary", "--plot=a.png", without=["matplotlib"], stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=60)
    assert err == "CommandError: --plot: needs matplotlib (pip install 'ratelimit-app[simulate]')\n"
    assert process.returncode == 1


def on_a_terminal(*args, without=()):
    """Run the command with standard error on a terminal; return what that shows."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = run(*args, without=without, stdout=subprocess.PIPE, stderr=end)
    os.close(end)
    out, _ = process.communicate(timeout=60)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # on Linux, the end of a terminal is an error
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    assert process.returncode == 0
    assert "sliding_log" in out
    return shown.decode()


def test_terminal_sees_a_bar_while_a_log_is_read(log):
    path = log(*[line()] * 3_000)
    assert "0%" in on_a_terminal(path, "--rate=2/min")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("verbosity", "shown"), [(1, True), (0, False)])
def test_terminal_sees_a_bar_while_fairness_is_tried(monkeypatch, verbosity, shown):
    monkeypatch.setattr("ratelimit_app.simulation.scenarios.fairness._HIS_CALLS", 80)
    monkeypatch.setattr("ratelimit_app.simulation.scenarios.fairness._CALLS_OF_OTHERS", 20)
    monkeypatch.setattr(sys, "stderr", Terminal())
    simulate("fairness", "--algorithm=fixed_window", verbosity=verbosity)
    assert ("0.00/400 [00:00<?, ? decisions/s]" in sys.stderr.getvalue()) == shown


@pytest.mark.parametrize(("args", "without"), [(["-v0"], []), ([], ["tqdm"])], ids=["quiet", "without tqdm"])
def test_terminal_sees_no_bar_if_it_is_not_wanted_or_cannot_be(log, args, without):
    path = log(*[line()] * 3_000)
    assert on_a_terminal(path, "--rate=2/min", *args, without=without) == ""


def test_bar_is_not_shown_in_a_file(log):
    process = run(log(*[line()] * 3_000), "--rate=2/min", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("2/min by ip, 3,000 lines of")


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("0/s", "--rate: a whole number from 1"),
        ("1/0s", "--rate: from 0.000001"),
        ("999999999999999/s", "--rate: too much for boundary"),
    ],
)
def test_rate_that_cannot_be_tried_is_an_error_of_the_option(rate, message):
    with pytest.raises(CommandError, match=message):
        simulate("boundary", "--rate", rate)


@pytest.mark.parametrize("name", ["directory.png", "n" * 300 + ".png"])
def test_plot_that_cannot_be_written_is_told_before_the_run(tmp_path, name):
    (tmp_path / "directory.png").mkdir()
    with pytest.raises(CommandError, match=r"--plot: .* cannot be written"):
        simulate("boundary", "--plot", str(tmp_path / name))
