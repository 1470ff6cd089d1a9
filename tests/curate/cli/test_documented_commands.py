"""Command lines in README, docs and help: every option that they use exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.curate.cli.documented import mistake
from tests.curate.command_line import app_command

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_AT_ONCE = ("--install-completion", "--show-completion")  # by the parser; one writes to HOME
LINE = re.compile(r"^\s*(?:\$ )?(llmcurate [^|&>]+)|`(llmcurate [^`]+)`", re.M)


def command_lines(text: str) -> list[list[str]]:
    """The arguments of the command lines of a document, without comments."""
    lines = []
    for code, inline in LINE.findall(text):
        for line in (code or inline).replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                continue
            skipped = "NAME" in words or any(word in RUN_AT_ONCE for word in words)
            if words[:1] == ["llmcurate"] and len(words) > 1 and not skipped:
                lines.append([word for word in words[1:] if not word.startswith("[")])
    return lines


@pytest.mark.lab
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_documented_commands_are_there(
    document: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mistakes = {}
    for arguments in command_lines(document.read_text(encoding="utf-8")):
        if message := mistake(arguments, monkeypatch):
            mistakes[" ".join(arguments)] = message
    assert mistakes == {}


OURS = "curate|tokenize_kit|train|llmcurate|pipelines|benchmarks|scripts|tests|docs"
FILE = re.compile(rf"(?<![\w/.])((?:{OURS})/[\w/.-]*(?:\w/(?!\w)|\.(?:py|md|yaml|json|sh)\b))")
NOT_THERE = {  # of thai2transformers, Data-Juicer, trafilatura, ggml; of CONTRIBUTING's example
    *("scripts/clean_data.py", "docs/Distributed.md", "tests/evaluate.py", "docs/gguf.md"),
    *("curate/filters/capitals.py", "tests/curate/filters/test_capitals.py"),
    *("curate/formats/srt.py", "tests/curate/formats/test_srt.py"),
}


def missing(path: Path) -> set[str]:
    """The files and folders of ours that a text names and that are not there."""
    named = set(FILE.findall(path.read_text(encoding="utf-8"))) - NOT_THERE
    return {name for name in named if not (ROOT / name).exists()}


@pytest.mark.lab
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_files_that_documents_name_are_there(document: Path) -> None:
    assert missing(document) == set()


@pytest.mark.lab  # core names files of the lab, which may be hidden
@pytest.mark.parametrize("folder", sorted({*OURS.split("|")} - {"docs", "pipelines", "tests"}))
def test_files_that_modules_name_are_there(folder: str) -> None:
    names = {str(path): missing(path) for path in (ROOT / folder).rglob("*.py")}
    assert {path: gone for path, gone in names.items() if gone} == {}


LINK = re.compile(r"\]\(([^()\s:]*\.md)?(?:#([^()\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.lab
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for file, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        page = (document.parent / file).resolve() if file else document
        assert page.exists(), file
        assert not anchor or anchor in anchors(page), f"{file}#{anchor}"


@pytest.mark.lab
def test_examples_in_help_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [app_command()]
    examples = 0
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        for arguments in command_lines(command.help or ""):
            assert not mistake(arguments, monkeypatch), arguments
            examples += 1
    assert examples > 40


def test_a_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (arguments,) = command_lines("Use `llmcurate dedup corpus/ --verfy 0.8  # near copies`.")
    assert arguments == ["dedup", "corpus/", "--verfy", "0.8"]
    assert "--verfy" in mistake(arguments, monkeypatch)
