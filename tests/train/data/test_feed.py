"""Sources and stages in a whole run: traced, counted, resumed to the bit."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from llmcurate.base.errors import LlmcurateError
from tests.parameters import mostly_slow
from tests.train.conftest import sentences
from tests.train.data.causal_rows import causal
from tests.train.data.feed_settings import MODEL, PLAIN
from tokenize_kit.shards.writer import encode_shards
from train.config import Source, Stage, TrainConfig, locate, stages_of
from train.data.feed import Feed
from train.loop.pretrain import pretrain
from train.optim.schedules import learning_rate


@pytest.fixture(scope="module")
def other(shard_folder, tmp_path_factory) -> Path:
    """Ten longer documents of two sources, by the tokenizer of ``shard_folder``."""
    out = tmp_path_factory.mktemp("wiki")
    rows = [
        {"id": f"w{k}", "text": sentences(100 + k, 20), "source": "enwiki" if k % 2 else "dewiki"}
        for k in range(10)
    ]
    tokenizer = shard_folder / "tokenizer.json"
    encode_shards([pa.RecordBatch.from_pylist(rows)], tokenizer, out)
    return out


@pytest.fixture(scope="module")
def staged(shard_folder, other) -> TrainConfig:
    """Web alone in short rows, then web and wiki, then an anneal on wiki."""
    web, wiki = str(shard_folder), str(other)
    return dataclasses.replace(
        PLAIN,
        steps=9,
        sources=(Source(shards=web, name="web"),),
        stages=(
            Stage(steps=4, name="short", context=16, rows=6, schedule="constant"),
            Stage(
                steps=3,
                packing="best-fit",
                schedule="constant",
                sources=(
                    Source(shards=web, name="web", weight=3),
                    Source(shards=wiki, name="wiki", weight=1),
                ),
            ),
            Stage(
                steps=2,
                name="anneal",
                schedule="linear",
                lr_floor=0.0,
                sources=(Source(shards=wiki, name="wiki"),),
            ),
        ),
    )


def test_a_step_belongs_to_a_stage_by_its_number_alone(staged):
    assert [locate(staged, step) for step in range(9)] == [
        *((0, k) for k in range(4)),
        *((1, k) for k in range(3)),
        *((2, k) for k in range(2)),
    ]
    assert [stage.steps for stage in stages_of(staged)] == [4, 3, 2]
    assert locate(PLAIN, 5) == (0, 5)


def test_each_stage_has_the_rates_of_its_own_schedule(staged):
    lr = staged.lr
    rates = [learning_rate(staged, step) / lr for step in range(9)]
    assert rates == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.5, 0])


def test_each_stage_has_its_rows_and_sources(staged):
    feed = Feed(None, staged)
    shapes = [tuple(causal(feed.rows, feed.row_numbers(step)).inputs.shape) for step in range(9)]
    assert shapes == [(6, 16)] * 4 + [(4, 32)] * 5
    owners = [{feed.owner(number)[0] for number in feed.documents(step)} for step in range(9)]
    assert owners == [{"web"}] * 4 + [{"web", "wiki"}] * 3 + [{"wiki"}] * 2
    wiki = [row for step in range(4, 9) for row in feed.row_numbers(step)]
    assert causal(feed.rows, feed.row_numbers(7)).tokens == sum(feed.documents(7).values())
    assert len(wiki) == 20


def test_the_same_source_continues_where_an_earlier_stage_stopped(shard_folder):
    """One folder, one shape: two stages take the rows that one long stage takes."""
    source = (Source(shards=str(shard_folder)),)
    whole = Feed(None, dataclasses.replace(PLAIN, steps=7, sources=source))
    stages = (Stage(steps=3), Stage(steps=4))
    parts = Feed(None, dataclasses.replace(PLAIN, steps=7, sources=source, stages=stages))
    assert [parts.row_numbers(k) for k in range(7)] == [whole.row_numbers(k) for k in range(7)]


def lines_of(out: Path) -> list[dict]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["timing"]
    return lines


@pytest.mark.parametrize("stop", mostly_slow([4, 5, 3, 7], 2))
def test_a_run_stopped_around_a_border_of_stages_ends_with_the_same_bits(staged, tmp_path, stop):
    torch.set_num_threads(1)
    straight = pretrain(None, tmp_path / "a", model=MODEL, train=staged)

    class Stop(Exception):
        pass

    def stopping(line):
        if line["step"] == stop:
            raise Stop

    with pytest.raises(Stop):
        pretrain(None, tmp_path / "b", model=MODEL, train=staged, on_progress=stopping)
    resumed = pretrain(None, tmp_path / "b", model=MODEL, train=staged)
    for name in ("model", "optimizer"):
        first, second = (
            load_file(tmp_path / run / "checkpoints" / "step-0000009" / f"{name}.safetensors")
            for run in "ab"
        )
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert lines_of(tmp_path / "a") == lines_of(tmp_path / "b")
    assert straight["data"] == resumed["data"]


def test_the_summary_counts_what_each_source_gave(staged, shard_folder, other, tmp_path):
    notices: list[str] = []
    summary = pretrain(None, tmp_path, model=MODEL, train=staged, on_notice=notices.append)
    data = summary["data"]
    assert set(data["sources"]) == {"web", "wiki"}
    feed = Feed(None, staged)
    for label, path in (("web", str(shard_folder)), ("wiki", str(other))):
        counts = data["sources"][label]
        assert counts["documents"] + counts["held_out_documents"] == feed.shards[path].documents
        assert counts["tokens"] == round(counts["epochs"] * counts["unique_tokens"])
        assert counts["repeated_tokens"] == max(0, counts["tokens"] - counts["unique_tokens"])
        assert any(line.startswith(f"{label}: {counts['epochs']:.2f} epochs") for line in notices)
    taken = [
        sum(part["taken_rows"] for part in stage["sources"].values()) for stage in data["stages"]
    ]
    assert taken == [24, 12, 8]
    assert [stage["name"] for stage in data["stages"]] == ["short", "stage 2", "anneal"]
    packed = [line for line in notices if line.startswith("stage 2, wiki: best-fit, ")]
    assert len(packed) == 1 and "0 tokens cropped" in packed[0]
    assert notices[-1].startswith("attention: sdpa in 1 layer (causal, documents; float32 on cpu)")
    assert [layer["backend"] for layer in summary["attention"]] == ["sdpa"]


def test_held_out_loss_by_source_adds_up_to_the_whole(staged, tmp_path):
    summary = pretrain(None, tmp_path, model=MODEL, train=staged)
    apart = summary["held_out_sources"]
    assert "web" in apart and {"wiki/dewiki", "wiki/enwiki"} & set(apart)
    tokens = sum(scores["tokens"] for scores in apart.values())
    nats = sum(scores["tokens"] * scores["loss"] for scores in apart.values())
    assert tokens == summary["scored_tokens"]
    assert nats / tokens == pytest.approx(summary["held_out_loss"], rel=1e-12)
    sizes = sum(scores["bytes"] for scores in apart.values())
    bits = sum(scores["bytes"] * scores["bits_per_byte"] for scores in apart.values())
    assert bits / sizes == pytest.approx(summary["bits_per_byte"], rel=1e-12)
    last = lines_of(tmp_path)[-1]["held_out"]["sources"]
    assert last == apart


def test_a_resumed_run_accepts_a_moved_source(staged, shard_folder, other, tmp_path):
    pretrain(None, tmp_path / "out", model=MODEL, train=staged)
    moved = str(shutil.copytree(other, tmp_path / "moved"))

    def renamed(stage):
        sources = [
            dataclasses.replace(source, shards=moved) if source.shards == str(other) else source
            for source in stage.sources
        ]
        return dataclasses.replace(stage, sources=tuple(sources))

    again = dataclasses.replace(staged, stages=tuple(map(renamed, staged.stages)))
    lines: list[dict] = []
    pretrain(None, tmp_path / "out", model=MODEL, train=again, on_progress=lines.append)
    assert lines == []


def test_shards_of_other_trainers_train_without_a_tokenizer(shard_folder, tmp_path):
    from train.data.shards import read_shards

    shards = read_shards(shard_folder)
    with (tmp_path / "train.bin").open("wb") as file:
        for index in range(shards.documents):
            file.write(shards.document(index).tobytes())
    plain = dataclasses.replace(PLAIN, vocab_size=300, end_of_text=shards.end)
    notices: list[str] = []
    summary = pretrain(
        tmp_path, tmp_path / "out", model=MODEL, train=plain, on_notice=notices.append
    )
    assert summary["bits_per_byte"] is None and summary["sample"] is None
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    assert any("documents end at token" in line for line in notices)
    ours = pretrain(shard_folder, tmp_path / "ours", model=MODEL, train=PLAIN)
    assert summary["train_tokens"] == ours["train_tokens"]
    # The files differ, so the order does; the documents on each side are the same.
    assert summary["scored_tokens"] == ours["scored_tokens"]


def test_sources_of_different_tokenizers_are_refused_by_name(shard_folder, tmp_path):
    from tokenize_kit.learn.training import train_tokenizer

    train_tokenizer(["quite different text, again and again"], tmp_path / "t", vocab=280)
    batch = pa.RecordBatch.from_pylist([{"id": str(k), "text": f"text {k}"} for k in range(9)])
    encode_shards([batch], tmp_path / "t" / "tokenizer.json", tmp_path / "s")
    both = (Source(shards=str(shard_folder)), Source(shards=str(tmp_path / "s")))
    with pytest.raises(LlmcurateError, match="encoded by different tokenizers") as caught:
        Feed(None, dataclasses.replace(PLAIN, sources=both))
    assert str(tmp_path / "s") in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_epochs": 0.01}, r"source shards: [\d.]+ epochs, over max_epochs 0.01"),
        ({"packing": "crop"}, "packing 'crop': choose one of"),
        ({"sources": (Source(shards="x"),)}, "shards or sources, not both"),
        ({"steps": 7, "stages": (Stage(steps=7, schedule="up"),)}, "schedule 'up'"),
        ({"steps": 7, "stages": (Stage(steps=7, context=64),)}, "rows of 64"),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_written(
    shard_folder, tmp_path, change, message
):
    with pytest.raises(LlmcurateError, match=message):
        plan = dataclasses.replace(PLAIN, **change)
        pretrain(shard_folder, tmp_path / "out", model=MODEL, train=plan)
    assert not (tmp_path / "out").exists()


def test_a_run_may_have_just_as_many_epochs_as_it_may_at_most(shard_folder):
    single = dataclasses.replace(PLAIN, rows=1, max_epochs=1.0)
    count = Feed(shard_folder, single).rows.sources[0].count
    Feed(shard_folder, dataclasses.replace(single, steps=count))
    with pytest.raises(LlmcurateError, match=r"epochs, over max_epochs 1"):
        Feed(shard_folder, dataclasses.replace(single, steps=count + 1))


def test_stages_must_add_up_to_the_steps():
    with pytest.raises(LlmcurateError, match="steps is 6, the stages have 5: set steps to 5"):
        dataclasses.replace(PLAIN, stages=(Stage(steps=5),))


def test_two_folders_of_one_name_need_names(shard_folder, other):
    both = (Source(shards=str(shard_folder), name="a"), Source(shards=str(other), name="a"))
    with pytest.raises(LlmcurateError, match="two sources are called a"):
        Feed(None, dataclasses.replace(PLAIN, sources=both))


def test_the_number_of_epochs_and_the_steps_that_fit_are_reported(shard_folder):
    single = dataclasses.replace(PLAIN, rows=1)
    count = Feed(shard_folder, single).rows.sources[0].count
    once = Feed(shard_folder, dataclasses.replace(single, steps=count)).notices()[-1]
    assert once == f"{count} steps read the corpus 1.0 times"
    few = Feed(shard_folder, dataclasses.replace(single, steps=1)).notices()[-1]
    assert few == f"1 step read {100 / count:.1f} % of the corpus"
    often = Feed(shard_folder, dataclasses.replace(single, steps=8 * count)).notices()[-1]
    assert often.startswith(f"{8 * count} steps read the corpus 8.0 times; over 4 times helps")
    assert often.endswith(f"--steps {4 * count} reads it 4 times")
