"""`scripts/plain_english.py` finds sentences that have to be read twice, and fails above 3 %."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/plain_english.py"
spec = importlib.util.spec_from_file_location("plain_english", SCRIPT)
plain_english = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain_english)


@pytest.mark.parametrize(
    "kind, text",
    [
        ("docstring", "Whether a file is complete."),
        ("docstring", "So many rows fit into a batch."),
        ("docstring", "Return what is left of a text."),
        ("comment", "the index stands beside the file"),
        ("message", "a run where nothing was kept"),
        ("help", "bits a byte"),
    ],
)
def test_a_sentence_that_is_read_twice_is_flagged(kind, text):
    assert plain_english.flagged(kind, text)


@pytest.mark.parametrize(
    "kind, text",
    [
        ("docstring", "Return True if the file is complete."),
        ("docstring", "The index: one row per document."),
        ("comment", "What a comment begins with is free."),
        ("help", "Print bits per byte; keep at most 100 documents."),
    ],
)
def test_a_plain_sentence_is_not_flagged(kind, text):
    assert plain_english.flagged(kind, text) is None


def write(path, plain, odd):
    lines = [f"# sentence {n} is plain" for n in range(plain)] + ["# it stands beside it"] * odd
    path.write_text("\n\n".join(lines) + "\n")


@pytest.mark.parametrize("plain, odd, code", [(97, 3, 0), (96, 4, 1), (9, 1, 0), (8, 2, 1)])
def test_three_percent_flagged_pass_and_one_sentence_in_any_file(tmp_path, plain, odd, code):
    write(tmp_path / "a.py", plain, odd)
    assert plain_english.main([str(tmp_path / "a.py"), "--count"]) == code


def test_docstrings_comments_messages_and_help_are_read(tmp_path):
    function = 'def f(x=option(help=f"A {1} b.")):\n    # why\n    raise E(f"no {1} x")\n'
    (tmp_path / "a.py").write_text(f'"""Module."""\n\n\n{function}')
    found = [(kind, text) for _, kind, text in plain_english.sentences(tmp_path / "a.py")]
    assert sorted(found) == [
        ("comment", "why"), ("docstring", "Module."), ("help", "A b."), ("message", "no x"),
    ]  # fmt: skip


def git(folder, *arguments):
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def test_without_a_file_the_files_of_the_last_change_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    (tmp_path / "train").mkdir()
    for name in ("old", "last", "now"):
        write(tmp_path / f"train/{name}.py", 2, 0)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "train/old.py", "train/now.py")
    git(tmp_path, "commit", "-qm", "first")
    everything = plain_english.touched()
    assert [path.stem for path in everything] == ["last", "now", "old"], "no history: all of it"
    git(tmp_path, "add", "train/last.py")
    git(tmp_path, "commit", "-qm", "second")
    write(tmp_path / "train/now.py", 3, 0)
    write(tmp_path / "train/new.py", 3, 0)
    assert [path.stem for path in plain_english.touched()] == ["last", "new", "now"]
