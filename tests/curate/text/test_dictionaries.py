"""Word dictionaries: their hashes are recorded, and a changed dictionary is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from curate.documents.documents import documents
from curate.filters.language_words import unspaced_tokens
from curate.steps.recipe import make_step
from curate.text import languages
from curate.text.languages import Profile, Source, dictionary_for, effective_words
from llmcurate.base.errors import UsageError

WORDS = ("แมว", "กิน", "ปลา", "และ", "นอน")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of Python's path with a list of Thai words, and no other dictionary."""
    folder = tmp_path / "wordsofthai"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('loaded')\n")
    (folder / "words.txt").write_text("\n".join(f"{w} 7 n" for w in WORDS), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    source = Source("wordsofthai", "words.txt", ("Thai",))
    monkeypatch.setattr(languages, "SOURCES", {"tha": source})
    return folder / "words.txt"


def test_auto_names_the_available_dictionaries_with_their_hashes(package: Path) -> None:
    words = effective_words("auto", ["tha", "jpn"])
    assert words.startswith("tha=") and len(words) == len("tha=") + 16
    assert effective_words(words, ["tha"]) == words
    assert effective_words("estimate", ["tha"]) == "estimate"
    assert effective_words("auto", ["jpn"]) == "estimate"


def test_another_list_than_the_run_had_is_refused(package: Path) -> None:
    words = effective_words("auto", ["tha"])
    package.write_text("แมว\n", "utf-8")
    languages._digest.cache_clear()
    with pytest.raises(UsageError, match="is not the list that the run used"):
        effective_words(words, ["tha"])
    with pytest.raises(UsageError, match=r"no dictionary for jpn: pip install"):
        dictionary_for("jpn", "jpn")


def test_words_are_those_of_the_list_and_what_it_lacks_stays_whole(package: Path) -> None:
    profile = Profile("th", clusters=4.0, words=effective_words("auto", ["tha"]))
    docs = documents({"text": ["แมวกินปลา และ ABC นอนฟหก", "", "แมว แมว"]})
    tokens, inside, per_word = unspaced_tokens(docs, profile)
    assert np.diff(tokens.rows).tolist() == [7, 0, 2] and per_word == 1
    assert inside.tolist() == [True] * 4 + [False] + [True] * 4
    assert tokens.chars.tolist() == [3, 3, 3, 3, 3, 3, 3, 3, 3]
    assert tokens.hash[0] == tokens.hash[7] == tokens.hash[8]
    assert len({*tokens.hash[:7].tolist()}) == 7


def test_the_effective_dictionary_is_in_the_stage_key_and_the_written_recipe(package: Path) -> None:
    step, estimate = make_step("gopher_quality", {}), {"words": "estimate"}
    assert step.identity().settings["words"].startswith("tha=")
    assert step.resolved()["words"].startswith("tha=")
    assert make_step("gopher_quality", estimate).identity() != step.identity()
