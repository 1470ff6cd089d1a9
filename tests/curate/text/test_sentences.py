"""The sentence counter, line by line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.text.sentences import count_sentences, sentences_of_words
from curate.text.tables import segment
from tests.callable_kernels import callable_kernel
from tests.curate.filters.reference_c4 import sentences

TOKENS = (
    "a The I. J. Mr. mr. (Mr. e.g. U.S. etc. word Word. end! why? end.) end.” end.’ end.» "
    "end.\" 'Word ... wait... 3.5 3. -. .) ” 。 文。 文。文 だ！か？ 「だ。」か だ！？」 है। آ؟ "
    'é. É. éa. St. (the "the "The ( " .'
).split()


def count(line: str) -> int:
    data = np.frombuffer(bytearray(line.encode()), np.uint8)
    return callable_kernel(count_sentences)(data, 0, len(data))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", 0),
        ("   ", 0),
        ("word", 1),
        ("One. Two. Three.", 3),
        ("One. two. three.", 1),
        ("Really? yes! no", 3),
        ("Mr. Smith met Dr. Jones. They spoke.", 2),
        ("See e.g. Smith. It is in the U.S. Army.", 2),
        ("J. R. R. Tolkien wrote it.", 1),
        ("So did I. Then we left.", 2),
        ("He left (at last.) She stayed.", 2),
        ("“Stop.” He did.", 2),
        ('She said "Go." He went.', 2),
        ("Wait... What?", 1),
        ("It cost 3.5. That was much.", 2),
        ("It ended here. (The rest is lost.)", 2),
        ("これは文です。もう一つ。まだ", 3),
        ("真的吗？是的！", 2),
        ("「真的吗？！」他说。「是的。」", 3),
        ("वह आया। वह गया॥ फिर", 3),
        ("သူလာသည်။သူသွားသည်။", 2),
        ("هل جاء؟ نعم", 2),
        ("No space.Here", 1),
    ],
)
def test_sentence_counts_agree_with_counts_by_hand(line, expected):
    assert count(line) == sentences(line) == expected


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
def test_kernel_counts_as_the_plain_version(line):
    assert count(line) == sentences(line)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="aA.!?\"'()’”»。é \t\xa0I", max_size=30))
def test_kernel_counts_as_the_plain_version_on_odd_marks(line):
    assert count(line) == sentences(line)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
def test_words_of_the_table_give_the_same_count(line):
    data = np.frombuffer(bytearray(line.encode()), np.uint8)
    words = segment(data, np.array([0, len(data)])).words
    counted = callable_kernel(sentences_of_words)(
        data, words.start, words.end, words.chars, 0, len(words.start)
    )
    assert counted == count(line)
