"""Run every shipped recipe on real data and write what each step keeps into docs/recipes.md.

LLMCURATE_SHARED=/path/to/shared python scripts/recipe_funnels.py [RECIPE...]

Without names all are run, and the table between the marks in docs/recipes.md is made anew; with
names their rows are printed. The data are those of the folder `corpora` there. Models and lists
that a recipe wants of its user are stand-ins that this script makes in a minute: classifiers
trained on a few hundred texts, a model of n-grams of some novels, lists of the sites of the pages
themselves. So the figures say that a recipe works and where it cuts, not what the published models
keep.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "recipes.md"
MARKS = "<!-- funnels: made by scripts/recipe_funnels.py -->", "<!-- end of funnels -->"
SHARED = Path(os.environ.get("LLMCURATE_SHARED", ROOT.parent / "shared")) / "corpora"

WEB = "wcxb/dev.warc.gz"
NEWS = "1,497 web pages"
INPUTS = {  # recipe -> (files, what they are); pages for all others
    "starcoder": ("code/code.jsonl.gz", "1,074 source files"),
    "dolma-code": ("code/code.jsonl.gz", "1,074 source files"),
    "redpajama-v1-github": ("code/code.jsonl.gz", "1,074 source files"),
    "dolma-books": ("longtext/en-novels.jsonl.zst", "English novels in pieces"),
    "redpajama-v1-books": ("longtext/en-novels.jsonl.zst", "English novels in pieces"),
    "dolma-wiki": ("longtext/en-rustbook.jsonl.zst", "chapters of the Rust book"),
    "dolma-reddit": ("comments.jsonl", "comments that the script makes of these pages"),
    "fineweb-edu": ("wcxb/dev-gold.jsonl.gz", "the main texts of these pages"),
    "wangchanberta-th": ("longtext/th-thaigov.jsonl.zst", "Thai government news"),
    "mc4": ("web", "555 pages of ten languages"),
    "oscar": ("web", "555 pages of ten languages"),
    "roots": ("web", "555 pages of ten languages"),
}


def texts(name: str, most: int, size: int = 3000) -> Iterator[str]:
    """The first pieces of the texts of a file of JSON lines."""
    import zstandard

    with ExitStack() as stack:
        raw = stack.enter_context((SHARED / name).open("rb"))
        opened: Any = zstandard.ZstdDecompressor().stream_reader(raw)
        if name.endswith(".gz"):
            opened = stack.enter_context(gzip.open(raw))
        for number, line in enumerate(io.TextIOWrapper(opened, encoding="utf-8")):
            if number == most:
                return
            yield (json.loads(line)["text"] or "")[:size]


def write_lines(path: Path, rows: Iterator[Any]) -> str:
    """The rows as JSON lines; the path."""
    with path.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row if isinstance(row, dict) else {"text": row}) + "\n")
    return str(path)


def classifier(folder: Path, good: Iterator[str], rest: Iterator[str], preset: str = "dclm") -> str:
    """A model trained on two sets of texts; its path."""
    from dataclasses import replace

    from curate.engines.local import call_apart
    from curate.scoring.quality.train import PRESETS, Texts, train

    folder.mkdir(parents=True)
    training = replace(PRESETS[preset], dim=16, bucket=50_000, lr=0.5, epochs=10)
    sets = [
        Texts([write_lines(folder / f"{n}.jsonl", rows)], True)
        for n, rows in (("good", good), ("rest", rest))
    ]
    train(*sets, folder, training, call_apart, balance=True, preset=preset)
    return str(folder / "quality.bin")


def comments() -> Iterator[dict[str, Any]]:
    """Paragraphs of the pages as comments, with votes."""
    for number, text in enumerate(texts("wcxb/dev-gold.jsonl.gz", 1500, 60_000)):
        for at, part in enumerate(re.split(r"\n{2,}", text)):
            yield {"id": f"{number}-{at}", "body": part * 2, "score": (number + at) % 7 - 1}


class Stand:
    """Stand-ins for what recipes want of their users, made once where one wants them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, str] = {}

    def get(self, name: str) -> str:
        """The path of a stand-in."""
        if name not in self._made:
            self._made[name] = str(getattr(self, f"_{name}")())
        return self._made[name]

    def _pages(self, most: int = 600) -> Iterator[str]:
        return texts("wcxb/dev-gold.jsonl.gz", most)

    def _quality(self) -> str:
        return classifier(
            self.folder / "quality", texts("longtext/en-peps.jsonl.zst", 600), self._pages()
        )

    def _math(self) -> str:
        good = (t for t in texts("wcxb/dev-gold.jsonl.gz", 1500) if re.search(r"\d.*[=+].*\d", t))
        novels = texts("longtext/en-novels.jsonl.zst", 300)
        return classifier(self.folder / "math", good, novels, "openwebmath")

    def _obscene(self) -> str:
        with gzip.open(SHARED / "lists/ldnoobw.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        terms = [row["term"] for row in rows if row["lang"] == "en"]
        good = (" ".join(terms[i : i + 3]) for i in range(len(terms)))
        rest = (s for t in self._pages(200) for s in re.split(r"(?<=[.!?])\s", t)[:3])
        return classifier(self.folder / "obscene", good, rest)

    def _perplexity(self) -> str:
        from curate.run.driver import carry_out
        from curate.run.records import Options
        from curate.steps.recipe import compose

        source = write_lines(
            self.folder / "novels.jsonl", texts("longtext/en-novels.jsonl.zst", 400)
        )
        settings = {"vocab": 4000, "variant": "ccnet", "order": 3, "discount_fallback": True}
        recipe = compose("novels", [("perplexity_model", settings)])
        out = self.folder / "models" / "en"
        carry_out(recipe, [source], out, Options(2, True))
        return str(out.parent / "{lang}" / "perplexity.bin")

    def _edu(self) -> Path:
        import numpy as np

        from tests.curate.onnx_models import onnx_model, write_model

        words = ["[UNK]", "the", "of", "and", "buy", "price", "theory", "because", "example"]
        values = np.array([2.4, 3, 4, 3, 0, 0, 9, 9, 9], np.float32)[:, None]
        write_model(self.folder / "edu", onnx_model(values, mean=True), words)
        return self.folder / "edu"

    def _hosts(self) -> str:
        from warcio import ArchiveIterator

        with (SHARED / WEB).open("rb") as raw:
            urls = [r.rec_headers.get_header("WARC-Target-URI") for r in ArchiveIterator(raw)]
        hosts = sorted({urlsplit(u).hostname for u in urls if u})
        path = self.folder / "hosts.txt"
        path.write_text("\n".join(h for i, h in enumerate(hosts) if i % 2) + "\n")
        (self.folder / "urls.txt").write_text("\n".join(u for u in urls[::2] if u) + "\n")
        return str(path)


def settings_of(name: str, stand: Stand) -> tuple[str, ...]:
    """The `--set` of a recipe's lists and models."""
    text = (ROOT / "pipelines" / f"{name}.yaml").read_text(encoding="utf-8")
    steps = "\n".join(line.partition("#")[0] for line in text.splitlines())
    chosen: list[str] = []
    if "badwords:" in steps:
        step = "c4" if "- c4:" in steps else "bad_words"
        chosen.append(f"{step}.badwords={SHARED / 'lists/ldnoobw.jsonl.gz'}")
    if "- quality:" in steps:
        chosen.append(f"quality.model={stand.get('quality')}")
    if "- math_score:" in steps:
        chosen.append(f"math_score.model={stand.get('math')}")
    if "- tagger:" in steps:
        chosen += [f"{label}.model={stand.get('obscene')}" for label in ("tagger", "tagger#2")]
    if "- perplexity:" in steps:
        chosen.append(f"perplexity.model={stand.get('perplexity')}")
    if "- classifier:" in steps:
        chosen.append(f"classifier.model={stand.get('edu')}")
    if "keep_hosts" in steps:
        chosen += [f"url_filter.{k}={stand.get('hosts')}" for k in ("keep_domains", "keep_hosts")]
    if "keep_urls" in steps:
        hosts = Path(stand.get("hosts"))
        chosen.append(f"url_filter.keep_urls={hosts.with_name('urls.txt')}")
    return tuple(chosen)


def funnel(name: str, stand: Stand) -> str:
    """A row of the table: the recipe, its input, and the documents behind each step."""
    from curate.run.driver import carry_out
    from curate.run.records import Options, funnel_rows, stages_of
    from curate.steps.recipe import load
    from llmcurate.base.errors import RunFailed

    file, what = INPUTS.get(name, (WEB, NEWS))
    source = SHARED / file
    if file == "comments.jsonl":
        source = Path(write_lines(stand.folder / file, comments()))
    recipe = load(name, settings_of(name, stand))
    out = stand.folder / "out" / name
    try:
        carry_out(recipe, [str(source)], out, Options(2, True))
    except RunFailed as error:  # a library that is no part of the installation
        return f"| `{name}` | {what} | | not run: {error} |"
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    steps = funnel_rows(stages_of(record))
    parts = [f"`{row.step}` {row.after:,}" for row in steps]
    return f"| `{name}` | {what} | {steps[0].before:,} | {', '.join(parts)} |"


def main() -> None:
    """Runs the recipes and writes the page, or prints the rows of those that were named."""
    from curate.steps.shipped import names

    if not SHARED.is_dir():
        raise SystemExit(f"no data at {SHARED}: set LLMCURATE_SHARED")
    corpora = [name for name in names() if name != "demo" and not name.startswith("tokenizer-")]
    chosen = sys.argv[1:] or corpora
    with tempfile.TemporaryDirectory() as folder:
        stand = Stand(Path(folder))
        table = []
        for name in chosen:
            table.append(funnel(name, stand))
            print(table[-1], flush=True)
    if sys.argv[1:]:
        return
    head = ("| recipe | input | read | documents left after each step |", "|---|---|---:|---|")
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    section = "\n".join((MARKS[0], *head, *table, MARKS[1]))
    PAGE.write_text(before + section + after, encoding="utf-8")


if __name__ == "__main__":
    main()
