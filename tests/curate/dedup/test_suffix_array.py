"""Exact substrings: which text is cut, which duplicate is kept, and the recorded decisions."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches, SketchFile, view
from curate.dedup.suffix_array.exact_substrings import DedupSuffixArray
from curate.documents.documents import documents
from curate.run.worker.stage import sketch_rows
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.dedup.reference_substrings import (
    Row,
    in_bytes,
    on_characters,
    on_lines,
    on_words,
    pages_of,
    spans_to_cut,
)

# Chunks of about a window, and tasks of sixteen positions.
TINY = Sizes(sort_bytes=1, task_windows=16, task_sketch_bytes=1)


def decide_here(
    texts: list[str], parts: int = 1, folder: Path | None = None, tiny: bool = False, **choice: Any
) -> tuple[list[str | None], list[Row]]:
    """(texts afterwards, None where dropped; decisions) of the step without a run around it."""
    step = DedupSuffixArray(**{"keep_index": False, **choice})
    size = -(-len(texts) // parts)
    after: list[str | None] = []
    with tempfile.TemporaryDirectory() as own, scratch_database(Path(own, "spill")) as db:
        files = []
        batches = []
        for part in range(parts):
            part_texts = texts[part * size : (part + 1) * size]
            ids = [f"d{part * size + i:03d}" for i in range(len(part_texts))]
            docs = documents({"id": ids, "text": part_texts})
            path = Path(own, f"sketch-{part}.parquet")
            pq.write_table(sketch_rows(step, docs.table, part), path)
            files.append(SketchFile(part, path, part))
            batches.append(docs)
        view(db, tuple(files))
        home = folder or Path(own, "own")
        home.mkdir(exist_ok=True)
        path = Path(own, "decisions.parquet")
        sizes = TINY if tiny else Sizes()
        step.resolve(Sketches(db, path, home, tuple(files), sizes=sizes))
        decisions = pq.read_table(path)
        for part, docs in enumerate(batches):
            part_texts = decisions.filter(pc.equal(decisions["part"], part))
            done = step.apply(docs.within(step.label), part_texts)
            kept = {r["id"]: r["text"] for r in done.split()[0].to_pylist()}
            after += [kept.get(i) for i in docs.table["id"].to_pylist()]
    return after, decisions.to_pylist()


def without(text: str, spans: list[tuple[int, int]]) -> str | None:
    """The text without byte spans; None where nothing but white space would be left."""
    data, out, at = text.encode(), b"", 0
    for a, z in spans:
        out += data[at:a]
        at = z
    remaining = (out + data[at:]).decode()
    return remaining if remaining.strip() or not spans else None


def units_of(text: str, unit: str) -> list[bytes]:
    return (
        [c.encode() for c in text] if unit == "characters" else [bytes([b]) for b in text.encode()]
    )


def expected(
    texts: list[str], window: int, unit: str, boundary: str, none: bool
) -> list[str | None]:
    units = [units_of(t, unit) for t in texts]
    out = []
    for text, of, spans in zip(texts, units, spans_to_cut(units, window, none), strict=True):
        ranges = on_characters(text, in_bytes(of, spans))
        if boundary == "word":
            ranges = on_words(text, ranges)
        elif boundary == "line":
            ranges = on_lines(text, ranges)
        out.append(without(text, ranges))
    return out


# Two letters, several bytes, the separators of other tools, and white space.
ALPHABETS = ["ab", "abc \n", "aé", "日本語a", "\x00\xffa", "😀é\u0301 a"]
one_text = st.sampled_from(ALPHABETS).flatmap(lambda a: st.text(a, max_size=24))
some_texts = st.lists(one_text, min_size=0, max_size=6)


@settings(deadline=None, max_examples=40)
@given(
    some_texts,
    st.integers(1, 9),
    st.sampled_from(["characters", "bytes"]),
    st.sampled_from(["character", "word", "line"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)
def test_cuts_agree_with_a_search_for_every_window(
    texts, window, unit, boundary, none, tiny, parts
):
    choice = {"threshold": window, "unit": unit, "boundary": boundary}
    keep = "none" if none else "first"
    after, _ = decide_here(texts, parts, tiny=tiny, keep=keep, **choice)
    assert after == expected(texts, window, unit, boundary, none)


@settings(deadline=None, max_examples=25)
@given(some_texts, st.integers(2, 6), st.booleans(), st.permutations(range(6)))
def test_other_policies_only_change_which_document_comes_first(texts, window, tiny, order):
    choice = {"threshold": window, "survivor": "longest"}
    ranked = sorted(range(len(texts)), key=lambda i: (-len(texts[i].encode()), f"d{i:03d}"))
    want = expected([texts[i] for i in ranked], window, "characters", "character", False)
    after, _ = decide_here(texts, tiny=tiny, **choice)
    assert [after[i] for i in ranked] == want


SHARED_PART = "This passage stands in three documents, word for word."


def three() -> list[Row]:
    return [
        {"id": "a", "text": f"One. {SHARED_PART} Alpha."},
        {"id": "b", "text": f"Twice the text. {SHARED_PART} Beta, and some more of it."},
        {"id": "c", "text": f"{SHARED_PART} Gamma."},
    ]


@pytest.mark.parametrize(
    ("choice", "stays"),
    [({"keep": "first"}, {"a"}), ({"survivor": "longest"}, {"b"}), ({"keep": "none"}, set())],
)
def test_the_copy_that_stays_is_the_one_asked_for(bench, choice, stays):
    source = bench.jsonl("in.jsonl", three())
    bench.run([{"dedup_suffix_array": {**choice, "threshold": 30}}], source)
    rows = {r["id"]: r for r in bench.rows()}
    assert {n for n, r in rows.items() if SHARED_PART in r["text"]} == stays
    texts = {r["id"]: r["text"].encode() for r in three()}
    for row in rows.values():
        data, out, at = texts[row["id"]], b"", 0
        for edit in row["edits"]:
            out += data[at : edit["start"]]
            at = edit["end"]
        assert (out + data[at:]).decode() == row["text"]
    decisions = bench.decisions()
    assert {d["id"] for d in decisions} == {"a", "b", "c"} and len(
        {d["cluster"] for d in decisions}
    ) == 1
    keep = choice.get("keep")
    first = "a" if keep == "none" else next(iter(stays))
    for d in decisions:
        span = texts[d["id"]][d["span_start"] : d["span_end"]].decode()
        assert span.strip(" .") == SHARED_PART.strip(".") and d["method"] == "suffix-array"
        assert d["kept_id"] == (None if keep == "none" else first)
        if d["id"] == first:
            assert d["partner_id"] == ("b" if keep == "none" else None)
        else:
            assert (d["partner_id"], d["similarity"]) == (first, 1.0)
    done = bench.command("explain", "c", "--in", "out")
    sentence = (
        "also occur in a; no duplicate is kept"
        if keep == "none"
        else f"consist of passages that also occur in {first}"
    )
    assert done.returncode == 0 and sentence in done.stdout, done.stdout + done.stderr


def test_a_duplicate_within_the_document_is_local_and_overlapping_duplicates_stay(bench):
    rows = [{"id": "a", "text": "-" * 500}, {"id": "b", "text": "no " * 4 + "dashes " + "-" * 300}]
    source = bench.jsonl("in.jsonl", rows)
    bench.run([{"dedup_suffix_array": {"threshold": 200, "max_removal": 1}}], source)
    after = {r["id"]: r for r in bench.rows()}
    assert after["a"]["text"] == "-" * 200 and after["b"]["text"] == "no " * 4 + "dashes "
    assert [e["rule"] for e in after["a"]["edits"]] == ["local_duplicate"]
    assert [e["rule"] for e in after["b"]["edits"]] == ["duplicate"]


def test_a_cut_shared_with_two_documents_is_two_adjacent_decisions(bench):
    first, second = "abcdefghij" * 3, "klmnopqrst" * 3
    rows = [
        {"id": "a", "text": f"{first}{second[:9]}!"},
        {"id": "b", "text": f"?{second}"},
        {"id": "c", "text": f"<{first}{second}>"},
    ]
    source = bench.jsonl("in.jsonl", rows)
    bench.run([{"dedup_suffix_array": {"threshold": 30}}], source)
    assert {r["id"]: r["text"] for r in bench.rows()}["c"] == "<>"
    cut = [d for d in bench.decisions() if d["id"] == "c"]
    assert [(d["partner_id"], d["span_start"], d["span_end"]) for d in cut] == [
        ("a", 1, 40),
        ("b", 40, 61),
    ]


def test_documents_without_anything_left_or_too_little_are_dropped_with_their_text(bench):
    rows = [*three(), {"id": "all", "text": f"  {SHARED_PART}\n"}, {"id": "short", "text": "Hm."}]
    source = bench.jsonl("in.jsonl", rows)
    bench.run([{"dedup_suffix_array": {"threshold": 30, "min_chars": 15}}], source)
    gone = {r["id"]: r for r in bench.rows(kind="rejected")}
    assert {n: (r["rule"], r["threshold"]) for n, r in gone.items()} == {
        "all": ("nothing_left", 1.0),
        "c": ("too_short", 15.0),
    }
    assert gone["all"]["text"] == rows[3]["text"] and not gone["all"]["edits"]
    assert "short" in bench.ids()  # it lost nothing


def test_small_inputs_and_inputs_without_duplicates_come_out_whole(bench):
    rows = [
        {"id": "empty", "text": ""},
        {"id": "null", "text": None},
        {"id": "nul", "text": "\x00\x00"},
        {"id": "other", "text": "\xff\xff\u0001\u0000 \ufffd"},
        {"id": "line", "text": "\n"},
    ]
    for name, some in (("none", []), ("odd", rows), ("one", rows[3:4])):
        source = bench.jsonl(f"{name}.jsonl", some)
        bench.run([{"dedup_suffix_array": {}}], source, out=name)
        want = {r["id"]: r["text"] for r in some if r["text"] is not None}
        have = {r["id"]: r["text"] for r in bench.rows(name)}
        assert have == want and bench.decisions(name) == []


def byte_pairs(folder: Path, texts: list[str]) -> Path:
    """A small byte-level BPE, whose tokens may end inside of characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    tokenizer.train_from_iterator(texts, trainer)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def token_spans(tokenizer: Any, text: str) -> list[tuple[int, int, int]]:
    """(token, first, last byte) of each token."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    edges = [len(text[:k].encode()) for k in range(len(text) + 1)]
    return [
        (i, edges[a], edges[z]) for i, (a, z) in zip(encoding.ids, encoding.offsets, strict=True)
    ]


def test_tokens_are_counted_and_cut_as_bytes_on_whole_characters(tmp_path):
    from tokenizers import Tokenizer

    draw = random.Random(5)
    texts = [r["text"] for r in pages_of(draw, 25)]
    texts += ["日本語の文章です。" * 3 + "終", "前日本語の文章です。" * 2, "😀😁😂🤣" * 5, ""]
    path = byte_pairs(tmp_path, texts[:20])
    tokenizer = Tokenizer.from_file(str(path))
    of = [token_spans(tokenizer, t) for t in texts]
    units = [[str(i).encode() for i, _, _ in tokens] for tokens in of]
    want = []
    for text, tokens, spans in zip(texts, of, spans_to_cut(units, 12), strict=True):
        ranges = []
        for a, z in spans:
            first = max(tokens[a][1], tokens[a - 1][2] if a else 0)
            last = min(tokens[z - 1][2], tokens[z][1] if z < len(tokens) else len(text.encode()))
            if last > first:
                ranges.append((first, last))
        want.append(without(text, ranges))
    for tiny in (False, True):
        after, decisions = decide_here(texts, 2, tiny=tiny, tokenizer=str(path), threshold=12)
        assert after == want
    assert any(d["drop"] for d in decisions)
    assert want != texts


def test_a_document_cannot_spell_a_special_token_and_a_tokenizer_must_be_one(bench, tmp_path):
    from tokenizers import Tokenizer

    path = byte_pairs(tmp_path, ["some words"])
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(path))
    from curate.dedup.suffix_array.exact_substrings import Encoder

    tokens = Encoder(path).columns(documents({"text": ["<|end|>"]}).text)["tokens"]
    assert len(tokens[0]) > 1
    (tmp_path / "other.json").write_text("{}")
    source = bench.jsonl("in.jsonl", three())
    for name in ("other.json", "absent.json"):
        with pytest.raises((UsageError, RunFailed), match=name):
            bench.run([{"dedup_suffix_array": {"tokenizer": str(tmp_path / name)}}], source)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"unit": "tokens"}, "tokenizer"),
        ({"tokenizer": "t.json", "unit": "bytes"}, "unit"),
        ({"threshold": 0}, "threshold"),
        ({"boundary": "sentence"}, "boundary"),
    ],
)
def test_contradictory_settings_are_refused(bench, settings_, message):
    with pytest.raises(UsageError, match=message):
        bench.run([{"dedup_suffix_array": settings_}], bench.jsonl("in.jsonl", three()))


def test_the_guard_counts_bytes(bench):
    rows = [{"id": f"d{i}", "text": SHARED_PART} for i in range(20)]
    with pytest.raises(RunFailed, match="bytes"):
        bench.run([{"dedup_suffix_array": {"threshold": 30}}], bench.jsonl("in.jsonl", rows))
