"""Python blocks of the docs run unchanged, on folders that the documented commands write."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from curate.documents.documents import documents
from curate.steps.recipe import parse

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
SENTENCES = [f"The {word} river runs past the old mill." for word in ("slow", "wide", "cold")]


def code_of(page: Path) -> list[str]:
    """The blocks of Python in a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "<docs>", "exec"), names)
    return names


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of documents, in the folder that commands work in."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": str(n), "url": f"https://a.test/{n}", "text": f"{SENTENCES[n % 3]} {n}"}
        for n in range(30)
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.lab
def test_functions_of_the_user_drop_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = code_of(DOCS / "recipes.md")[0]
    Path("my_rules.py").write_text(code, encoding="utf-8")
    page = (DOCS / "recipes.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```yaml\n(steps:\n  - extract\n  - python:.*?)```", page, re.S)
    _, keep, digits, long_enough = parse(recipe, "r.yaml").steps
    texts = ["word " * 50, "short", "1234 " * 50, "Wörter " * 40]
    langs = ["en", "en", "en", "de"]
    docs = documents({"id": list("abcd"), "text": texts, "lang": langs})
    dropped = []
    for step in (keep, digits, long_enough):
        _, rejected = step.apply(docs.within("python")).split()
        ids, rules = rejected["id"].to_pylist(), rejected["rule"].to_pylist()
        dropped.append(dict(zip(ids, rules, strict=True)))
    assert dropped == [
        {"b": "too_short", "d": "keep"},
        {"c": "too_high"},
        {"b": "long_enough"},
    ]


def test_a_step_of_the_user_drops_long_documents() -> None:
    code = code_of(DOCS / "recipes.md")[1]
    step = run(code)["MaxChars"](limit=5)
    docs = documents({"id": ["a", "b"], "text": ["short", "longer"]})
    kept, rejected = step.apply(docs.within("max_chars")).split()
    assert kept["id"].to_pylist() == ["a"] and rejected["id"].to_pylist() == ["b"]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("fasttext") is None:
        pytest.skip("no fasttext for this Python")
    from curate.demo.language import train_demo_model

    return train_demo_model(tmp_path_factory.mktemp("language"), quiet=True)


@pytest.mark.slow  # the example of the README is the small one
def test_the_page_on_python_runs_from_top_to_bottom(
    language_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(language_model))
    names: dict[str, Any] = {}
    for code in code_of(DOCS / "python.md"):
        if file := re.match(r"# (\w+\.py)\n", code):
            Path(file[1]).write_text(code, encoding="utf-8")
        else:
            exec(compile(code, "<docs>", "exec"), names)
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    assert f"```yaml\n{names['corpus'].recipe}```" in page
    assert f"{names['web'].documents} pages" in page
    (beginning,) = re.findall(r"```\n(read 353 .*)\n", page)
    assert repr(names["result"]).startswith(beginning)
    kept, rejected = names["kept"], names["by_rule"]
    assert len(kept) == len(names["lengths"]) == names["result"].counts["kept"] > 50
    assert sum(n for _, _, n in names["counts"]) == len(rejected)
    assert names["why"].status == "rejected"
    assert names["out"].counts["read"] == 100 and names["model"].card["steps"] == 2
    assert names["calm"].recipe.steps[-1].name == "python"


def test_the_example_of_the_readme_runs(
    language_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate.demo.web import build_web

    (code,) = code_of(ROOT / "README.md")
    assert len(code.splitlines()) <= 8
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLMCURATE_LID_MODEL", str(language_model))
    build_web(Path("crawl"))
    frame = run(code)["frame"]
    assert {"id", "text"} <= set(frame.columns) and len(frame) > 50


def test_the_page_on_encoding_gives_ids_and_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenize_kit.learn.training import train_tokenizer

    monkeypatch.chdir(tmp_path)
    train_tokenizer(SENTENCES * 9, Path("tok"), vocab=300)
    (code,) = code_of(DOCS / "tokenizers" / "encoding.md")
    names = run(code)
    assert names["text"] == "Any text, and <|endoftext|> is text too."
    assert len(names["rows"]) == 100_000


def test_every_block_of_python_is_run_by_a_test() -> None:
    pages = {page.name for page in DOCS.rglob("*.md") if code_of(page)}
    others = {"recipes.md", "python.md", "tutorial.md", "own-layers.md"}
    others |= {"migrate.md"}  # whose pipeline.py is read by a command of the page
    others |= {"training.md"}  # its tasks: tests/train/evaluate/test_harness.py
    assert pages == others | {"encoding.md"}
