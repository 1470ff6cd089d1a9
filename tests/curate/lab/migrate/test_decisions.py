"""Migrated steps decide as the other tool's rule does, by counting in the texts by hand.
benchmarks/migrate_decisions.py compares with DataTrove itself."""

from __future__ import annotations

import pytest

from curate.documents.documents import documents
from curate.lab.migrate.migration import Migration
from curate.steps.contracts import Step
from curate.steps.recipe import make_step
from tests.curate.lab.migrate.conftest import Migrate

OFF = "min_avg_word_length=None, max_avg_word_length=0, max_non_alpha_words_ratio=None"
DCLM = "- source: cc\n  steps:\n"


def kept(done: Migration, *texts: str) -> list[bool]:
    """True for each text that no step of the migration drops."""
    docs = documents({"text": texts})
    for mapped in done.steps:
        step = make_step(mapped.step, {each.name: each.plain for each in mapped.settings})
        assert isinstance(step, Step)
        docs = step.apply(docs.within(mapped.step))
    return [not bool(marked) for marked in docs.marked()]


@pytest.mark.parametrize(
    ("block", "keeps", "drops"),
    [
        (f"GopherQualityFilter(3, min_stop_words=1, {OFF})", "the cat sat", "the cat"),
        (f"GopherQualityFilter(0, min_stop_words=1, {OFF})", "cats of mine", "a cat sat"),
        (
            f"GopherQualityFilter(0, None, max_symbol_word_ratio=0.5, min_stop_words=0, {OFF})",
            "# a",
            "##",
        ),
        ("GopherRepetitionFilter(0.5, top_n_grams=(), dup_n_grams=())", "a\nb\nc", "a\n" * 20),
        ("C4QualityFilter(min_num_sentences=2)", "One two three. Four five six.", "One two three."),
        ("C4QualityFilter(min_num_sentences=1)", "One two three.", "One two three\nFour five."),
        (
            "FineWebQualityFilter(short_line_thr=0.5, short_line_length=5, new_line_ratio=9)",
            "Short\nA long line.",
            "Hi.\nYo.\nA long line.",
        ),
        ("LambdaFilter(lambda doc: len(doc.text) >= 4)", "four", "two"),
    ],
)
def test_a_block_of_datatrove_keeps_and_drops(
    migrated: Migrate, block: str, keeps: str, drops: str
) -> None:
    done = migrated(f"from datatrove.pipeline.filters import *\n{block}\n")
    assert kept(done, keeps, drops) == [True, False]


@pytest.mark.parametrize(
    ("function", "keeps", "drops"),
    [
        ("stop_word_filter", "the cat of the house", "the cat"),
        ("bullet_count_filter\n      max_bullet_start_ratio: 0.5", "- a\nb", "- a\n* b\nc"),
        ("word_length_filter\n      min_length: 2", "ab cd", "a b cd"),
        ("page_length_filter\n      length_type: char\n      max_length: 3", "abc", "abcd"),
        ("alphabetic_word_ratio_filter\n      max_ratio: 0.5", "a 1", "a 1 2"),
    ],
)
def test_a_function_of_dclm_keeps_and_drops(
    migrated: Migrate, function: str, keeps: str, drops: str
) -> None:
    done = migrated(f"{DCLM}    - func: {function}\n", "dclm.yaml")
    assert kept(done, keeps, drops) == [True, False]
