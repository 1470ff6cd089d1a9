"""Conversations and pairs as training rows: what is learned, what is read, and what is left out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from llmcurate.base.errors import UsageError
from llmcurate.base.tokenizer_file import load_tokenizer
from tokenize_kit.learn.training import train_tokenizer
from train.config import TrainConfig
from train.data.chat import Chat as Template
from train.data.vocabulary import Vocabulary
from train.lab.objectives.answers import Answers, AnswersFeed, Targets, conversation_of
from train.lab.tasks.labelled import Line
from train.loop.pretrain import pretrain
from train.objective_settings import Chat, Pairs
from train.objectives.example import IGNORED, Draws

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TALK = [
    {"role": "user", "content": "where is the cat?"},
    {"role": "assistant", "content": "on the mat"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("model")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    train_tokenizer(["where is the cat? on the mat " * 9], out, vocab=300, special_tokens=special)
    (out / "chat_template.jinja").write_text(CHATML)
    return out


def feed_of(tmp_path: Path, model: Path, objective, records, context=64) -> AnswersFeed:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    settings = TrainConfig(objective=objective, context=context, packing="best-fit", held_out=0.01)
    return AnswersFeed(path, settings, model / "tokenizer.json")


def rows_of(feed: AnswersFeed, objective, context: int):
    rows = feed._rows(next(iter(feed.shards)), context, "best-fit")
    return [
        objective.example(rows.pieces(number), context, Draws(0, 0)) for number in range(rows.count)
    ]


def test_rows_learn_the_answers_alone_and_read_whole_conversations(tmp_path, model):
    asked = ("where is the cat?", "the cat?", "where?", "is it on the mat?")
    talks = [[{"role": "user", "content": text}, TALK[1]] for text in asked]
    feed = feed_of(tmp_path, model, Chat(), [{"messages": talk} for talk in talks])
    template = Template(model / "tokenizer.json")
    seen = 0
    for row in rows_of(feed, Answers(Chat(), Vocabulary(size=300)), 64):
        targets, documents = row.targets[0].numpy(), row.documents[0].numpy()
        for document in sorted(set(documents.tolist()) - {-1}):
            ids, said = template.encode(talks[document])
            own, read = targets[documents == document], row.inputs[0].numpy()[documents == document]
            assert own[own != IGNORED].tolist() == ids[said].tolist()
            assert read.tolist() == ids[:-1].tolist()[: len(read)]
            text = template.tokenizer.decode(ids[said].tolist(), skip_special_tokens=False)
            assert text == "on the mat<|im_end|>"
            seen += 1
    assert seen == 3  # one is held out


def test_an_encoder_reads_the_source_and_the_decoder_learns_the_target(tmp_path, model):
    sources, asked = ["the cat", "where", "is it"], Pairs(form="encoder-decoder")
    records = [{"source": source, "target": "on the mat"} for source in sources]
    feed = feed_of(tmp_path, model, asked, records)
    tokenizer = Template(model / "tokenizer.json").tokenizer
    end = tokenizer.token_to_id("<|endoftext|>")
    target = tokenizer.encode("on the mat").ids
    seen = 0
    for row in rows_of(feed, Targets(asked, Vocabulary(size=300)), 64):
        for document in sorted(set(row.documents[0].tolist()) - {-1}):
            read = row.source[row.source_documents == document].tolist()
            assert read == [*tokenizer.encode(sources[document]).ids, end]
            assert row.targets[row.documents == document].tolist() == [*target, end]
            seen += 1
    assert seen == 2


def test_a_model_without_a_template_gets_a_plain_one(tmp_path, model):
    base, first, second = (tmp_path / name for name in ("base", "first", "second"))
    shutil.copytree(model, base, ignore=lambda *_: ["chat_template.jinja"])
    settings = TrainConfig(
        objective=Chat(), context=32, steps=1, warmup=1, rows=1, held_out=0.1, device="cpu"
    )
    talks = tmp_path / "talks.jsonl"
    asked = [[{**TALK[0], "content": f"where is {k}?"}, TALK[1]] for k in range(40)]
    talks.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in asked))
    size = {"layers": 1, "hidden": 32, "attention.heads": 2, "attention.kv_heads": 2}
    notices: list[str] = []
    tokenized = replace(settings, tokenizer=str(base))
    pretrain(talks, first, changes=size, train=tokenized, on_notice=notices.append)
    assert any("no chat template: a plain one is written" in line for line in notices)
    pretrain(talks, second, model=str(first), train=settings)  # it has the template now
    written = [(folder / "chat_template.jinja").read_bytes() for folder in (first, second)]
    assert written[0] == written[1]
    template = Template(second / "tokenizer.json")
    ids, said = template.encode(TALK)
    prompt, _ = template.encode(TALK[:1], prompt=True)
    texts = [
        template.tokenizer.decode(part.tolist(), skip_special_tokens=False)
        for part in (ids, prompt, ids[said])
    ]
    assert texts == [
        "user:\nwhere is the cat?<|endoftext|>\nassistant:\non the mat<|endoftext|>\n",
        "user:\nwhere is the cat?<|endoftext|>\nassistant:\n",
        "on the mat<|endoftext|>",
    ]
    assert template.ending == template.tokenizer.token_to_id("<|endoftext|>")


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"messages": []}, "messages must be a list"),
        ({"messages": ["hi"]}, "a message needs role and content"),
        ({"messages": [{"role": "user"}]}, "a message needs role and content"),
        ({"messages": [{"role": "user", "content": 3}]}, "content must be a text"),
        ({"text": "hi"}, "messages must be a list"),
        ({"conversations": [{"from": "gpt"}]}, "a message needs role and content"),
        ({"conversations": [{"from": ["gpt"], "value": "a"}]}, "role must be a text"),
        ({"messages": [*TALK, {"role": "assistant", "tool_calls": "f()"}]}, "tool_calls must be"),
        ({"messages": TALK, "tools": "find"}, "tools must be a list of JSON schemas"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}, TALK[1]]},
            "content has a part of type image: only text is read",
        ),
    ],
)
def test_a_wrong_record_is_named_by_its_line(record, line, tmp_path, model):
    with pytest.raises(UsageError, match=rf"records\.jsonl:2: {line}"):
        feed_of(tmp_path, model, Chat(), [{"messages": TALK}, record])


def test_conversations_of_sharegpt_are_read_as_messages():
    speakers = {"user": "human", "assistant": "gpt"}
    shared = [{"from": speakers[one["role"]], "value": one["content"]} for one in TALK]
    for talk in (shared, TALK):
        assert conversation_of(Line(1, {"conversations": talk})) == (TALK, None)
    system = [{"from": "system", "value": "Be brief."}]
    assert conversation_of(Line(1, {"conversations": system}))[0][0]["role"] == "system"


def test_calls_of_tools_are_read_as_other_programs_write_them():
    """Arguments and tools as JSON text or as objects; fields of null, as a table has them."""
    called = {"type": "function", "function": {"name": "find", "arguments": {"what": "cat"}}}
    schema = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    as_text = {**called, "function": {**called["function"], "arguments": '{"what": "cat"}'}}
    for call, tools in ((called, schema), (as_text, json.dumps(schema))):
        said = {"role": "assistant", "content": None, "tool_calls": [call], "name": None}
        line = Line(1, {"messages": [TALK[0], said], "tools": tools})
        mended = {"role": "assistant", "content": "", "tool_calls": [called]}
        assert conversation_of(line) == ([TALK[0], mended], schema)


def test_calls_that_the_template_does_not_write_are_refused_and_the_plain_one_writes_them(
    tmp_path, model
):
    call = {"type": "function", "function": {"name": "find", "arguments": {"what": "cat"}}}
    talk = [TALK[0], {"role": "assistant", "content": "", "tool_calls": [call]}]
    talk[0] = {"role": "user", "content": [{"type": "text", "text": TALK[0]["content"]}]}
    record = {"messages": talk, "tools": [{"name": "find"}]}
    with pytest.raises(UsageError, match=r"records\.jsonl:1: the chat template .* tool_calls"):
        feed_of(tmp_path, model, Chat(), [record])
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (plain / name).write_bytes((model / name).read_bytes())
    feed = feed_of(tmp_path, plain, Chat(), [record], context=300)
    (shards,) = feed.shards.values()
    read = load_tokenizer(plain / "tokenizer.json").decode(shards.tokens[0].tolist(), False)
    assert read == (
        'tools:\n[{"name": "find"}]<|endoftext|>\nuser:\nwhere is the cat?<|endoftext|>\n'
        'assistant:\n{"name": "find", "arguments": {"what": "cat"}}<|endoftext|>\n'
    )


def test_records_without_an_answer_in_reach_are_counted(tmp_path, model):
    long = [{"role": "user", "content": "where is the cat? " * 90}, TALK[1]]
    feed = feed_of(tmp_path, model, Chat(), [{"messages": talk} for talk in (TALK, TALK[:1], long)])
    notes = " ".join(next(iter(feed.shards.values())).notes)
    assert "3 records, 1 longer than the context and cut, 2 left out" in notes
