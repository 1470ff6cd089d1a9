"""Model files: what is written comes back, what is damaged is refused with a line."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xxhash import xxh3_128_digest

from curate.scoring.perplexity.model_file import (
    KENLM_MAGIC,
    read_arpa,
    read_model,
    write_arpa,
    write_model,
)
from llmcurate.base.errors import UsageError

TINY = """\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-1\t<unk>
0\t<s>\t-0.3
-0.5\t</s>
-0.6\tcat\t-0.2

\\2-grams:
-0.25\t<s> cat
-0.125\tcat </s>
-0.75 cat cat

\\end\\
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, train_on: Any, draw_sentences: Any) -> Path:
    folder = tmp_path_factory.mktemp("model")
    train_on(folder, [" ".join(s) for s in draw_sentences(80, 12)], order=3, fallback=True)
    return folder / "m.bin"


def arpa(folder: Path, text: str) -> Path:
    path = folder / "model.arpa"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def test_a_model_becomes_arpa_and_back_to_the_same_numbers(model: Path, tmp_path: Path) -> None:
    have = read_model(model, whole=True)
    write_arpa(tmp_path / "a.arpa", have)
    back = read_arpa(tmp_path / "a.arpa", "plain", "whitespace", b"")
    assert back.counts == have.counts and back.words.words() == have.words.words()
    write_arpa(tmp_path / "b.arpa", back)
    assert (tmp_path / "a.arpa").read_bytes() == (tmp_path / "b.arpa").read_bytes()
    write_model(tmp_path / "b.bin", back)
    again = read_model(tmp_path / "b.bin", whole=True)
    assert sorted(again.entries.tolist()) == sorted(back.entries.tolist())
    np.testing.assert_array_equal(again.word_prob, have.word_prob)


def test_an_arpa_file_of_another_tool_is_read(tmp_path: Path) -> None:
    ngrams = read_arpa(arpa(tmp_path, TINY), "plain", "whitespace", b"")
    assert ngrams.counts == (4, 3) and ngrams.words.words() == [b"<unk>", b"<s>", b"</s>", b"cat"]
    assert ngrams.word_backoff.tolist() == pytest.approx([0, -0.3, 0, -0.2])
    without = TINY.replace("-1\t<unk>\n", "").replace("1=4", "1=3")
    assert read_arpa(arpa(tmp_path, without), "plain", "whitespace", b"").word_prob[0] == -100


def test_a_byte_order_mark_before_an_arpa_file_is_no_part_of_it(tmp_path):
    read_arpa(arpa(tmp_path, "\ufeff" + TINY), "plain", "whitespace", b"")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("\n\\end\\\n", "", "truncated"),
        ("ngram 2=3", "ngram 2=4", "line 15"),
        ("ngram 2=3", "ngram 2=2", "more 2-grams"),
        ("ngram 2=3", "ngram 3=3", "ngram 2=COUNT"),
        ("-0.125\tcat", "zero\tcat", "line 13"),
        ("-0.125\tcat", "0.5\tcat", "at most 0"),
        ("-0.125\tcat", "nan\tcat", "at most 0"),
        ("-0.125\tcat", "-1e300\tcat", "at most 0"),
        ("ngram 2=3", f"ngram 2={'9' * 5000}", "ngram 2=COUNT"),
        ("ngram 2=3", f"ngram 2={1 << 30}", "counts need more lines than the file has"),
        ("cat </s>", f"{'dog' * 2000} </s>", r"'(dog){66}do' is not among the 1-grams"),
        ("cat </s>", "dog </s>", "'dog' is not among the 1-grams"),
        ("-0.75 cat cat", "-0.75 <s> cat", "appears twice"),
        ("-0.6\tcat", "-0.6\t</s>", "appears twice"),
        ("\\data\\", "hello", "not an ARPA file|truncated"),
        ("-0.5\t</s>", "-0.5\tdot", "has no </s>|is not among the 1-grams"),
    ],
)
def test_a_wrong_arpa_file_is_refused_with_its_line(
    old: str, new: str, what: str, tmp_path: Path
) -> None:
    assert old in TINY
    with pytest.raises(UsageError, match=what):
        read_arpa(arpa(tmp_path, TINY.replace(old, new, 1)), "plain", "whitespace", b"")


@pytest.mark.parametrize("place", range(24))
def test_a_changed_byte_anywhere_is_found(place: int, model: Path, tmp_path: Path) -> None:
    data = bytearray(model.read_bytes())
    at = (place * len(data)) // 24 + 8 * (place == 0)
    while data[at] == 0:  # between sections zeros fill up, which nothing reads
        at += 1
    data[at] ^= 0x55
    damaged = tmp_path / "m.bin"
    damaged.write_bytes(data)
    with pytest.raises(UsageError, match=r"m\.bin"):
        read_model(damaged, whole=True)


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999])
def test_a_cut_file_is_refused_without_reading_it_whole(
    share: float, model: Path, tmp_path: Path
) -> None:
    data = model.read_bytes()
    (tmp_path / "m.bin").write_bytes(data[: int(share * len(data))])
    with pytest.raises(UsageError, match=r"m\.bin"):
        read_model(tmp_path / "m.bin")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"hello world, no model", "not an n-gram model"),
        (KENLM_MAGIC + b" format version 5\n\0" + bytes(64), "KenLM"),
        (struct.pack("<8sII", b"LLMCNGRM", 9, 5), "format version 9"),
        (struct.pack("<8sII", b"LLMCNGRM", 1, 1 << 30), "damaged"),
        (struct.pack("<8sII", b"LLMCNGRM", 1, 2) + b"[]" + xxh3_128_digest(b"[]"), "damaged"),
        (struct.pack("<8sII", b"LLMCNGRM", 1, 2) + b"{}" + xxh3_128_digest(b"{}"), "damaged"),
    ],
    ids=["text", "kenlm", "version", "header_size", "list", "empty"],
)
def test_other_files_are_refused(data: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(data)
    with pytest.raises(UsageError, match=what):
        read_model(tmp_path / "m.bin")
    with pytest.raises(UsageError, match="cannot read"):
        read_model(tmp_path / "absent.bin")


def test_entries_that_point_nowhere_are_an_error_and_no_crash(model: Path) -> None:
    from curate.scoring.perplexity.table import level

    have = read_model(model)
    wrong = np.array(have.entries)
    wrong[::2] = np.where(wrong[::2] == 0, 0, np.uint64(0xFFFFFFF0FFFFFFF0))
    with pytest.raises(ValueError, match="damaged"):
        level(wrong, have.firsts, have.counts, 3)
