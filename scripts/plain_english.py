"""List sentences of the product that have to be read twice; fail above 3 %.

    python scripts/plain_english.py [FILE ...] [--all] [--count]

Read are docstrings, comments, messages of raised errors and texts of `help=`. Without FILE: the
files that the last commit or the working tree changed (`make lint` checks these), or the whole
product if there is no history or with --all. --count prints the last line alone. A flag is a reason
to read the sentence aloud: begin with a verb or a noun; write "if" for a condition, "after" for
time, "per" in units.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("llmcurate", "curate", "tokenize_kit", "train")
LIMIT = 0.03

OPENING = re.compile(
    r"(What|Which|How|Whether|Where|Whose|Whatever|Whichever|Whoever|Of (which|what|whom|those)"
    r"|(So|As) many|There (is|are|was)|Says|Told|Said)\b"
)
TURN = re.compile(
    r"\b("
    r"(bits|tokens|bytes|documents|words|letters|lines|steps|seconds?) an? "
    r"(byte|word|second|token|character|letter|document|page|core|step|line|minute|hour|day)"
    r"|(behind|out of|of) which|for which there|in the place of|so many(?! that)"
    r"|wh(oever|ichever|atsoever)|such a one|hardly|the like|of its own|of (ours|theirs)"
    r"|what (there|(is|was) (there|left))|where (there|one|nothing|none|no)"
    r"|(is|are|was|were) (none|some|told|said|put|gone|had)|says so|puts? it"
    r"|(stand|stands|stood) (in|there|beside|behind|before|twice)|as (it|they) stands?"
    r"|(go|goes|come|comes|came) (along|behind|about|off)|behind (it|them|each other|the others)"
    r"|no more(?! than| of| tha)|one (behind|after) the other|it is (told|said)|let(s|ting)? stay"
    r")\b"
)
IGNORED = re.compile(r"noqa|type: ignore|pragma|fmt:|https?://")


def sentences(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line number, kind and text of each docstring, comment, error message and help text."""
    source = path.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), "docstring", " ".join(text.split())
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield from _strings(node.exc.args[0], "message")
        elif isinstance(node, ast.keyword) and node.arg == "help":
            yield from _strings(node.value, "help")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not IGNORED.search(token.string):
            yield token.start[0], "comment", token.string.lstrip("# ")


def _strings(node: ast.expr, kind: str) -> Iterator[tuple[int, str, str]]:
    parts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    text = " ".join(part for part in parts if isinstance(part, str))
    if text:
        yield node.lineno, kind, " ".join(text.split())


def flagged(kind: str, text: str) -> str | None:
    """Return the words that make a sentence suspicious, or None."""
    found = OPENING.match(text) if kind in ("docstring", "help") else None
    found = found or TURN.search(text)
    return found.group() if found else None


def _git(*arguments: str) -> list[str] | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else None


def touched() -> list[Path]:
    """Return the product's files that the last commit or the working tree changed, or all files
    if there is no history to compare with."""
    names = _git("diff", "--name-only", "HEAD~1", "--", *PRODUCT)
    if names is None:
        return everything()
    names += _git("ls-files", "--others", "--exclude-standard", "--", *PRODUCT) or []
    paths = (ROOT / name for name in sorted(set(names)) if name.endswith(".py"))
    return [path for path in paths if path.is_file()]


def everything() -> list[Path]:
    """Return every Python file of the product."""
    return sorted(path for package in PRODUCT for path in (ROOT / package).rglob("*.py"))


def main(arguments: list[str] | None = None) -> int:
    """Print the suspicious sentences; return 1 if over 3 % of them, and more than one, are."""
    parser = argparse.ArgumentParser(description="List sentences that have to be read twice.")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--all", action="store_true", help="read every file of the product")
    parser.add_argument("--count", action="store_true", help="print the last line alone")
    options = parser.parse_args(arguments)
    paths = options.files or (everything() if options.all else touched())
    read = found = 0
    for path in paths:
        for line, kind, text in sentences(path):
            read += 1
            hit = flagged(kind, text)
            if hit:
                found += 1
                if not options.count:
                    print(f"{path}:{line}: {kind} [{hit}] {text[:150]}")
    print(f"plain English: {len(paths)} files, {read} sentences, {found} to read aloud")
    return int(found > max(1, LIMIT * read))


if __name__ == "__main__":
    raise SystemExit(main())
