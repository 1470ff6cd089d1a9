"""How tokenizers cut numbers and indentation, against `tokenizers`."""

from __future__ import annotations

from collections import Counter

import pytest
from tokenizers import Tokenizer

from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.judge.tally import DEPTHS, DIGITS, NumberCut, grouping, indentation, number_cuts
from tokenize_kit.learn.training import train_tokenizer

TEXTS = [f"is {k * 7919}\n  if x:\n    {k}\n\treturn {k}\n" for k in range(300)]


@pytest.fixture(scope="module", params=["single", "triples-right", "free"])
def trained(request, tmp_path_factory):
    """(digits, tokenizer's folder) by the rule for digits."""
    folder = tmp_path_factory.mktemp("numbers")
    train_tokenizer(TEXTS, folder, vocab=420, digits=request.param)
    return request.param, folder


def test_numbers_are_cut_as_the_library_cuts_them(trained):
    digits, folder = trained
    rows = number_cuts(open_candidate(folder))
    assert [row.digits for row in rows] == list(range(1, DIGITS + 1))
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ways = Counter()
    for number in range(10, 100):
        spans = library.encode(f"is {number}\n").offsets
        ways[tuple(z - a for a, z in spans if a in (3, 4) and z <= 5)] += 1
    tokens = sum(len(way) * n for way, n in ways.items()) / 90
    assert rows[1].tokens == pytest.approx(tokens)
    assert rows[1].alike == max(ways.values()) / 90
    assert (grouping(rows) == "single") == (digits == "single")


@pytest.mark.parametrize(
    ("ways", "rule"),
    [
        pytest.param([[1], [1, 1], [1, 1, 1]], "single", id="single"),
        pytest.param([[1], [2], [3], [1, 3], [2, 3], [3, 3], [1, 3, 3]], "right", id="right"),
        pytest.param([[1], [2], [3], [3, 1], [3, 2], [3, 3], [3, 3, 1]], "left", id="left"),
        pytest.param([[1], [2], [3], [4]], "whole", id="whole"),
        pytest.param([[1], [2], [3], [2, 2], [2, 3]], "uneven", id="uneven"),
    ],
)
def test_groups_are_counted_from_a_side(ways, rule):
    assert grouping([NumberCut(0, 0.0, 1.0, way) for way in ways]) == rule
    assert grouping([NumberCut(0, 0.0, 0.9, way) for way in ways]) == "uneven"


def test_indentation_is_what_it_adds_to_a_line(trained):
    _, folder = trained
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain = len(library.encode("if x:\nreturn x\n").ids)
    rows = indentation(open_candidate(folder))
    assert [row["depth"] for row in rows] == list(DEPTHS)
    for row in rows:
        indented = "if x:\n" + "    " * row["depth"] + "return x\n"
        assert row["4 spaces"] == len(library.encode(indented).ids) - plain
