"""How-to pages: their commands run, on the demonstration's web and with small sizes."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from curate.demo.web import build_web

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "run_docs.py"))
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
# A network, a cluster, or a clock.
ELSEWHERE = re.compile(r"https?://|s3://|HEAD|slurm|^ray |^pip |^0 3|warc\.paths\.gz")
SMALLER = {
    "--share 0.02": "--share 0.5",
    "--vocab 32000": "--vocab 1000",
    "--vocab 32000 --model": "--vocab 700 --model",
    "--model 30m --steps 2000": "--model tiny --steps 2 --set pretrain.context=64",
}


def lines(page: Path) -> list[str]:
    """The command lines of a page's blocks, each whole."""
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    joined = "".join(blocks).replace("\\\n", " ")
    return [line for line in joined.splitlines() if not ELSEWHERE.search(line)]


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and runs that the pages speak of."""
    if find_spec("fasttext") is None:
        pytest.skip("the demo's language model needs fasttext")
    from curate import Corpus
    from curate.demo.language import train_demo_model

    folder = tmp_path_factory.mktemp("things")
    web = build_web(folder / "crawl")
    for name in ("archives", "sample"):
        (folder / name).mkdir()
        shutil.copy(web.paths[0], folder / name)
    train_demo_model(folder / "language", quiet=True)
    run = Corpus.read(folder / "crawl").extract().filter("c4")
    result = run.run(folder / "corpus", quiet=True)
    rows = [{"text": text} for text in result.corpus.to_pandas(["text"]).text[:20]]
    (folder / "held-out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "words.txt").write_text("เด็ก\nได้ยิน\n", encoding="utf-8")
    return folder


def prepare(page: str, folder: Path, env: dict[str, str]) -> None:
    """What a page takes for granted besides."""
    if page == "deduplicate":
        SCRIPT["printed"]("llmcurate dedup sample/ -o out-01 --method minhash", folder, env)
        shutil.copytree(folder / "crawl", folder / "february")
    if page == "small-model":
        SCRIPT["printed"]("llmcurate tokenizer train corpus/ -o tok --vocab 700", folder, env)
    if page == "weekly-refresh":
        recipe = SCRIPT["printed"]("llmcurate recipes fineweb", folder, env)
        text = "\n".join([*recipe, "  - tokenizer: {vocab: 500}", ""])
        (folder / "mine.yaml").write_text(text, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_commands_of_a_page_run(page: Path, things: Path, tmp_path: Path) -> None:
    shutil.copytree(things, tmp_path, dirs_exist_ok=True)
    env = SCRIPT["environment"](tmp_path / ".bin")
    env["LLMCURATE_LID_MODEL"] = str(tmp_path / "language" / "language.bin")
    prepare(page.stem, tmp_path, env)
    truth = (json.loads(line) for line in (things / "crawl" / "truth.jsonl").open())
    clean = next(t["id"] for t in truth if t["kind"] == "clean" and "00000" in t["warc"])
    for line in lines(page):
        for large, small in (*SMALLER.items(), (" ID ", f" {clean} ")):
            line = line.replace(large, small)
        if "--products" in line:  # a week later
            shutil.copy(tmp_path / "crawl" / "web-00001.warc.gz", tmp_path / "archives")
        SCRIPT["printed"](line, tmp_path, env)


def test_most_commands_of_the_pages_are_run() -> None:
    assert sum(len(lines(page)) for page in PAGES) > 25
