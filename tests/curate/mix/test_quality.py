"""Epochs by buckets of a score, as a publication has them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from curate.mix.settings import Quality, buckets
from llmcurate.base.errors import UsageError


def test_the_forms_of_the_command_line_and_what_excludes_each_other():
    assert Quality(**buckets("d.cluster_size:fineweb2")).epochs == (1, 2, 3, 5, 8, 1)
    preset = Quality(column="b", preset="fineweb2")
    assert Quality(**preset.model_dump()) == preset  # as OUT/recipe.yaml has it
    for wrong in ({"preset": "fineweb2", "epochs": [1, 2]}, {}):
        with pytest.raises(ValidationError, match="give"):
            Quality(column="b", **wrong)
    with pytest.raises(UsageError, match="fineweb2"):
        buckets("b")


def test_the_fineweb2_preset_repeats_documents_by_their_cluster_size(bench):
    words = "abcdefghijklmnopqrstuvwxyz"
    copies = {"a": 1, "b": 2, "c": 4, "d": 6}
    rows = [
        {"id": f"{letter}{n}", "text": " ".join(letter + w for w in words) + " end" * (n == 0)}
        for letter, count in copies.items()
        for n in range(count)
    ]
    bench.jsonl("in.jsonl", rows)
    mix = {
        "unit": "documents",
        "quality": {"column": "dedup_minhash.cluster_size", "preset": "fineweb2"},
    }
    bench.run(["dedup_minhash", {"mix": mix}], bench.folder / "in.jsonl")
    kept = {row["id"]: row["dedup_minhash.cluster_size"] for row in bench.rows()}
    assert kept == {f"{letter}0": count for letter, count in copies.items()}
    assert sorted(bench.ids(kind="mix")) == ["a0", "b0", "b0", *["c0"] * 3, *["d0"] * 5]
