"""sentencepiece and kenlm recompute what a run made with models in their formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from curate.lab.verify import verify as verifying
from curate.lab.verify.finished_run import Document, Source
from curate.lab.verify.labels import line
from curate.lab.verify.records import Peer, _difference, _same_date
from tests.curate.lab.verify.conftest import rewrite
from tests.curate.scoring.perplexity.conftest import sentences, trained
from tokenize_kit.encode.encoder import Encoder


def tallies(out: Path) -> dict[str, Any]:
    """Those of one run, by library."""
    return {tally.library: tally for tally in verifying.verify(out, 50, 0).tallies}


def documents(count: int) -> list[dict[str, Any]]:
    lines = [" ".join(words) for words in sentences(count * 6)]
    return [{"id": f"d{i}", "text": "\n".join(lines[i * 6 : i * 6 + 6])} for i in range(count)]


def test_sentencepiece_finds_a_token_that_it_would_not_write(bench: Any) -> None:
    from sentencepiece import SentencePieceTrainer

    rows = documents(40)
    texts = [line for row in rows for line in row["text"].splitlines()]
    model = bench.folder / "tokenizer.model"
    with model.open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=90, model_type="bpe",
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
    bench.run([{"shards": {"tokenizer": str(model)}}], bench.jsonl("in.jsonl", rows))
    out = bench.folder / "out"
    tally = tallies(out)["sentencepiece"]
    assert (tally.agree, tally.disagree) == (40, 0)
    tokens = np.fromfile(out / "tokens-00000.bin", "<u2")
    tokens[3] += 1
    tokens.tofile(out / "tokens-00000.bin")
    assert tallies(out)["sentencepiece"].disagree == 1


def test_tokenizers_encodes_the_texts_of_a_trained_tokenizer_again(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both sizes, and from the column that the recipe names."""
    rows = [{"id": row["id"], "body": row["text"]} for row in documents(40)]
    recipe = [{"tokenizer": {"vocab": "280,300"}}]
    bench.run(recipe, bench.jsonl("in.jsonl", rows), read={"columns": {"text": "body"}})
    out = bench.folder / "out"
    found = verifying.verify(out, 30, 0).tallies
    assert [(tally.agree, tally.disagree) for tally in found] == [(30, 0), (30, 0)]

    class Wrong(Encoder):
        def encode(self, *texts: Any) -> Any:
            ids, counts = super().encode(*texts)
            ids[0] += 1
            return ids, counts

    monkeypatch.setattr("curate.lab.verify.tokens.Encoder", Wrong)
    wrong = verifying.verify(out, 30, 0)
    assert [tally.disagree for tally in wrong.tallies] == [1, 1]
    assert "they differ from position 0" in wrong.text()


def test_shards_of_a_folder_of_their_own_are_verified(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", documents(40))
    bench.command("tokenizer", "train", source, "--vocab", "300", "-o", "tokenizer")
    bench.command("tokenizer", "encode", source, "--tokenizer", "tokenizer", "-o", "shards")
    found = verifying.verify(bench.folder / "shards", 30, 0).tallies
    assert [(tally.agree, tally.disagree) for tally in found] == [(30, 0)]


@pytest.mark.parametrize("variant", ["plain", "ccnet"])
def test_kenlm_finds_a_perplexity_that_its_model_does_not_give(bench: Any, variant: str) -> None:
    pytest.importorskip("kenlm")
    rows = documents(30)
    trained(
        bench.folder, [row["text"] for row in rows], order=3, fallback=True,
        variant=variant,
    )  # fmt: skip
    step = {"perplexity": {"model": str(bench.folder / "m.bin")}}
    bench.run([step], bench.jsonl("in.jsonl", rows))
    out = bench.folder / "out"
    tally = tallies(out)["kenlm"]
    assert tally.checked == 30 and not tally.disagree

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[0]["perplexity.score"] += 1.0
        return rows

    rewrite(next(iter(sorted((out / "corpus").glob("*.parquet")))), change)
    assert tallies(out)["kenlm"].disagree == 1


def test_a_line_for_fasttext_has_no_newline_and_none_of_its_commands() -> None:
    assert line("a\nb </s> c __label__x d") == "a b   c   d"
    assert line("x</s> </s>x my__label__") == "x</s> </s>x my__label__"


def test_a_record_differs_by_payload_address_or_date() -> None:
    from datetime import datetime, timezone

    date = datetime(2024, 5, 1, 10, tzinfo=timezone.utc)
    row = {"url": "http://a/b c", "date": date, "source": "x.warc"}
    source = Source("u", row["url"], b"body", "text/html", None, None, None, None)
    digest = "02083f4579e08a612425c0c1a17ee47add783b94"
    peer = Peer(
        file="x.warc", offset=0, id="u", url="http://a/b%20c", date="2024-05-01T10:00:00Z",
        payload=digest, coding="", page=True, odd=False, error="",
    )  # fmt: skip

    def difference(**changes: Any) -> str:
        return _difference(Document("u", 0, True, row), source, [Peer(**{**vars(peer), **changes})])

    assert difference() == ""
    assert "payload of sha1" in difference(payload="0" * 40)
    assert "URL" in difference(url="http://a/other")
    assert "date" in difference(date="2024-05-01T10:00:01Z")
    assert _same_date(date, "May 2024")  # another form is left to the reader
    assert _difference(Document("u", 0, True, row), source, []) == "warcio reads no such record"


def test_a_run_of_a_file_that_warcio_reads_no_record_of_says_so(bench: Any) -> None:
    bench.run([{"document_length": {}}], bench.jsonl("in.jsonl", documents(3)))
    verification = verifying.verify(bench.folder / "out", 50, 0)
    assert not verification.passed and not verification.checked
    assert verification.text().endswith("nothing of this run could be compared")
    assert pq.read_table(next((bench.folder / "out" / "corpus").glob("*.parquet"))).num_rows == 3
