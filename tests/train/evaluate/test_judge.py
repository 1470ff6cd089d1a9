"""A model judged from a run's folder and, exported, from one of transformers'."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import MODEL
from tests.train.loop.small_runs import build, trained
from train.data.shards import read_shards
from train.evaluate.judge import judge, open_model
from train.evaluate.questions import read_questions
from train.hf.export import export


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory):
    model = build(replace(MODEL, context=64))
    tokenizer = read_shards(shard_folder).tokenizer
    return trained(tmp_path_factory.mktemp("run"), model, tokenizer)


@pytest.fixture
def quiz(tmp_path):
    path = tmp_path / "quiz.jsonl"
    lines = [{"context": "the cat", "continuation": [" sat", " ran."][n % 2]} for n in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_a_run_and_its_export_have_the_same_scores(run, shard_folder, quiz, tmp_path):
    export(run, tmp_path / "hf")
    figures = [
        judge(
            open_model(folder, device="cpu"),
            texts={"same": shard_folder},
            questions={"quiz": read_questions(quiz)},
        )
        for folder in (run, tmp_path / "hf")
    ]
    texts, exported = (one.texts["same"] for one in figures)
    assert texts.bits_per_byte == pytest.approx(exported.bits_per_byte, rel=1e-6)
    low, high = texts.bits_per_byte_interval
    assert low < texts.bits_per_byte < high
    assert texts.documents == 40
    assert figures[0].questions["quiz"]["questions"] == 4
    assert figures[1].questions["quiz"]["log_likelihood"] == pytest.approx(
        figures[0].questions["quiz"]["log_likelihood"], rel=1e-5
    )


def test_a_text_of_transformers_folder_begins_with_its_first_token(run, tmp_path):
    hf = tmp_path / "hf"
    export(run, hf)
    end = json.loads((hf / "config.json").read_bytes())["eos_token_id"]
    for name in ("config.json", "generation_config.json"):
        values = json.loads((hf / name).read_bytes())
        (hf / name).write_text(json.dumps(values | {"bos_token_id": 7}))
    assert open_model(hf, device="cpu").begin == end != 7  # its tokenizer puts it before a text
    shutil.copyfile(run / "tokenizer.json", hf / "tokenizer.json")  # it puts nothing there
    assert open_model(hf, device="cpu").begin == 7
    assert open_model(run, device="cpu").begin == end


def test_a_context_beyond_the_model_s_and_shards_of_another_tokenizer_are_refused(
    run, shard_folder, small_tokenizer, tmp_path
):
    judged = open_model(run, device="cpu")
    with pytest.raises(LlmcurateError, match="context is 65, the model's is 64"):
        judge(judged, texts={}, questions={}, context=65)
    other = replace(judged, tokenizer_file=small_tokenizer)
    with pytest.raises(LlmcurateError, match="encoded by another tokenizer"):
        judge(other, texts={"x": shard_folder}, questions={})
