"""The step: labels, reasons, what decides a stage's name, the same bytes for any worker count."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.documents.documents import documents
from curate.products.language_model import LanguageModel
from curate.run.plan import plan_run
from curate.scoring.fasttext.model_file import read_header
from curate.scoring.language import model as native
from curate.scoring.language.identification import Language
from curate.steps.recipe import load, parse
from curate.text import languages
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.scoring.language.labelled_texts import (
    CHINESE,
    ENGLISH,
    GERMAN,
    corpus,
    labelled,
    rules,
)

TEXTS = [ENGLISH, GERMAN, CHINESE, "", None, " \n\t\0", "</s> __label__de"]
LABELS = ["en", "de", "zh", None, None, None, None]


def test_every_document_gets_its_label_and_score(model: Path) -> None:
    table = labelled(model, TEXTS).table
    assert table["lang"].to_pylist() == LABELS
    scores = table["language.score"].to_pylist()
    assert all(0.9 < s <= 1 for s in scores[:3])
    assert scores[3:] == [0, 0, 0, 0]
    assert table["language.iso639_3"].to_pylist() == ["eng", "deu", "zho", None, None, None, None]
    assert table["language.script"].to_pylist() == [None] * 7


def test_the_input_language_moves_to_language_declared(model: Path) -> None:
    step = Language(model=str(model))
    docs = documents({"text": [ENGLISH, GERMAN], "lang": ["en-GB", None]})
    table = step.apply(docs.within("language")).table
    assert table["lang"].to_pylist() == ["en", "de"]
    assert table["language.declared"].to_pylist() == ["en-GB", None]
    assert table.schema.field("lang").type == docs.table.schema.field("lang").type


def test_nothing_is_dropped_unless_asked_for(model: Path) -> None:
    assert not labelled(model, TEXTS).drops
    assert not labelled(model, []).drops


def test_keep_drops_other_labels_and_unclear_ones(model: Path) -> None:
    docs = labelled(model, [*TEXTS, "1 2 3"], keep=["eng"])
    marked = rules(docs)
    assert marked[0] == set()
    assert marked[1] == marked[2] == {"language"}
    assert marked[3] == {"language", "language_score"}
    assert "language_score" in marked[7]  # numbers are no language clearly
    rejected = docs.split()[1].to_pylist()
    assert [r["detail"] for r in rejected[:3]] == ["de", "zh", "no word"]
    assert [r["threshold"] for r in rejected[0]["reasons"]] == [None]
    assert rejected[2]["reasons"][1]["threshold"] == 0.65


def test_a_threshold_alone_drops_by_score_alone(model: Path) -> None:
    assert rules(labelled(model, TEXTS, threshold=0.5)) == [set()] * 3 + [{"language_score"}] * 4


def test_a_score_at_the_threshold_is_kept(model: Path) -> None:
    score = labelled(model, ["1 2 3"]).table["language.score"][0].as_py()
    assert rules(labelled(model, ["1 2 3"], threshold=score)) == [set()]
    assert rules(labelled(model, ["1 2 3"], threshold=score + 1e-9)) == [{"language_score"}]


def test_keep_and_an_explicit_zero_threshold_judge_by_label_alone(model: Path) -> None:
    assert rules(labelled(model, [ENGLISH, ""], keep=["en"], threshold=0)) == [set(), {"language"}]


def test_only_the_first_characters_count_where_asked(model: Path) -> None:
    text = ENGLISH + " " + 20 * GERMAN
    assert labelled(model, [text]).table["lang"].to_pylist() == ["de"]
    assert labelled(model, [text], max_chars=60).table["lang"].to_pylist() == ["en"]


@pytest.mark.parametrize("value", ["no", [False], False, ["no"]])
def test_yaml_no_means_norwegian_not_false(value: Any) -> None:
    assert Language(keep=value).keep == ("no",)


def test_junk_is_labelled_and_never_fails(model: Path) -> None:
    junk = ["\ufffd" * 50, "x" * 200_000, "a " * 100_000, "\0\0\0a\0", "🙂" * 10, "\r\n\v\f", "</s"]
    assert all(labelled(model, [text]).table.num_rows == 1 for text in junk)


def test_the_hash_is_of_the_model_that_counts(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_setting = Language(model=str(model)).identity()
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(model))
    assert Language().identity() == by_setting
    other = tmp_path / "other.bin"
    shutil.copyfile(model, other)
    data = bytearray(other.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(other))
    assert Language().identity() != by_setting


def test_a_resolved_recipe_finds_its_model_elsewhere_and_notices_another(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(model))
    resolved = Language().resolved()
    assert resolved["model"] is None
    assert len(resolved["model_sha256"]) == 64
    assert Language(**resolved).identity() == Language().identity()
    other = tmp_path / "other.bin"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(other))
    with pytest.raises(UsageError, match="differs from model_sha256"):
        Language(**resolved).identity()


def test_a_label_that_the_model_lacks_is_refused_at_once(model: Path) -> None:
    with pytest.raises(UsageError, match=r"language\.keep: the model has no label for 'pl'"):
        Language(model=str(model), keep=["pl"]).identity()


def test_labelling_needs_no_library(model: Path) -> None:
    code = """
import sys
sys.modules["fasttext_pybind"] = sys.modules["fasttext"] = None
from curate.documents.documents import documents
from curate.scoring.language.identification import Language
step = Language(model=sys.argv[1])
step.identity()
step.open()
print(step.apply(documents({"text": [sys.argv[2]]}).within("language")).table["lang"][0])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(model), GERMAN], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("de\n", "")


def test_training_without_the_library_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    with pytest.raises(RunFailed, match="needs fastText") as caught:
        LanguageModel().identity()
    assert "\n" not in str(caught.value)


def test_on_python_3_13_the_error_names_a_usable_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    monkeypatch.setattr(native.sys, "version_info", (3, 13, 0))
    with pytest.raises(RunFailed, match=r"no wheel for Python 3\.13: use Python 3\.10 to 3\.12"):
        native.need_library()


def test_loading_prints_nothing(model: Path) -> None:
    code = f"from curate.scoring.language.model import Model; Model({str(model)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow  # test_runs.py has it of other steps
def test_one_worker_and_two_give_the_same_bytes(bench: Any, model: Path) -> None:
    source = corpus(bench)
    steps = [{"language": {"model": str(model), "keep": ["en", "de"]}}]
    read = {"partition_bytes": 2000, "batch_rows": 7}
    bench.run(steps, source, out="one", workers=1, read=read)
    bench.run(steps, source, out="two", workers=2, read=read)
    assert bench.bytes_of("one") == bench.bytes_of("two")
    rows = bench.rows("one")
    assert {r["lang"] for r in rows} == {"en", "de"}
    assert {r["language.declared"] for r in rows} == {"xx"}
    assert {(r["rule"], r["detail"]) for r in bench.rows("one", "rejected")} == {
        ("language", "zh"),
        ("language", "no word"),
    }


def test_a_changed_model_or_environment_is_computed_anew(
    bench: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = corpus(bench, 5)
    own_model = tmp_path / "mine.bin"
    shutil.copyfile(model, own_model)
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(own_model))
    assert not bench.run(["language"], source).nothing_new
    assert bench.run(["language"], source).nothing_new
    data = bytearray(own_model.read_bytes())
    data[-1] ^= 1
    own_model.write_bytes(data)
    assert not bench.run(["language"], source).nothing_new
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(model))
    assert not bench.run(["language"], source).nothing_new
    assert bench.run(["language"], source).nothing_new


def test_the_report_shows_what_a_threshold_took_from_the_middle(bench: Any, model: Path) -> None:
    rows = [{"id": f"m{i}", "text": f"{i} {i * 7}"} for i in range(30)]
    bench.run(
        [{"language": {"model": str(model), "threshold": 1.0}}], bench.jsonl("in.jsonl", rows)
    )
    assert "Unsure languages" in (bench.folder / "out" / "report.html").read_text()


def test_the_environment_counts_in_the_parent(
    bench: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan holds the model's path, so that workers need not look for it."""
    source = corpus(bench, 1)
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(model))
    outcome = bench.run(["language"], source)
    folder = bench.folder / "out" / "stages" / outcome.stages[0].folder
    spec = json.loads((folder / "stage.json").read_text())
    assert spec["steps"][0]["settings"]["model"] == str(model)
    record = json.loads((bench.folder / "out" / "run.json").read_text())
    note = f"language: model {model} (by LLMCURATE_LID_MODEL), 10 labels"
    assert note in record["notices"]


def test_the_recipe_that_a_run_leaves_reuses_its_stage(
    bench: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = corpus(bench, 1)
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(model))
    bench.run([{"language": {"keep": ["en"]}}], source)
    again = load(str(bench.folder / "out" / "recipe.yaml"))
    first = parse('{"steps": [{"language": {"keep": ["en"]}}]}', "recipe.yaml")
    from curate.formats.inputs import plan_inputs

    inputs = plan_inputs([str(source)], first.read.partition_bytes)
    assert plan_run(again, inputs).digest == plan_run(first, inputs).digest


def test_labels_are_those_of_fasttext_for_every_text(ftz: Path, langid: Path) -> None:
    """Our preparation of the text against the library's own, on 45,549 texts in 161 languages."""
    with gzip.open(langid, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    plain = native.library().fasttext()
    plain.loadModel(str(ftz))
    lines = [text.replace("\n", " ") + "\n" for text in texts]
    wanted, scores = plain.multilinePredict(lines, 1, 0.0, "strict")
    table = labelled(ftz, texts).table
    labels = [f"__label__{label}" for label in table["lang"].to_pylist()]
    assert labels == [best[0] for best in wanted]
    measured = table["language.score"].to_numpy()
    assert np.abs(measured - [min(float(s[0]), 1.0) for s in scores]).max() < 1e-4


def test_every_lid_176_label_has_a_distinct_code(ftz: Path) -> None:
    """Three of them are none of ISO 639-3 today: `bih` and `nah` are ISO 639-2's collections, `eml`
    was given up in 2009."""
    iso_codes = [languages.iso639_3(label) for label in read_header(ftz).labels]
    assert all(code is not None and re.fullmatch("[a-z]{3}", code) for code in iso_codes)
    assert len(set(iso_codes)) == 176
