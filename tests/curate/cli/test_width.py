"""The output of every command fits the terminal, and no word is broken."""

from __future__ import annotations

import functools
import io
import json
import random
import re
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from curate.cli.app import invoke
from curate.demo.web import build_web
from llmcurate.base.index import declared
from llmcurate.base.terminal import WORDS
from tests.curate.command_line import app_command
from tests.parameters import few

for _library in ("torch", "fasttext_pybind"):
    pytest.importorskip(_library)
pytestmark = pytest.mark.lab
WIDTHS = (60, 80, 120)
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# The commands of the index, each with lines that run in the folder of the tests; {w} is a folder of
# the width. Those that make something run at 60 columns alone, unless all tests are asked for.
READ: dict[str, tuple[str, ...]] = {
    "recipes": ("recipes",),
    "steps": ("steps", "steps dedup_minhash"),
    "schema": (),  # is JSON
    "model list": ("model list",),
    "model show": ("model show tiny",),
    "scaling plan": ("scaling plan --flops 1e20",),
    "explain": ("explain d0004 --in 60/out", "explain d0006 --in 60/out"),
    "stats": ("stats 60/out",),
    "whatif": ("whatif 60/out --set c4.min_sentences=2",),
    "check": ("check 60/out",),
    "search": ("search 60/index mill",),
    "dedup clusters": ("dedup clusters 60/out --show 1",),
    "tokenizer eval": ("tokenizer eval 60/tok 60/tok --on held.jsonl --show 1",),
    "generate": ("generate river --model 60/model --max-tokens 5",),
    "evaluate": ("evaluate 60/model --on note=note.txt --on quiz=quiz.jsonl",),
    "which": ("which --model 60/model --step 1",),
    "quality threshold": (
        "quality threshold 60/quality/quality.bin docs.jsonl --keep-fraction 0.1",
    ),
    "quality evaluate": (
        "quality evaluate 60/quality/quality.bin --positive docs.jsonl --negative held.jsonl",
    ),
    "quality label": (
        "quality label docs.jsonl -o x --endpoint http://localhost:1 --model m --dry-run",
    ),
    "perplexity score": ("perplexity score 60/ngrams/perplexity.bin note.txt",),
    "language evaluate": ("language evaluate 60/language/language.bin --on labelled.jsonl",),
}
MAKE: dict[str, tuple[str, ...]] = {
    "run": (
        "run small.yaml docs.jsonl -o {w}/out",
        "run fineweb docs.jsonl -o x --dry-run --as-if 10TB",
    ),
    "search build": ("search build 60/out -o {w}/index",),
    "tokenizer train": ("tokenizer train docs.jsonl -o {w}/tok --vocab 300",),
    "tokenizer encode": (
        "tokenizer encode docs.jsonl --tokenizer 60/tok -o {w}/shards --val-fraction 0.1",
    ),
    "pretrain": ("pretrain 60/shards -o {w}/model --model tiny --steps 2 --rows 2 --context 32",),
    "quality train": (
        "quality train --positive docs.jsonl --negative held.jsonl -o {w}/quality --dim 4"
        " --bucket 100",
    ),
    "perplexity train": (
        "perplexity train docs.jsonl -o {w}/ngrams --vocab 200 --discount-fallback",
    ),
    "language train": (
        "language train labelled.jsonl -o {w}/language --epochs 2 --piece-chars 100",
    ),
    "init": ("init {w}/room",),
    "migrate": ("migrate theirs.py -o {w}/recipe.yaml",),
    "filter": ("filter c4 docs.jsonl -o {w}/filtered",),
    "extract": ("extract web/web-00000.warc.gz -o {w}/text",),
    "dedup": ("dedup docs.jsonl -o {w}/near --method minhash",),
    "browse": ("browse 60/out --export-labels {w}/labels",),
    "mix": ("mix a=docs.jsonl b=held.jsonl -o {w}/mix --total 5000",),
    "refresh": ("refresh small.yaml docs.jsonl -o {w}/home",),
    "forget": (
        "refresh small.yaml docs.jsonl -o {w}/forgetting -q",
        "forget {w}/forgetting --id d0001 --domain b.test",
    ),
    "decontaminate": ("decontaminate docs.jsonl --evals held.jsonl -o {w}/clean",),
    "tokenizer study": ("tokenizer study docs.jsonl --vocab 280,300",),
    "tokenizer extend": ("tokenizer extend 60/tok --on held.jsonl --vocab 305 -o {w}/more",),
    "tokenizer prune": ("tokenizer prune 60/tok --on held.jsonl --min-count 1 -o {w}/less",),
    "tokenizer convert": ("tokenizer convert 60/tok --to tiktoken -o {w}/tok.tiktoken",),
    "export": ("export 60/model -o {w}/hf --format hf",),
    "import": ("export 60/model -o {w}/saved --format hf", "import {w}/saved -o {w}/again"),
    "perplexity": ("perplexity docs.jsonl --model 60/ngrams/perplexity.bin -o {w}/fluent",),
    "perplexity convert": ("perplexity convert 60/ngrams/perplexity.bin -o {w}/model.arpa",),
    "quality": ("quality docs.jsonl --model 60/quality/quality.bin --threshold 0.5 -o {w}/best",),
    "language": ("language docs.jsonl --model 60/language/language.bin --keep en -o {w}/english",),
}
SLOW: dict[str, tuple[str, ...]] = {
    "verify": ("verify 60/out",),
    "warmup": ("warmup small.yaml",),
    "dedup compare": ("dedup compare docs.jsonl -o {w}/methods --methods exact,minhash",),
    "dedup audit": ("dedup audit docs.jsonl --val held.jsonl -o {w}/audit",),
    "extract-eval": ("extract-eval gold.jsonl pages.jsonl -o {w}/scores --extractor blocks",),
    "scaling run": (
        "scaling run 60/shards -o {w}/sweep --tokens 64,128,192 --sizes 32x1,64x1,96x1 --rows 1"
        " --context 32",
    ),
    "scaling fit": (
        "scaling run 60/shards -o {w}/swept --tokens 64,128,192 --sizes 32x1,64x1,96x1 --rows 1"
        " --context 32 -q",
        "scaling fit {w}/swept --resamples 5",
    ),
    "compare": (
        "compare kept=60/out raw=docs.jsonl --eval held=held.jsonl --tokens 3000 --seeds 2"
        " --vocab 300 --variant wide:model.feed_forward.width=1024 -o {w}/help",
    ),
}
NOT_RUN = {
    "fetch": "a network",
    "demo": "a minute; its parts are those of other commands",
    **dict.fromkeys(("mix search", "model rope-search"), "minutes"),
    "model transplant": "as tokenizer extend",
    "predict": "a model with labels",
}
NEEDED = tuple(MAKE)[:8]  # what they make others read


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@functools.cache
def shown(line: str, columns: int, folder: Path) -> str:
    """What a command prints on a terminal of so many columns, in the folder, without colours."""
    stream = Terminal(io.BytesIO(), "utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setenv("COLUMNS", str(columns))
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, stream)
        code = invoke(line.replace("{w}", str(columns)).split())
    text = CODES.sub("", stream.detach().getvalue().decode())
    assert code == 0, f"{line}: {text}"
    return text


def too_wide(text: str, columns: int) -> list[str]:
    """The lines that are wider, but for those of one word, which is never broken."""
    lines = [line for line in re.split(r"[\r\n]+", text) if cell_len(line) > columns]
    return [line for line in lines if len(WORDS.findall(line.removesuffix(" \\"))) > 1]


def words(text: str) -> set[str]:
    """The words without a number, of which some are another in each run."""
    return {word.strip() for word in WORDS.findall(text) if not re.search(r"[\d─-█\\]", word)}


def documents(count: int, seed: int) -> list[dict[str, Any]]:
    """Documents of made words; every fifth is a copy, every seventh too short."""
    draw = random.Random(seed)
    known = ["".join(draw.choices("aeioulnrstdmk", k=draw.randrange(2, 9))) for _ in range(300)]
    rows: list[dict[str, Any]] = []
    for i in range(count):
        sentences = [" ".join(draw.choices([*known, "mill"], k=24)).capitalize() for _ in range(6)]
        text = rows[-1]["text"] if i % 5 == 4 else ".\n".join(sentences) + "."
        text = "Too short." if i % 7 == 6 else text
        url = f"https://www.some-long-name-of-a-host.test/a/path/{i}"
        rows.append({"id": f"d{i:04d}", "text": text, "url": url, "lang": "en"})
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs, and with what commands make of them that others read."""
    folder = tmp_path_factory.mktemp("width")
    rows, held = documents(60, 0), documents(30, 1)
    speech = {"en": "the river runs past the mill", "nl": "het huis staat op een heuvel"}
    for name, lines in {
        "docs": rows,
        "held": held,
        "quiz": [{"context": "The sky is", "continuation": " blue"}] * 5,
        "labelled": [{"text": f"{t} {k}", "lang": n} for k in range(40) for n, t in speech.items()],
        "gold": [{"url": row["url"], "text": row["text"]} for row in rows],
        "pages": [{**row, "text": f"<html><p>{row['text']}</p></html>"} for row in rows],
    }.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "note.txt").write_text(held[0]["text"], encoding="utf-8")
    steps = "steps: [c4, document_length, gopher_repetition, dedup_minhash]\n"
    (folder / "small.yaml").write_text(steps, encoding="utf-8")
    script = "from datatrove.pipeline.filters import *\nLanguageFilter()\nRegexFilter('x')\n"
    (folder / "theirs.py").write_text(script, encoding="utf-8")
    build_web(folder / "web")
    for columns in WIDTHS:
        (folder / str(columns)).mkdir()
    for name in NEEDED:
        shown(MAKE[name][0], 60, folder)
    return folder


def commands() -> dict[tuple[str, str], str]:
    """The words of each command, by the module and name of its function."""
    found, groups = {}, [((), app_command())]
    while groups:
        path, group = groups.pop()
        for word, command in group.commands.items():
            named = path if word == "default" else (*path, word)
            if hasattr(command, "commands"):
                groups.append((named, command))
            else:
                function = command.callback
                found[function.__module__, function.__name__] = " ".join(named)
    return found


def cases() -> list[Any]:
    """Every command at every width; those that take long are marked."""
    marked = []
    for lines, at_once in ((READ, (60, 120)), (MAKE, (60,)), (SLOW, ())):
        for name in lines:
            for columns in WIDTHS:
                marks = () if columns in at_once else (pytest.mark.slow,)
                marked.append(pytest.param(name, columns, marks=marks))
    return marked


@pytest.mark.parametrize(("name", "columns"), cases())
def test_command_output_fits_the_terminal(name: str, columns: int, folder: Path) -> None:
    for line in {**READ, **MAKE, **SLOW}[name]:
        assert too_wide(shown(line, columns, folder), columns) == []


@pytest.mark.parametrize("name", READ)
def test_no_word_is_broken(name: str, folder: Path) -> None:
    for line in READ[name]:
        assert words(shown(line, 60, folder)) <= words(shown(line, 120, folder))


def test_every_command_is_looked_at() -> None:
    known = commands()
    names = [known[tuple(each.place.split(":"))] for each in declared("curate", "command").values()]
    tables = {**READ, **MAKE, **SLOW, **NOT_RUN}
    assert sorted(set(names) - set(tables)) == sorted(set(tables) - set(names)) == []


@pytest.mark.parametrize("columns", few(WIDTHS, 60, 120))
@pytest.mark.parametrize("name", sorted(commands().values()))
def test_help_fits(name: str, columns: int, tmp_path: Path) -> None:
    text = shown(f"{name} --help", columns, tmp_path)
    assert too_wide(text, columns) == []
    assert words(text) <= words(shown(f"{name} --help", 120, tmp_path))


def test_a_line_that_is_too_wide_is_seen() -> None:
    assert too_wide("a b\n  " + "x" * 99 + "\nab cd", 4) == ["ab cd"]


@pytest.mark.parametrize("name", ["evaluate", pytest.param("compare", marks=pytest.mark.slow)])
def test_models_and_experiments_say_what_comes_next(name: str, folder: Path) -> None:
    following = {"evaluate": "generate --model 60/model", "compare": "pretrain"}
    line = " ".join(shown({**READ, **SLOW}[name][0], 60, folder).rpartition("next: ")[2].split())
    assert line.replace("\\ ", "").startswith(f"llmcurate {following[name]}")
