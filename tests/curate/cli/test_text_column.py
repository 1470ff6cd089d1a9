"""--text-column and --split on every command that reads documents."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmcurate import Corpus, run_recipe
from tests.curate.command_line import app_command
from tests.parameters import mostly_slow

ADVICE = "no column text; the files have content (string), id (int64): give --text-column content"
ROWS = [
    {"content": f"Number {n} is a text of the river, and it has words.\n" * 3, "id": n}
    for n in range(6)
]
# Commands that read no documents: what they take has no column of texts.
OTHERS = (
    """
init, migrate, fetch, extract-eval, predict, generate, which, import, explain, whatif,
browse, verify, check, search, recipes, steps, schema, warmup, demo, forget, dedup clusters,
perplexity score, perplexity convert, model show, model list, scaling run,
scaling fit, scaling plan
""".replace("\n", " ")
    .strip()
    .split(", ")
)


@pytest.fixture(params=mostly_slow(["jsonl", "parquet", "csv"], 2))
def source(request, tmp_path: Path) -> Path:
    """Six documents whose text is in `content`."""
    path = tmp_path / f"in.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif request.param == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["content", "id"])
            writer.writeheader()
            writer.writerows(ROWS)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def leaves(command: Any, *names: str) -> dict[str, Any]:
    """The commands of a group by the words that call them."""
    commands = getattr(command, "commands", None)
    if commands is None:
        return {" ".join(names): command}
    return {
        name: leaf
        for key, sub in commands.items()
        for name, leaf in leaves(sub, *names, *([] if key == "default" else [key])).items()
    }


def test_every_command_that_reads_documents_takes_a_text_column_and_a_split():
    for name, command in leaves(app_command()).items():
        if hasattr(command, "offer"):
            command.offer([])
        options = {option for parameter in command.params for option in parameter.opts}
        takes = {"--text-column", "--split", "--config"} & options
        assert len(takes) == (0 if name in OTHERS else 3), name


@pytest.mark.parametrize(
    "option", [["--text-column", "content"], ["--set", "read.columns.text=content"]]
)
def test_a_text_column_is_named_by_an_option_or_a_dotted_key(bench, source, option):
    line = ["filter", "document_length", source, "-o", "out", *option]
    kept = bench.command(*line, "--set", "document_length.min=1")
    assert "kept 6 documents" in kept.stdout
    text = pq.read_table(bench.folder / "out/corpus")["text"][0].as_py()
    assert text == ROWS[0]["content"]


def test_without_it_the_columns_and_the_option_are_named(bench, source):
    result = bench.command("filter", "document_length", source, "-o", "out")
    said = (result.stdout.splitlines() or [result.stderr])[0]
    assert ADVICE.replace("int64", "string" if source.suffix == ".csv" else "int64") in said
    assert result.returncode == (0 if source.suffix == ".jsonl" else 2)


def test_stats_and_mix_ask_for_the_text_column_or_use_the_given_one(bench, source):
    refused = bench.command("stats", source)
    assert refused.returncode and "give --text-column content" in refused.stderr
    assert "6 documents" in bench.command("stats", source, "--text-column", "content").stdout
    mixed = bench.command("mix", source, "--text-column", "content", "-o", "mixed")
    assert "6 documents" in mixed.stdout
    recipe = bench.folder / "own.yaml"
    recipe.write_text("steps: [{document_length: {min: 1}}]\n")
    grown = bench.command("refresh", recipe, source, "-o", "home", "--text-column", "content")
    assert "6 documents read" in grown.stdout


def test_a_corpus_of_ours_keeps_its_text_beside_inputs_of_another_name(bench, source):
    bench.command("dedup", source, "-o", "kept", "--text-column", "content", "--key", "url")
    both = bench.command("stats", "kept", source, "--text-column", "content", "--json")
    assert json.loads(both.stdout)["documents"] == 12


def test_python_takes_a_text_column_too(bench, source):
    result = Corpus.read(source, text_column="content").filter("document_length", min=1)
    assert result.run(bench.folder / "a", quiet=True).counts["kept"] == 6
    recipe = bench.folder / "own.yaml"
    recipe.write_text("steps: [{document_length: {min: 1}}]\n")
    ran = run_recipe(recipe, source, bench.folder / "b", quiet=True, text_column="content")
    assert ran.counts["kept"] == 6
