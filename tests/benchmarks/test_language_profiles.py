"""Profiles of a script: words by share, end marks, limits by the percentiles of English."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from benchmarks.language_profiles import Counts, learned, limit_of, main, text_of
from curate.documents.documents import documents
from curate.documents.limits import Limit
from curate.scoring.language import identification
from curate.steps.recipe import make_step
from curate.text.languages import read

SMALL = "de het een van en in is dat op te".split()
LONG = "verkeersveiligheidsverordening arbeidsongeschiktheidsverzekering kabinet minister".split()


def dutch(number: int) -> str:
    draw = random.Random(number)
    lines = []
    for _ in range(12):
        words = [draw.choice(SMALL if k % 2 else LONG) + ("" if k % 2 else str(draw.randint(0, 99)))
                 for k in range(10)]  # fmt: skip
        lines.append(" ".join(words) + (".»" if number % 4 else "."))
    return "\n".join(lines)


class NoModel:
    """In place of the step language: it is as sure of every text."""

    def apply(self, docs: Any) -> Any:
        return docs.annotate("score", np.full(len(docs), 0.75))


def test_a_learned_profile_can_be_read_and_keeps_texts_of_its_language(tmp_path: Path) -> None:
    rows = [{"id": str(i), "text": dutch(i), "lang": "nl"} for i in range(60)]
    rows += [{"id": "x", "text": "Ein Satz.", "lang": "de"}]
    entries, passed = learned(lambda: [pa.RecordBatch.from_pylist(rows)], NoModel())
    assert passed == ["no profile of de: 1 document, fewer than 50"]
    (tmp_path / "profiles.yaml").write_text(text_of(entries), "utf-8")
    assert list(read(tmp_path)) == ["nld"]
    profile = read(tmp_path)["nld"]
    assert set(profile.stop_words) <= set(SMALL) and set(profile.end_marks) == set(".»")
    assert profile.limits["language"]["threshold"] == 0.75
    assert profile.limits["gopher_quality"]["max_word_length"] > 10
    docs = documents({"text": [dutch(99)], "lang": ["nld_Latn"]}).within("gopher_quality")
    kept = make_step("gopher_quality", {"profile": str(tmp_path)}).apply(docs)
    lost = make_step("gopher_quality", {}).apply(docs)
    assert not kept.drops and {d.rule for d in lost.drops} >= {"long_words", "stop_words"}


def test_the_script_reads_files_and_prints_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"body": dutch(i)}) + "\n" for i in range(3)), "utf-8")
    monkeypatch.setattr(identification, "Language", lambda **_: NoModel())
    options = ["--text-column", "body", "--lang", "nl", "--min-documents"]
    monkeypatch.setattr(sys, "argv", ["", str(texts), *options, "3"])
    assert main() == 0
    printed = capsys.readouterr()
    assert list(yaml.safe_load(printed.out)) == ["nl"]
    assert printed.err == "read 3 documents, 0 rejected, 0 corrupt\n"
    monkeypatch.setattr(sys, "argv", ["", str(texts), *options, "4"])
    assert main() == 1 and capsys.readouterr().out == ""
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "none")])
    assert main() == 2 and "none" in capsys.readouterr().err


def test_stop_words_are_the_most_frequent_until_they_have_their_share() -> None:
    counts = Counts()
    text = "Zu " * 90 + " ".join(f"w{i} " * (40 - i) for i in range(30))
    counts.add(documents({"text": [text]}))
    assert counts.stop_words(0.0) == [f"w{i}" for i in range(8)]
    share = counts.share(f"w{i}" for i in range(12))
    assert counts.stop_words(share) == [f"w{i}" for i in range(12)]
    assert len(counts.stop_words(1.0)) == 24


def test_a_language_limit_drops_the_share_that_the_english_limit_drops_and_is_never_stricter() -> (
    None
):
    over = Limit("long_words", "word_length", "max_word_length", 10, above=True)
    values = np.linspace(0, 20, 1001)
    assert limit_of(over, values, [0.01, 5, 1]) == pytest.approx(19.8)
    assert limit_of(over, values / 4, [0.01, 5, 1]) == 10
    # Next to none beyond: as many standard deviations from the mean.
    assert limit_of(over, np.array([8.0, 8.2, 7.8]), [0.0, 5, 1]) == pytest.approx(16.0)
    share = Limit("duplicate_lines", "duplicate_lines", "max_duplicate_lines", 0.3, above=True)
    assert limit_of(share, np.full(50, 0.95), [0.05, 0.1, 0.1]) == 0.75
    marks = Limit("end_marks", "end_marks", "min_end_marks", 0.12, above=False)
    assert limit_of(marks, np.full(50, 0.05), [0.03, 0.5, 0.3]) == 0
    assert limit_of(marks, np.linspace(0, 1, 50), [0.03, 0.5, 0.3]) == 0.06


def test_the_written_profile_file_reads_back_as_the_same_entries() -> None:
    entries = {
        "no": {"stop_words": ["og", "no", "1"], "end_marks": '."\\', "limits": {"x": {2: 1}}}
    }
    assert yaml.safe_load(text_of(entries)) in (entries, {False: entries["no"]})
