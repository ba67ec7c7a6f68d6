"""What SECURITY.md claims is tested: the tests that it names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "SECURITY.md").read_text()
TESTS = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) == len(set(named)) > 20
    assert [name for name in named if f"def {name}(" not in TESTS] == []


def test_every_line_of_what_is_stopped_names_a_test():
    lines = [
        line for line in PAGE.partition("## What is not stopped")[0].splitlines() if line.startswith("|")
    ][2:]
    assert [line for line in lines if "`test_" not in line] == []
