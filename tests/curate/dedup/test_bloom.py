"""The Bloom dedup's rules, document by document, against plain Python."""

from __future__ import annotations

import io
import json
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.dedup.bloom.filter import read_header
from curate.dedup.bloom.seen_before import FILTER, DedupBloom
from curate.documents.documents import documents
from tests.curate.dedup import reference_bloom as plain
from tests.curate.dedup.bloom_cases import SURE, line, opened, run_step

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("LLMCURATE_SHARED", ROOT.parent / "shared"))
VERSIONS = SHARED / "corpora/dedup/versions.jsonl.zst"


def stays(step: DedupBloom, texts: list[str]) -> list[str]:
    """The texts that stay."""
    half = len(texts) // 2
    with tempfile.TemporaryDirectory() as folder:
        kept, _, _ = run_step(step, [texts[:half], texts[half:]], Path(folder))
    return [row["text"] for row in kept]


@pytest.fixture(scope="module")
def versions() -> list[str]:
    """500 real documents, versions of the same pages among them."""
    if not VERSIONS.exists():
        pytest.skip("no ../shared/corpora/dedup")
    import zstandard

    with VERSIONS.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        return [json.loads(text)["text"] for _, text in zip(range(500), lines, strict=False)]


def test_old_both_equals_bffs_rules_over_an_exact_set_on_500_real_documents(versions):
    seen: set[plain.Gram] = set()
    want, done = plain.run(versions, lambda t: plain.bff(t, seen, 13, 13, 0.8))
    assert sum(d.gone for d in done) > 20 and sum(len(d.spans) for d in done) > 500
    assert stays(DedupBloom(**SURE), versions) == want


def test_old_both_equals_bffs_rules_over_the_same_filter_wrong_answers_included(versions, tmp_path):
    texts = versions[:60]
    kept, _, _ = run_step(DedupBloom(false_positives=0.5), [texts[:25], texts[25:]], tmp_path)
    (only_slice,) = read_header(tmp_path / "own" / FILTER).slices
    blocked = plain.Blocked(only_slice.blocks, only_slice.probes)
    seen = plain.GramFilter(blocked)
    want, done = plain.run(texts, lambda t: plain.bff(t, seen, 13, 13, 0.8))
    assert [row["text"] for row in kept] == want
    assert (opened(tmp_path / "own" / FILTER).words == blocked.words()).all()
    exact: set[plain.Gram] = set()
    right = [plain.bff(t, exact, 13, 13, 0.8) for t in texts]
    assert sum(len(d.spans) for d in done) > sum(len(d.spans) for d in right)  # wrong answers


LINE = st.lists(st.sampled_from("a b c d e, 'f é\u0301".split(" ")), max_size=7).map(" ".join)
TEXTS = st.lists(st.lists(LINE, max_size=5).map("\n".join), max_size=9)
GRAMS = {
    "ngram": st.integers(1, 4),
    "threshold": st.sampled_from([0.0, 0.4, 0.5, 0.8, 1.0]),
}


@pytest.mark.parametrize("mode", ["old-both", "paragraph", "document"])
@settings(deadline=None, max_examples=30)
@given(texts=TEXTS, **GRAMS)
def test_bffs_modes_equal_its_rules(mode, texts, ngram, threshold):
    seen: set[plain.Gram] = set()

    def rule(text: str) -> plain.Done:
        return plain.bff(text, seen, ngram, ngram, threshold, mode)

    want, _ = plain.run(texts, rule)
    step = DedupBloom(mode=mode, ngram=ngram, threshold=threshold, **SURE)
    assert stays(step, texts) == want


@settings(deadline=None, max_examples=60)
@given(texts=TEXTS)
def test_dolmas_paragraphs_equal_its_rules(texts):
    seen: set[str] = set()
    want, _ = plain.run(texts, lambda t: plain.dolma_paragraphs(t, seen))
    assert stays(DedupBloom(mode="dolma-paragraph", **SURE), texts) == want


def test_short_paragraphs_are_never_looked_up_and_a_share_of_exactly_the_threshold_stays():
    draw = random.Random(3)
    first = " ".join(f"w{i}" for i in range(17))  # five 13-grams
    four_of_five = " ".join([*first.split()[:-1], "new"])
    short = " ".join(["short"] * 12)
    texts = [
        f"{first}\n{short}",
        f"{short}\n{line(draw)}\n{short}",
        f"{line(draw)}\n{four_of_five}",
    ]
    assert stays(DedupBloom(**SURE), texts) == texts
    assert stays(DedupBloom(threshold=0.79, **SURE), texts)[2] == texts[2].split("\n")[0]


def test_a_removed_paragraph_takes_its_newline_and_leaves_the_rest_as_it_was():
    draw = random.Random(4)
    old, new, more = line(draw), line(draw), line(draw)
    texts = [old, f"{new}\n\n{old}\n{more}\n", f"{old}\n{line(draw)}"]
    kept = stays(DedupBloom(mode="paragraph", **SURE), texts)
    assert kept[1] == f"{new}\n\n{more}\n" and kept[2] == texts[2][len(old) :]


def test_empty_absent_blank_and_odd_texts_pass():
    odd = [None, "", " \n \n", "\n" * 50, "\x00" * 40, "a " * 20_000, "é\u0301" * 5_000]
    with tempfile.TemporaryDirectory() as folder:
        kept, decisions, counts = run_step(DedupBloom(), [odd, []], Path(folder))
    assert [row["text"] for row in kept] == odd and len(decisions) == 0
    assert counts["dropped"] == 0
    with tempfile.TemporaryDirectory() as folder:
        kept, _, counts = run_step(DedupBloom(), [[]], Path(folder))
    assert kept == [] and counts["keys"] == 0


@pytest.mark.parametrize("seed", [0, 12345])
def test_keys_are_those_of_the_plain_rules_and_depend_on_the_seed(seed):
    from curate.dedup.bloom.kernel import grams_of

    text = "The mill, the mill; the river's mill\nthe house 3.5 m high."
    docs = documents({"id": ["a"], "text": [text]})
    keys = grams_of(docs, True, 4, seed).keys.tolist()
    words = [w for _, w in plain.tokens(text.encode())]
    salt = plain.mix(seed ^ 4) if seed else 4
    want = []
    for gram in plain.grams(words, 4, 4):
        value = 0
        for word in gram:
            value = (value * plain.PRIME + plain.word_hash(word)) & plain.MASK
        want.append(plain.mix(value ^ salt))
    assert keys == want and len(set(want)) == len(want) == np.unique(keys).size
