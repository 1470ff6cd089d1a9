"""`llmcurate perplexity` and its train, score and convert."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curate.cli.app import whole_app
from llmcurate.base.errors import LlmcurateError

RUN = CliRunner()


def lines(draw: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"d{k}", "text": "\n".join(" ".join(s) for s in draw(20, 30, seed=k)), "lang": "en"}
        for k in range(30)
    ]


@pytest.fixture(scope="module")
def model(shared_bench: Any, draw_sentences: Any) -> Path:
    """A model trained by the command."""
    path = shared_bench.jsonl("train.jsonl", lines(draw_sentences))
    command = ["perplexity", "train", path, "-o", "model", "--order", "3"]
    done = shared_bench.command(*command, "--discount-fallback", "--quiet")
    assert done.returncode == 0, done.stderr
    return shared_bench.folder / "model" / "perplexity.bin"


def test_train_writes_the_model_and_its_card(model: Path) -> None:
    card = json.loads((model.parent / "card.json").read_text())
    assert card["order"] == 3 and card["unit"] == "whitespace" and card["sentences"] == 600
    assert len(card["counts"]) == len(card["discounts"]) == 3
    assert card["bytes"] == model.stat().st_size
    assert "n-grams to order 3" in (model.parent / ".run" / "report.html").read_text()


def test_documents_are_sorted_into_buckets(
    model: Path, shared_bench: Any, draw_sentences: Any
) -> None:
    path = shared_bench.jsonl("in.jsonl", lines(draw_sentences))
    command = ["perplexity", path, "-o", "sorted", "--model", model, "--keep", "head,middle"]
    done = shared_bench.command(*command, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["kept"] + counts["rejected"] == 30
    assert counts["by_rule"] == {"perplexity.bucket": counts["rejected"]}
    assert counts["rejected"] == 12  # 40 of a hundred


def test_score_prints_a_row_a_text(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"w1 w2 w3\n\n \nnever seen \x1b[31m\xff\nw1 w2\n")
    done = RUN.invoke(whole_app(), ["perplexity", "score", str(model), str(tmp_path / "a.txt")])
    head, *rows = done.output.splitlines()
    assert head.split() == ["perplexity", "words", "log10", "text"] and len(rows) == 3
    assert "\x1b" not in done.output
    for row in rows:
        value, words, log10 = map(float, row.split()[:3])
        assert value == pytest.approx(10 ** (-log10 / words), abs=0.06, rel=1e-2)
    for by, count in (("paragraph", 2), ("document", 1)):
        command = ["perplexity", "score", str(model), str(tmp_path / "a.txt"), "--by", by, "--json"]
        assert len(RUN.invoke(whole_app(), command).output.splitlines()) == count


def test_score_reads_stdin(model: Path) -> None:
    done = RUN.invoke(
        whole_app(), ["perplexity", "score", str(model), "--json"], input="w1\nw2 w3\n"
    )
    assert [json.loads(r)["words"] for r in done.output.splitlines()] == [2, 3]


def test_convert_goes_both_ways(model: Path, tmp_path: Path) -> None:
    arpa, back = tmp_path / "m.arpa", tmp_path / "back.bin"
    assert (
        RUN.invoke(whole_app(), ["perplexity", "convert", str(model), "-o", str(arpa)]).exit_code
        == 0
    )
    counts = json.loads((model.parent / "card.json").read_text())["counts"]
    head = ["\\data\\", *(f"ngram {n}={count}" for n, count in enumerate(counts, 1))]
    assert arpa.read_text().splitlines()[:4] == head
    assert (
        RUN.invoke(whole_app(), ["perplexity", "convert", str(arpa), "-o", str(back)]).exit_code
        == 0
    )
    texts = "w1 w2 w3\nw3 nobody w1\n"
    outputs = [
        RUN.invoke(whole_app(), ["perplexity", "score", str(m), "--json"], input=texts).output
        for m in (model, back)
    ]
    assert outputs[0] == outputs[1] != ""


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["score", "absent.bin"], "cannot read the model"),
        (["score", "MODEL", "--by", "word"], "choose one of line, paragraph, document"),
        (["score", "MODEL", "absent.txt"], "cannot read absent.txt"),
        (["score", "text.bin"], "not an n-gram model"),
        (["convert", "text.bin", "-o", "out.bin"], "not an ARPA file|truncated"),
        (["convert", "MODEL", "-o", "out.bin"], "not an ARPA file|truncated|too long"),
        (["convert", "MODEL", "-o", "out.bin", "--unit", "pieces"], "unit"),
        (["convert", "MODEL", "-o", "out.bin", "--pieces", "text.bin"], "text.bin"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_a_one_line_error(
    command: list[str], what: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.bin").write_text("some text\nand more\n")
    done = RUN.invoke(
        whole_app(), ["perplexity", *(str(model) if c == "MODEL" else c for c in command)]
    )
    assert isinstance(done.exception, LlmcurateError)
    assert len(str(done.exception).splitlines()) == 1
    assert any(w in str(done.exception) for w in what.split("|")), str(done.exception)


def test_shuffled_words_are_dropped_by_a_perplexity_limit(
    model: Path, shared_bench: Any, draw_sentences: Any
) -> None:
    """Trained by the command on other texts; `most` is what nine in ten good texts are below."""
    good = [[" ".join(s) for s in draw_sentences(40, 30, seed=k)] for k in range(100, 140)]
    shuffled = []
    for k, text in enumerate(good):
        words = " ".join(text).split()
        random.Random(k).shuffle(words)
        lengths = [len(line.split()) for line in text]
        shuffled.append([" ".join(words.pop() for _ in range(n)) for n in lengths])
    rows = [
        {"id": f"{kind}{k}", "text": "\n".join(text)}
        for kind, texts in (("good", good), ("shuffled", shuffled))
        for k, text in enumerate(texts)
    ]
    path = shared_bench.jsonl("shuffled.jsonl", rows)
    step = {"perplexity": {"model": str(model)}}
    shared_bench.run([step], path, out="measured")
    scores = {r["id"]: r["perplexity.score"] for r in shared_bench.rows("measured")}
    most = sorted(v for name, v in scores.items() if name.startswith("good"))[35]
    shared_bench.run([{"perplexity": {**step["perplexity"], "most": most}}], path, out="held")
    kept = [r["id"] for r in shared_bench.rows("held")]
    assert sum(name.startswith("shuffled") for name in kept) <= 2
    assert sum(name.startswith("good") for name in kept) == 36
