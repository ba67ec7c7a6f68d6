from ratelimit_app.simulation import report, tallies
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.report import Table
from ratelimit_app.simulation.trials import Tier, Trial, limits_of, replay


def tried(keys, rate="1/min"):
    limits = limits_of(rate, ["fixed_window", "sliding_log"], None)
    trials = [Trial(limit.policy.algorithm, [Tier(limit)]) for limit in limits]
    replay([Arrival(0, key) for key in keys], trials)
    return trials


def test_text_has_words_on_the_left_and_numbers_with_commas_on_the_right():
    table = Table("t", ["name", "n", "word"], [["a", 1_234_567, "x y"], ["longer", 7, ""]])
    assert report.text(table) == "name            n  word\na       1,234,567  x y\nlonger          7"


def test_text_of_no_rows_is_the_headings():
    assert report.text(Table("t", ["a", "b"], [])) == "a  b"


def test_summary_says_what_each_did():
    table = report.summary("t", tried(["a", "a", "b"]))
    assert table.headings[4:6] == ["most in 2 s", "most in 60 s"]
    assert table.rows == [["fixed_window", 3, 2, 1, 2, 2, 2], ["sliding_log", 3, 2, 1, 2, 2, 2]]


def test_refused_keys_are_those_refused_most():
    (table,) = report.refused_keys(tried(["a"] * 3 + ["b"] * 5 + ["c"] * 2 + ["d"]), 2)
    assert table.rows == [["b", 4, 4], ["a", 2, 2]]
    assert table.title == "Refused most"


def test_refused_keys_are_no_table_where_none_was_or_none_is_asked_for():
    assert report.refused_keys(tried(["a"]), 5) == []
    assert report.refused_keys(tried(["a", "a"]), 0) == []


def test_refused_keys_that_a_terminal_would_obey_are_escaped():
    (table,) = report.refused_keys(tried(["花\x1b[2J"] * 2), 5)
    assert table.rows[0][0] == r"'花\x1b[2J'"


def test_refused_keys_say_when_their_counts_are_not_exact(monkeypatch):
    monkeypatch.setattr(tallies, "_MOST_KEYS", 3)
    (table,) = report.refused_keys(tried([key for key in "abcdefgh" for _ in range(2)]), 5)
    assert "too low" in table.title
