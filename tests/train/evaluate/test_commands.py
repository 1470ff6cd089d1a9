"""`llmcurate evaluate` and `pretrain --on`: any text, by source, under names."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from curate.cli.app import invoke
from tests.train.conftest import sentences
from tests.train.data.feed_settings import MODEL
from tests.train.loop.small_runs import build, trained
from train.data.shards import read_shards


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory):
    model = build(replace(MODEL, context=64))
    folder = tmp_path_factory.mktemp("run") / "run"
    return trained(folder, model, read_shards(shard_folder).tokenizer)


@pytest.fixture
def news(tmp_path):
    path = tmp_path / "news.jsonl"
    lines = [{"source": "ab"[n % 2], "text": sentences(500 + n, 1 + n)} for n in range(6)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def evaluate(capsys, *arguments):
    code = invoke(["evaluate", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_texts_have_bits_per_byte_by_source_and_questions_accuracies(run, news, tmp_path, capsys):
    quiz = tmp_path / "quiz.jsonl"
    lines = [{"context": "the cat", "continuation": word} for word in (" sat", " ran")]
    quiz.write_text("\n".join(map(json.dumps, lines)))
    named = ("--on", f"news={news}", "--on", f"quiz={quiz}", "--device", "cpu")
    code, out, _ = evaluate(capsys, run, *named, "--json")
    figures = json.loads(out)
    assert code == 0
    assert figures["texts"]["news"]["documents"] == 6
    assert set(figures["texts"]["news"]["sources"]) == {"a", "b"}
    assert figures["questions"]["quiz"]["questions"] == 2
    texts = [json.loads(line)["text"] for line in news.read_text().splitlines()]
    units = sum(len(text.split()) + len(text.splitlines()) for text in texts)
    score = figures["texts"]["news"]
    nats = score["loss"] * score["tokens"]
    assert score["word_perplexity"] == pytest.approx(math.exp(nats / units))
    code, out, _ = evaluate(capsys, run, *named)
    assert code == 0 and f"{figures['texts']['news']['bits_per_byte']:.3f}" in out


def test_a_file_of_texts_asks_for_their_last_words(run, news, tmp_path, capsys):
    quiz, lines = tmp_path / "quiz.jsonl", []
    for line in news.read_text().splitlines():
        context, _, word = json.loads(line)["text"].strip().rpartition(" ")
        lines.append(json.dumps({"context": context, "continuation": f" {word}"}))
    quiz.write_text("\n".join(lines))
    named = ("--on", f"lambada={news}", "--on", f"quiz={quiz}", "--last-word", "--json")
    code, out, _ = evaluate(capsys, run, *named, "--device", "cpu")
    figures = json.loads(out)
    assert code == 0 and figures["texts"] == {}
    assert figures["questions"]["lambada"] == figures["questions"]["quiz"]


def test_texts_without_a_space_are_counted_as_left_out(run, tmp_path, capsys):
    texts = [{"text": "the cat sat"}, {"text": "日本語の文"}]
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    named = ("--on", f"l={path}", "--last-word", "--device", "cpu")
    code, _, shown = evaluate(capsys, run, *named)
    assert code == 0 and "left out 1 text with no space between words" in shown


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["nosuch"], "nosuch: no such path: give PATH or NAME=PATH"),
        (["a=x", "a=y"], "two texts are called a"),
        (["../a=x"], "cannot name a text"),
        (["a=nosuch.jsonl"], "nosuch.jsonl does not exist"),
    ],
    ids=["no path", "twice", "a path as name", "missing"],
)
def test_texts_that_cannot_be_scored_are_a_one_line_error(run, capsys, named, message):
    code, _, error = evaluate(capsys, run, *(word for name in named for word in ("--on", name)))
    assert code == 2 and message in error and error.count("\n") == 1


def test_a_run_scores_documents_under_the_names_they_are_given(shard_folder, news, tmp_path):
    out = tmp_path / "out"
    arguments = ["pretrain", shard_folder, "-o", out, "--steps", 2, "--context", 32]
    small = [f"--set=pretrain.model.{s}" for s in ("layers=1", "hidden=32", "attention.heads=2")]
    named = ["--on", f"news={news}", "--on", f"same={shard_folder}"]
    assert (
        invoke([*map(str, arguments), *small, *named, "--set", f"pretrain.eval.more={news}"]) == 0
    )
    scores = json.loads((out / "train.json").read_bytes())["eval"]
    assert set(scores) == {"news", "same", "more"}
    assert scores["news"] == scores["more"]
    assert set(scores["news"]["sources"]) == {"a", "b"}
    assert (out / "eval" / "news" / "manifest.json").is_file()
    page = (out / ".run" / "report.html").read_text()
    assert "news: a" in page
