"""Scripts of DataTrove as recipes: constants, defaults that differ, and what is not mapped."""

from __future__ import annotations

from typing import Any

import pytest

from curate.lab.migrate.datatrove import HANDLERS, ORDERS, POLICY_PHRASES, RULES
from curate.lab.migrate.operators import FILTERS, NEIGHBOURS
from tests.curate.lab.migrate.conftest import Migrate

OFF = {name: value for each in (FILTERS | NEIGHBOURS).values() for name, value in each.items()}
HEAD = "from datatrove.pipeline.filters import *\n"


def settings(migrated: Migrate, block: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings of the only step of a block."""
    (step,) = migrated(HEAD + block).steps
    return step.step, {setting.name: setting.plain for setting in step.settings}


@pytest.mark.parametrize(
    ("block", "step", "some"),
    [
        ("Trafilatura(favour_precision=False)", "extract", {"favor": "balanced"}),
        (
            "GopherQualityFilter(20, max_symbol_word_ratio=None, min_stop_words=0)",
            "gopher_quality",
            {
                "min_words": 20,
                "max_words": 100_000,
                "max_symbol_ratio": OFF["max_symbol_ratio"],
                "min_stop_words": 0,
            },
        ),
        (
            "GopherRepetitionFilter(dup_line_frac=0, top_n_grams=((2, 0.1),))",
            "gopher_repetition",
            {"max_duplicate_lines": OFF["max_duplicate_lines"], "max_top_n_gram_chars": {2: 0.1}},
        ),
        (
            "C4QualityFilter(min_words_per_line=-1)",
            "c4",
            {
                "min_sentences": 5,
                "policy_phrases": list(POLICY_PHRASES),
                "min_words_per_line": 0,
                "max_page_chars": OFF["max_page_chars"],
            },
        ),
        ("C4QualityFilter(filter_policy=False)", "c4", {"policy_phrases": []}),
        ("C4ParagraphFilter()", "c4_paragraphs", {"min_paragraphs": 3, "min_chars": 200}),
        ("C4BadWordsFilter(keep_fraction=0.25)", "bad_words", {"badwords_fraction": 0.75}),
        (
            "FineWebQualityFilter(None, 0.2, short_line_thr=999)",
            "fineweb_quality",
            {"min_end_marks": 0.2, "max_short_lines": 999, "max_duplicate_chars": 0.01},
        ),
        ("LanguageFilter('de', 0.8)", "language", {"keep": ["de"], "threshold": 0.8}),
        (
            "URLFilter(3, extra_domains=['a.example'], use_integrated_lists=False)",
            "url_filter",
            {"max_soft_words": 3, "exclude": ["a.example"]},
        ),
        ("PIIFormatter(remove_ips=False)", "pii", {"emails": True, "ips": False}),
        ("FTFYFormatter(normalization='NFC')", "normalize", {"form": "nfc", "quotes": False}),
        (
            "MinhashDedupSignature('sigs', MinhashConfig(num_buckets=9, hashes_per_bucket=13))",
            "dedup_minhash",
            {"bands": 9, "rows": 13, "ngram": 5, "normalize": "datatrove"},
        ),
        (
            "SentenceDedupSignature('sigs', config=SentDedupConfig(n_sentences=2))",
            "dedup_passages",
            {"unit": "sentences", "span": 2, "min_words": 50, "min_sentences": 3},
        ),
        (
            "ExactDedupSignature('sigs', ExactDedupConfig(content_getter=lambda d: d.text))",
            "dedup_exact",
            {"key": "text", "survivor": "first", "normalize": False},
        ),
        (
            "SingleBloomFilter('out', BloomFilterConfig(m_bytes=9, duplicate_threshold=0.7))",
            "dedup_bloom",
            {"mode": "document", "ngram": 13, "threshold": 0.7},
        ),
        (
            "DocumentTokenizer('out', 'gpt2', max_tokens_per_file=1000)",
            "shards",
            {"tokenizer": "gpt2", "shard_tokens": 1000, "shuffle": 0},
        ),
        (
            "LambdaFilter(lambda d: len(d.text) > 9)",
            "document_length",
            {"unit": "chars", "min": 10},
        ),
        ("LambdaFilter(lambda d: len(d.text) < 9)", "document_length", {"unit": "chars", "max": 8}),
        (
            "LambdaFilter(lambda doc: 100 < len(doc.text) <= 200)",
            "document_length",
            {"min": 101, "max": 200},
        ),
        (
            "LambdaFilter(lambda d: len(d.text) > 9 and 99 >= len(d.text) and len(d.text) > 20)",
            "document_length",
            {"min": 21, "max": 99},
        ),
        (
            "GopherQualityFilter(stop_words=['der', 'die'])",
            "gopher_quality",
            {"stop_words": ["der", "die"], "min_stop_words": 2},
        ),
        ("C4BadWordsFilter(0.25, True, 1, 'de')", "bad_words", {"badwords_lang": "de"}),
    ],
)
def test_a_block_becomes_a_step_with_its_constants(
    migrated: Migrate, block: str, step: str, some: dict[str, Any]
) -> None:
    name, values = settings(migrated, block)
    assert name == step
    assert {**values, **some} == values


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("LambdaFilter(lambda d: 'x' in d.text)", "for the step `python`"),
        ("LambdaFilter(lambda d: len(d.text) > 9 or len(d.id) > 9)", "for the step `python`"),
        ("LambdaFilter(lambda d: len(d.text) != 9)", "for the step `python`"),
        ("RegexFilter('x')", "for the step `python`"),
        ("UnigramLogProbFilter()", "`perplexity`"),
        ("NGramsDecontFilter('index')", "`decontaminate`"),
        ("GopherRepetitionFilter(dup_n_grams=((11, 0.1),))", "n-grams of 5 to 10 words"),
        ("SentenceDedupSignature('o', config=SentDedupConfig(split_sentences=False))", "lines"),
        ("GopherQualityFilter(min_doc_words=-5)", "give 0 or more"),
        ("MinhashDedupFilter('remove_ids')", "later stage of MinhashDedupSignature"),
        ("[C4QualityFilter(), MyFilter()]", "no block of this name"),
    ],
)
def test_what_is_not_mapped_is_counted_and_explained(
    migrated: Migrate, block: str, says: str
) -> None:
    done = migrated(HEAD + block)
    (remark,) = [remark for remark in done.remarks if remark.unmapped]
    assert says in str(remark)
    assert done.total == done.mapped + 1


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("MinhashDedupSignature('o', config=own)", "arguments `config` are not constant"),
        ("C4QualityFilter(None, True, True, 4)", "no setting for argument 4"),
        ("URLFilter(extra_domains=['a', x])", "extra_domains is not constant"),
        ("GopherQualityFilter(min_doc_words=args.n)", "set gopher_quality.min_words"),
        ("GopherQualityFilter(**more)", "arguments `**` are not constant"),
        ("GopherQualityFilter(language=Languages.german)", "that language"),
        ("LanguageFilter(['en', 'de'], 0.3)", "must have the highest score"),
        ("LanguageFilter(backend='glotlid', languages=['deu_Latn'])", "language.model"),
        ("URLFilter(soft_banned_words=['a'])", "url_filter.soft_words"),
        ("MinhashDedupSignature('o')", "the longest document of a cluster"),
        ("C4QualityFilter(remove_citations=False)", "no setting for remove_citations"),
        ("DocumentTokenizer('out', 'gpt2', save_index=False)", "no setting for save_index"),
        ("DocumentTokenizer('out', name())", "is not constant: set shards.tokenizer"),
        ("SamplerFilter(rate=some())", "rate is not constant: set read.share"),
        ("SamplerFilter(0.1)", "read.share draws the same share"),
        ("UrlDedupSignature('o', 2, UrlDedupConfig(url_normalizer=f))", "C4's normal form"),
    ],
)
def test_what_differs_is_explained(migrated: Migrate, block: str, says: str) -> None:
    done = migrated(HEAD + block)
    assert says in " ".join(map(str, done.remarks))
    assert done.mapped == done.total == 1


@pytest.mark.parametrize("value", ["'x'", "[1, 'a']", "{'a': 1}", "f(x)", "-1e400", "None", "g"])
@pytest.mark.parametrize("name", sorted({*RULES, *ORDERS, *HANDLERS}))
def test_any_value_becomes_a_recipe_or_a_remark(migrated: Migrate, name: str, value: str) -> None:
    parameters = {*(RULES[name].keys() if name in RULES else ()), *ORDERS.get(name, ())}
    keywords = ", ".join(f"{each}={value}" for each in sorted(parameters))
    done = migrated(f"{HEAD}{name}({keywords})\n{name}({value}, {value})\n")
    assert done.total == (0 if name.endswith("Reader") else 2)


def test_stages_of_a_dedup_are_one_step_and_readers_and_writers_are_none(
    migrated: Migrate,
) -> None:
    script = """
from datatrove.executor import LocalPipelineExecutor
DATA = "hf://datasets/me/pages"
config = MinhashConfig(n_grams=4)
reader = JsonlReader(DATA, glob_pattern="*.jsonl", text_key="content", limit=10)
LocalPipelineExecutor(pipeline=[reader, MinhashDedupSignature(output_folder="a", config=config)])
LocalPipelineExecutor(pipeline=[MinhashDedupBuckets("a", "b", config=config)])
LocalPipelineExecutor(pipeline=[MinhashDedupCluster("b", "c", config=config)])
LocalPipelineExecutor(pipeline=[reader, TokensCounter(), MinhashDedupFilter("c"), JsonlWriter("d")])
"""
    done = migrated(script)
    assert (done.mapped, done.total) == (1, 1)
    assert done.input and done.input.value == "hf://datasets/me/pages/*.jsonl"
    assert {each.name: each.plain for each in done.read} == {
        "columns": {"text": "content"},
        "limit": 10,
    }
    (ngram,) = [each for each in done.steps[0].settings if each.name == "ngram"]
    assert (ngram.value, ngram.origin) == (4, "line 4: MinhashDedupSignature.n_grams")


def test_every_value_of_the_recipe_names_its_origin(migrated: Migrate) -> None:
    recipe = migrated(HEAD + "\nGopherQualityFilter(min_doc_words=9)\n").recipe("mine")
    lines = [line for line in recipe.splitlines() if line.startswith("      ")]
    assert len(lines) == 11 and all("# " in line for line in lines)
    assert "min_words: 9" in recipe and "# line 3: GopherQualityFilter.min_doc_words" in recipe
    assert "# GopherQualityFilter.max_doc_words: default of DataTrove 0.10" in recipe


def test_a_value_that_the_script_computes_is_no_default_in_the_comment(migrated: Migrate) -> None:
    recipe = migrated(HEAD + "GopherQualityFilter(min_doc_words=args.n)").recipe("mine")
    assert "# line 2: GopherQualityFilter.min_doc_words: set by the script; here the" in recipe
