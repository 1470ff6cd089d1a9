"""How-to pages: their commands run, on the demonstration's web and with small sizes."""

from __future__ import annotations

import json
import random
import re
import runpy
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import zstandard

from curate.demo.web import build_web

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "run_docs.py"))
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
# A network, a cluster, or a clock.
ELSEWHERE = re.compile(
    r"https?://|s3://|HEAD|slurm|^ray |^pip |^0 3|warc\.paths\.gz|sentencepiece\.bpe\.model"
)
SMALLER = {
    "--share 0.02": "--share 0.5",
    "--vocab 32000": "--vocab 1000",
    "--vocab 32000 --model": "--vocab 700 --model",
    "--model 30m --steps 2000": "--model tiny --steps 2 --set pretrain.context=64",
    "--model bert --task": "--model bert-tiny --tokenizer tok/tokenizer.json --task",
    "--steps 500 --lr 0.0005 --warmup 50": "--steps 2",
    "-o run --set model": "-o run --steps 2 --set pretrain.context=64 --set model",
    "-o run --model bert-tiny": "-o encoder --model bert-tiny --steps 2 --set pretrain.context=64",
    "tokenizer-wangchanberta corpus": "tokenizer-wangchanberta corpus --set tokenizer.vocab=400",
    "--model wangchanberta --context 416": "--model roberta-tiny --context 64",
    "--steps 500000 --rows 4096": "--steps 2 --rows 2",
    "--warmup 24000": "--warmup 1",
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """(what stands behind its fence, text) of each block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def lines(page: Path) -> list[str]:
    """The command lines of a page's blocks, each whole."""
    joined = "".join(text for kind, text in blocks(page) if not kind).replace("\\\n", " ")
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
    if page in ("small-model", "fine-tune", "own-layers"):
        SCRIPT["printed"]("llmcurate tokenizer train corpus/ -o tok --vocab 700", folder, env)
    if page == "fine-tune":
        texts = [{"text": f"{k} {word}", "label": word} for k in range(40) for word in ("a", "b")]
        for name in ("labelled.jsonl", "texts.jsonl"):
            (folder / name).write_text("".join(json.dumps(row) + "\n" for row in texts))
    if page == "own-layers":
        SCRIPT["printed"](
            "llmcurate tokenizer encode corpus/ --tokenizer tok -o shards", folder, env
        )
    if page == "thai-encoder":
        shutil.rmtree(folder / "corpus")
        words = "การ ประชุม วันนี้ มี ผู้เข้าร่วม จำนวน มาก และ ได้ พิจารณา เรื่อง สำคัญ ของ ประเทศ".split()
        draw = random.Random(1)
        with zstandard.open(folder / "thai.jsonl.zst", "wt", encoding="utf-8") as file:
            for k in range(200):
                text = " ".join("".join(draw.choices(words, k=9)) for _ in range(12))
                file.write(json.dumps({"id": str(k), "text": text}) + "\n")
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
    for kind, text in blocks(page):
        if kind == "python" and (name := re.match(r"# (\w+\.py)\n", text)):
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
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
