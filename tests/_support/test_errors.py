"""Errors quote texts and values of others on one line, in short, within one sentence."""

import numpy as np

from scasml._support.errors import brief, first_line, listing


def test_first_line():
    assert first_line(ValueError("It broke. Call the vendor.\nTraceback")) == "ValueError: It broke"
    assert (
        first_line(ValueError("no e.g. here, and f(x) = 1.5"))
        == "ValueError: no e.g. here, and f(x) = 1.5"
    )
    assert first_line(ValueError()) == "ValueError"
    assert first_line(ValueError("\n\n lines ")) == "ValueError: lines"
    assert len(first_line(ValueError("word " * 100))) < 200


def test_brief():
    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError

    assert brief("a") == "'a'"
    assert brief(0.1) == "0.1"
    assert brief(np.zeros((50, 50))).startswith("array([[0., 0.")
    assert len(brief(np.zeros((50, 50)))) <= 60
    assert "\n" not in brief(np.eye(2))
    assert brief(Unprintable()) == "an object of type Unprintable"
    assert brief(10**5000) == "an object of type int"


def test_listing():
    assert listing([3]) == "3"
    assert listing([0, 4, 7, 9, 12]) == "0, 4, 7, 9, 12"
    assert listing(range(17)) == "0, 1, 2, 3, 4 and 12 more"
