"""Counts of trials and defects, read from what pytest prints."""

from research.benchmarks.trust import SUITES, counted
from research.report import ROOT

PRINTED = """
tests/trust/test_x.py::test_rows[a b]:

  - during generate phase (7.96 seconds):
    - 7 passing, 0 failing, and 2 invalid test cases

tests/trust/test_x.py::test_pairs:

  - during reuse phase (0.05 seconds):
    - 1 passing, 0 failing, and 0 invalid test cases
  - during generate phase (0.05 seconds):
    - 4 passing, 1 failing, and 0 invalid test cases

FAILED tests/trust/test_x.py::test_pairs - AssertionError: 3 passed
1 failed, 12 passed, 3 skipped in 12.02s
"""


def test_examples_count_one_by_one_and_other_tests_once():
    # 7 and 6 examples of two tests, and eleven tests without examples.
    assert counted(PRINTED) == (7 + 6 + 11, 1)
    assert all((ROOT / path).is_file() for path in SUITES.values())
