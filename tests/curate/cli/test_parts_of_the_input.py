"""--limit and --share on every command that reads documents."""

from __future__ import annotations

import json

import pytest
import typer

from curate.cli.app import whole_app

# Parameters that take documents.
DOCUMENTS = {"inputs", "corpus", "on", "positive", "negative", "verify"}
OTHERWISE = {
    "mix": "--total and --amount say how much of which source",
    "mix search": "--tokens says how much small models read",
    "refresh": "it takes all that is new; --set read.share works, by id",
    "dedup audit": "a part of a corpus holds fewer of its duplicates",
    "extract-eval": "the pages whose main text is known, by name",
    "evaluate": "texts are measured on whole; --tokens says how much of them",
    "pretrain": "texts are measured on whole; documents come as shards",
    "model rope-search": "texts are measured on whole; --rows says how much of them",
    "compare": "corpora are compared whole; --set read.share=0.1 is for all recipes",
    "demo": "it makes its own web",
}


def commands(command, names=()):
    """(name, command) of every command below a group."""
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*names, name))
    if not getattr(command, "commands", None):
        yield " ".join(name for name in names if name != "default"), command


COMMANDS = dict(commands(typer.main.get_command(whole_app())))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_reads_documents_has_limit_and_share(name):
    command = COMMANDS[name]
    if hasattr(command, "offer"):
        command.offer([])
    parameters = command.params
    takes = DOCUMENTS & {parameter.name for parameter in parameters}
    options = {option for parameter in parameters for option in parameter.opts}
    assert name in OTHERWISE or not takes or {"--limit", "--share"} <= options
    assert name not in OTHERWISE or "--share" not in options, "it is no exception any more"


QUALITY = "quality/quality.bin"
SETS = ("--positive", "in.jsonl", "--negative", "in.jsonl")
SMALL = ("--dim", "8", "--bucket", "2000")  # else it has two million rows of a hundred
MEASURE = {
    ("tokenizer", "study", "in.jsonl", "--vocab", "300"): lambda figures: figures["read"],
    ("quality", "threshold", QUALITY, "in.jsonl", "--keep-fraction", "0.5"): lambda f: f[
        "documents"
    ],
    ("quality", "evaluate", QUALITY, *SETS): lambda f: f["read"]["negative"]["read"],
}


@pytest.fixture(scope="module")
def trained(shared_bench, make_pages):
    """The folder with documents and a classifier that was trained on the first of them."""
    shared_bench.jsonl("in.jsonl", make_pages(200))
    pytest.importorskip("fasttext_pybind")
    done = shared_bench.command(
        "quality", "train", *SETS, *SMALL, "--limit", "50", "-o", "quality", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trained"]["cc"] <= 50
    return shared_bench


@pytest.mark.lab
@pytest.mark.parametrize("command", MEASURE, ids=lambda words: " ".join(words[:2]))
def test_measuring_commands_respect_limit_and_share(trained, command):
    read = MEASURE[command]
    first = trained.command(*command, "--limit", "50", "--json")
    assert first.returncode == 0, first.stderr
    assert read(json.loads(first.stdout)) == 50
    some = trained.command(*command, "--share", "0.5", "--json")
    assert 50 < read(json.loads(some.stdout)) < 150
    wrong = trained.command(*command, "--share", "2", "--json")
    assert wrong.returncode == 2 and "share" in wrong.stderr
