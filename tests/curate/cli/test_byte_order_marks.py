"""A byte order mark at the start of a text file, as Windows programs write it, changes nothing."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curate.cli.refresh import _entries
from curate.cli.tokenizer import _expressions
from curate.cli.training import _prompts
from curate.fetch.file_lists import read_list
from curate.filters.column import ColumnFilter
from curate.lab.scoring.llm_labels import prompt_text
from curate.steps.functions import names_in
from curate.steps.recipe import load
from llmcurate.base.disk.files import read_text
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.tokenize_kit.byte_bpe import train_bpe
from tokenize_kit.learn.training import read_template
from tokenize_kit.segment import read_dictionary
from tokenize_kit.tokenizer import Tokenizer
from train.evaluate.questions import are_questions, read_questions
from train.lab.scaling.fit import read as read_points
from train.lab.tasks.labelled import read_lines

QUESTION = '{"context": "a b", "continuation": " c"}\n'
POINTS = [{"parameters": 10**k, "tokens": 10**k, "loss": 5.0 - k} for k in (1, 2, 3)]
RANKS = b"".join(b"%s %d\n" % (base64.b64encode(bytes([b])), b) for b in range(256)).decode()


def questions(path: Path) -> Any:
    assert are_questions(path)
    return [vars(each) | {"where": ""} for each in read_questions(path)]


def kept_values(path: Path) -> Any:
    column = ColumnFilter(column="lang", keep=(f"@{path}",))
    column.open()
    return column._lists["keep"].to_pylist()


def tokenizer_json() -> str:
    return train_bpe(
        iter(["the cat"] * 9), vocab=270, digits="single", special_tokens=["<|endoftext|>"]
    ).to_str()


# name of the file: (content, its reader)
FILES: dict[str, tuple[str | Callable[[], str], Callable[[Path], Any]]] = {
    "prompts.txt": ("one\ntwo\n", _prompts),
    "prompts.jsonl": ('{"prompt": "one"}\n{"text": "two"}\n', _prompts),
    "questions.jsonl": (QUESTION, questions),
    "labelled.jsonl": ('{"text": "a"}\n', lambda path: list(read_lines(path))),
    "regex.txt": (r"\p{N}+" + "\n", _expressions),
    "template.jinja": ("{{ messages }}", read_template),
    "forget.txt": ("domain example.org\n", lambda path: _entries({}, (path,))),
    "recipe.yaml": ("steps:\n- c4\n", lambda path: load(path).steps),
    "settings.yaml": ("a: 1\n", lambda path: read_yaml(read_text(path), "x")[0]),
    "tokenizer_config.json": ('{"eos_token": "</s>"}', read_json),
    "tokenizer.json": (tokenizer_json, lambda path: Tokenizer(path).encode("the cat")),
    "trained.json": (tokenizer_json, lambda path: load_tokenizer(path).encode("the cat").ids),
    "ranks.tiktoken": (RANKS, lambda path: Tokenizer(path, "gpt2").encode("the cat")),
    "words.txt": ("กิน\nข้าว\n", lambda path: read_dictionary(path).words),
    "points.json": (json.dumps(POINTS), lambda path: read_points(path).points.loss.tolist()),
    "languages.txt": ("en\nde\n", kept_values),
    "list.txt": ("a\n", lambda path: read_list(str(path), None, "x", "y")),
    "judge.txt": ("Rate {text}", prompt_text),
    "search.txt": ("the river\n", read_text),
    "filter.py": ("def keep(text):\n    return True\n", names_in),
}


@pytest.mark.parametrize("name", FILES)
def test_a_byte_order_mark_is_passed_over(name, tmp_path):
    content, read = FILES[name]
    raw = (content if isinstance(content, str) else content()).encode()
    (tmp_path / name).write_bytes(raw)
    plain = read(tmp_path / name)
    assert plain
    (tmp_path / name).write_bytes(codecs.BOM_UTF8 + raw)
    assert read(tmp_path / name) == plain
