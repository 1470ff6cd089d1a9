"""The commands of README, CONTRIBUTING and the documentation run, on the demonstration's web and
with small sizes; what does not is named here with the reason. The tutorial's are in test_outputs.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import runpy
import shlex
import shutil
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from curate.demo.web import build_web
from curate.products.pretraining import NAMES, PretrainProduct
from curate.steps.recipe import Change
from curate.steps.registry import FILE, settings_of, shipped_schema
from tests.curate.command_line import printed_here
from tests.curate.lab.formats.wat_files import envelope, wat

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "run_docs.py"))
PAGES = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if path.stem != "tutorial" and path.parent.name != "reference"  # no command of its own
]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
INDENTED = re.compile(r"^ {4,}(?:\$ )?llmcurate [^\n]*(?:(?<=\\)\n[^\n]*)*", re.M)
ROW = re.compile(r"^\| [^|\n]* \| `(llmcurate [^`]+)` \|$", re.M)
PROGRAM = re.compile(r"(?:\w+=\S+ )*(?:llmcurate|python|torchrun|make|pip|sh|docker|ray|sbatch) ")
PROMPT = re.compile(r"^ *(?:\$ )?", re.M)

# Commands that no test runs, by what they need; each is the beginning of one or of several.
MARKED = {
    "a network": (
        *("make ", "pip ", "llmcurate fetch ", "llmcurate filter c4 hf://"),
        *("llmcurate refresh fineweb warc.paths.gz", "llmcurate tokenizer convert cl100k.tiktoken"),
        "llmcurate tokenizer extend tok --from sentencepiece.bpe.model",
        "llmcurate run ccnet-llama1 crawl/*.wet.gz",
        "llmcurate evaluate model --task ",
        "llmcurate dedup corpus/ -o out --method semantic --set dedup_semantic.embedding=models/",
    ),
    "a cluster": (
        *("llmcurate run fineweb /data/crawl", "llmcurate run fineweb s3://"),
        *("ray start", "sbatch ", "torchrun "),
    ),
    "a language model": ("llmcurate quality label ", "llmcurate quality train --labels"),
    "a GPU": ("python benchmarks/attention.py", "python benchmarks/pretrain.py"),
    "an hour": ("sh pipelines/experiments/", "python benchmarks/planted_mixture.py"),
    "trafilatura": (
        "llmcurate extract crawl/*.warc.gz -o text --extractor trafilatura",
        "llmcurate extract-eval gold.jsonl crawl.warc.gz --extractor trafilatura",
    ),
    "a checkout": ("python benchmarks/language_profiles.py",),
    "a package of one's own": ("llmcurate steps share_of_digits",),
    "a person": ("llmcurate browse out", "llmcurate quality train --positive labels/"),
}
STEPS = "--steps 2 --rows 2 --context 64"
# What makes a command small enough to try: pattern, replacement.
SMALLER: tuple[tuple[str, str], ...] = (
    (r"--share 0.02", "--share 0.5"),
    (r"^(llmcurate pretrain.*)--for \S+", r"\1--tokens 500"),
    (r"^(llmcurate pretrain(?!.*--(steps|tokens|depth|plan)).*)", r"\1 --steps 2"),
    (r"^(llmcurate pretrain(?!.*--context).*)", r"\1 --context 64"),
    (r"--steps [0-9]{3,}", "--steps 2"),
    (r"--rows [0-9]{2,}", "--rows 2"),
    (r"(pretrain|evaluate|scaling|compare)(.*)--model (124m|30m)", r"\1\2--model tiny"),
    (r"--flops 1e11,2e11,4e11,8e11", "--flops 1e9,2e9,4e9"),
    (r"--tokens 65536,262144,1048576", "--tokens 2000,4000,8000"),
    (r"--unique-tokens 32768,131072", "--unique-tokens 1500,3000"),
    (r"--sizes 16x2,32x2,48x2,64x2", "--sizes 16x2,32x2,64x2"),
    (r"(scaling run.*)pretrain.warmup=10", r"\1pretrain.warmup=1"),
    (r"eval_tokens=131072", "eval_tokens=2000"),
    (r"^(llmcurate scaling fit.*)", r"\1 --resamples 5"),
    (r"--vocab 8000,32000", "--vocab 500,700"),
    (r"--vocab (32000|65536)", "--vocab 700"),
    (r"^(llmcurate compare.*)", r"\1 --seeds 2 --context 64 --eval-bytes 3000"),
    (r"--recipes c4 c4-unfiltered --input crawl/", r"\g<0> --set c4.badwords=null"),
    (r"(compare.*)--minutes [0-9]+", r"\1--tokens 3000"),
    (r"(compare.*)--flops 1e12", r"\1--flops 5e10"),
    (r"--tokens [0-9]{4,}(?!,)\b", "--tokens 3000"),
    (r"--total [12]e9", "--total 1e4"),
    (r"^(llmcurate mix search.*)", r"\1 --runs 4 --context 64 --vocab 400"),
    (r"(rope-search .*)--context 8192", r"\1--context 256 --rows 2 --evaluations 3"),
    (r"(-o long .*)--context 8192", r"\1--context 256"),
    (r"keep=\[nl\]", "keep=[de]"),  # of the demo's model
    (r"--val-fraction 0.0005", "--val-fraction 0.05"),
    (r"--step 120", "--step 1"),
    (r"web=80,wiki=15,books=5", "web=40,wiki=40,books=20"),
    (r"--warmup [0-9]+", "--warmup 1"),
    (r"tokenizer-wangchanberta corpus", r"\g<0> --set tokenizer.vocab=400"),
    (r"--model wangchanberta --context 416", "--model roberta-tiny --context 64"),
    (r"processes=8", "processes=2"),
    (r"--widths 96,192,384", "--widths 96,192"),
    (r"--to tokenizer.json -o tok$", "--to tokenizer.json -o tok-spm"),
    (r"--vocab 32000", "--vocab 500"),
    (r"--vocab 42000", "--vocab 760"),
)
# Commands that make what a page takes for granted.
BEFORE: dict[str, tuple[str, ...]] = {
    "howto/elsewhere": (
        "pretrain labelled.jsonl -o topics --model bert-tiny --tokenizer tok/tokenizer.json"
        f" --task classify {STEPS}",
    ),
    "guides/fine-tune": (
        f"pretrain shards -o bert --model bert-tiny --set objective=masked {STEPS}",
    ),
    "models": (
        f"pretrain shards -o dense-run {STEPS}",
        f"pretrain shards -o mha {STEPS} --set model.attention.kv_heads=6",
        f"pretrain shards -o decoder {STEPS}",
        "tokenizer train corpus/ -o tok-new --vocab 600",
    ),
    "training": (
        f"pretrain shards -o large {STEPS}",
        "tokenizer encode corpus/ --tokenizer tok -o fineweb10B --format nanogpt",
    ),
    "tokenizers/changing": (
        "tokenizer train corpus/ -o tok --vocab 700 --pattern llama3",
        "tokenizer train thai/ -o other --vocab 600",
    ),
    "filters": ("extract crawl/*.warc.gz -o text",),
    "looking": ("run limits.yaml crawl/ -o out",),
    "dedup/bloom": ("dedup january -o out-01 --method bloom",),
    "dedup/compare": ("tokenizer encode corpus/ --tokenizer tok -o shards --val-fraction 0.2",),
}
# Commands of how-tos that take more than a few seconds, by their beginnings.
SLOW = ("llmcurate compare ", "llmcurate decontaminate ")


def names(path: Path) -> str:
    """A page's name in messages: its path below docs/."""
    return path.relative_to(ROOT).as_posix().removeprefix("docs/").removesuffix(".md")


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of each block of a page."""
    text = page.read_text(encoding="utf-8")
    return [(kind, dedent(body)) for _, kind, body in BLOCK.findall(text)]


def commands(page: Path) -> list[str]:
    """The commands of a page in their order, each one line without its comment."""
    found = []
    text = page.read_text(encoding="utf-8")
    pattern = "|".join(found.pattern for found in (BLOCK, INDENTED, ROW))
    for match in re.finditer(pattern, text, re.M | re.S):
        if match[4]:
            found.append(match[4])
        elif match[2] in (None, "", "console", "bash", "sh"):
            body = PROMPT.sub("", match[3] if match[2] is not None else match[0])
            lines = re.sub(r"\s*\\\n\s*", " ", body).splitlines()
            found += [re.sub(r"\s+#\s.*", "", line) for line in lines if PROGRAM.match(line)]
    return found


def needs(command: str) -> str | None:
    """What a command needs that tests have not; None for one that runs."""
    for what, beginnings in MARKED.items():
        if command.startswith(beginnings):
            return what
    return None


# The settings of each section, and of the one that `pretrain` has.
PRETRAIN = {"pretrain": PretrainProduct.setting_names}
SECTIONS = {name: partial(settings_of, name) for name in shipped_schema(FILE)["$defs"]} | NAMES
NOVELS = ("novels", "peps", "rustbook")
WORDS = "การ ประชุม วันนี้ มี ผู้เข้าร่วม จำนวน มาก และ ได้ พิจารณา เรื่อง สำคัญ ของ ประเทศ".split()


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    """A file of JSON lines, packed as its name says."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.parent.mkdir(exist_ok=True)
    packs = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
    path.write_bytes(packs.get(path.suffix, bytes)(data))


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and runs that the pages speak of."""
    if find_spec("fasttext") is None:
        pytest.skip("the demo's language model needs fasttext")
    return world(tmp_path_factory.mktemp("things"))


def archives(folder: Path) -> Path:
    """Write the demo's web under the names that pages use; return its first archive."""
    first, second = build_web(folder / "crawl").paths
    for name in ("archives", "sample", "crawl-sample", "january", "february"):
        (folder / name).mkdir()
        shutil.copy(second if name == "february" else first, folder / name)
    return first


def world(folder: Path) -> Path:
    """The folder with archives, texts, runs, tokenizers, shards and models by the pages' names."""
    import sentencepiece

    from curate.demo.language import train_demo_model

    first = archives(folder)
    for name in ("crawl.warc.gz", "pages.warc.gz"):
        shutil.copy(first, folder / name)
    wat(folder / "crawl.warc.wat.gz", envelope())
    train_demo_model(folder / "language", quiet=True)
    run = environment(folder)
    for command in (
        "run fineweb crawl/ -o out",
        "filter c4 out -o corpus",
        "tokenizer train corpus/ -o tok --vocab 700 --pattern llama3",  # for --format gguf
        "tokenizer train corpus/ -o other --vocab 600",
        "tokenizer encode corpus/ --tokenizer tok -o shards",
        f"pretrain shards -o model --model tiny {STEPS}",
        "export model -o hf-model --format hf",
    ):
        SCRIPT["printed"](f"llmcurate {command} -q", folder, run)
    rows = pq.read_table(folder / "corpus" / "corpus", columns=["id", "url", "text"]).to_pylist()
    texts = [{"text": row["text"]} for row in rows]
    names = "held-out heldout wikipedia raw pages texts benchmark gsm8k web code"
    for name in (
        *names.split(),
        "a",
        "books/b",
        "web/w",
        "wiki/w",
        "code/c",
        "texts/t",
        "new/n",
        "more/m",
    ):
        write_lines(folder / f"{name}.jsonl", [{**row, "lang": "en"} for row in rows[:40]])
    for name in (
        "wikipedia.jsonl.zst",
        "wikipedia-nl.jsonl.gz",
        "novels.jsonl.zst",
        "pages.jsonl.gz",
    ):
        write_lines(folder / name, rows)
    lines = [line for row in rows for line in row["text"].splitlines()]
    write_lines(folder / "b.jsonl", [{"text": line} for line in lines[:200]])
    draw = random.Random(1)
    words = ["".join(draw.choices("aeioulnrst", k=draw.randrange(2, 9))) for _ in range(4000)]
    for name in (
        "news.jsonl",
        "wiki.jsonl",
        "march/x.jsonl",
        "new/x.jsonl",
        "more/x.jsonl",
        *(f"{n}.jsonl.zst" for n in NOVELS),
    ):
        made = [" ".join(draw.choices(words, k=300)) + "." for _ in range(40)]
        write_lines(folder / name, [{"text": text} for text in made])
    thai = ["\n".join("".join(draw.choices(WORDS, k=9)) for _ in range(12)) for _ in range(200)]
    for name in ("thai.jsonl.zst", "thai/t.jsonl"):
        write_lines(folder / name, [{"id": str(k), "text": text} for k, text in enumerate(thai)])
    write_lines(
        folder / "labelled.jsonl",
        [
            {"text": f"{k} {word}", "label": word, "lang": word}
            for k in range(40)
            for word in ("en", "th")
        ],
    )
    write_lines(folder / "gold.jsonl", [{"url": row["url"], "text": row["text"]} for row in rows])
    write_lines(folder / "quiz.jsonl", [{"context": "The sky is", "continuation": " blue"}] * 5)
    write_lines(folder / "prompts.jsonl", [{"prompt": "The river"}])
    said = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]
    asked = [[{**said[0], "content": f"Where is {k}?"}, said[1]] for k in range(40)]
    write_lines(folder / "chats.jsonl", [{"messages": messages} for messages in asked])
    write_lines(folder / "pairs.jsonl", [{"source": f"{k}", "target": "x"} for k in range(40)])
    (folder / "model" / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    pq.write_table(pa.Table.from_pylist(texts[:20]), folder / "test.parquet")
    shutil.copy(folder / "tok" / "tokenizer.json", folder)
    recipe = SCRIPT["printed"]("llmcurate recipes fineweb", folder, run)
    weekly = "\n".join([*recipe, "  - tokenizer: {vocab: 500}", ""])
    (folder / "mine.yaml").write_text(weekly, encoding="utf-8")
    steps = "steps: [extract, document_length, gopher_quality, dedup_minhash]\n"
    (folder / "limits.yaml").write_text(steps, encoding="utf-8")
    (folder / "profiles.yaml").write_text("nl: {stop_words: [de, het, een]}\n", encoding="utf-8")
    (folder / "words.txt").write_text("เด็ก\nได้ยิน\n", encoding="utf-8")
    (folder / "essay.txt").write_text(rows[0]["text"], encoding="utf-8")
    (folder / "takedowns.txt").write_text("https://a.test/page\n", encoding="utf-8")
    for name, learned in (("spm", lines), ("xlmr", lines), ("wangchanberta", thai)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(learned),
            model_prefix=str(folder / name),
            vocab_size=500,
            model_type="bpe",
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    shutil.copy(folder / "hf-model" / "model.safetensors", folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The variables that commands in a copy of the folder see."""
    env: dict[str, str] = SCRIPT["environment"](folder / ".bin")
    env["LLMCURATE_LID_MODEL"] = str(folder / "language" / "language.bin")
    return env


def small(command: str) -> str:
    """A command with sizes that a test has time for."""
    for pattern, replacement in SMALLER:
        command = re.sub(pattern, replacement, command)
    return command


def prepare(page: str, folder: Path, env: dict[str, str]) -> None:
    """What a page takes for granted besides."""
    for command in BEFORE.get(page, ()):
        run_command(f"llmcurate {command}", folder, env)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=names)
def test_the_commands_of_a_page_run(page: Path, things: Path, tmp_path: Path) -> None:
    shutil.copytree(things, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".bin"))
    env = environment(tmp_path)
    run_page(page, tmp_path, env)


@pytest.mark.parametrize("page", ["deduplicate", "filter"])
def test_the_quick_commands_of_a_how_to_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCRIPT, "printed", printed_here)
    archives(tmp_path)
    write_lines(tmp_path / "wikipedia.jsonl", [{"text": "The river runs past the mill."}])
    env = SCRIPT["environment"](tmp_path / ".bin")
    if page == "filter":
        run_command("llmcurate filter gopher_quality sample/ -o out", tmp_path, env)
    run_page(ROOT / f"docs/howto/{page}.md", tmp_path, env, without=SLOW)


def run_page(page: Path, folder: Path, env: dict[str, str], without: tuple[str, ...] = ()) -> None:
    for kind, text in (block for each in PAGES for block in blocks(each)):
        if kind == "python" and (name := re.match(r"# (\w+\.py)\n", text)):
            (folder / name[1]).write_text(text, encoding="utf-8")
    prepare(names(page), folder, env)
    for command in commands(page):
        if needs(command) is None and not command.startswith(without):
            run_command(small(command), folder, env)
    for kind, text in blocks(page) if page.parent.name == "howto" else ():
        if kind == "python" and not text.startswith("# "):
            SCRIPT["printed"](f"python -c {shlex.quote(text)}", folder, env)


def run_command(command: str, folder: Path, env: dict[str, str]) -> None:
    """Runs a command of a page. An output that is there gives way, unless the command goes on with
    it or reads it."""
    if "explain ID --in" in command:
        files = sorted((folder / command.split()[-1]).rglob("corpus/**/*.parquet"))
        command = command.replace("ID", pq.read_table(files[0], columns=["id"])["id"][0].as_py())
    if "--products" in command:  # a week later
        shutil.copy(folder / "crawl" / "web-00001.warc.gz", folder / "archives")
    words = shlex.split(command)
    out = words[words.index("-o") + 1] if "-o" in words else None
    if out and words[1] not in ("refresh", "forget") and words.count(out) == 1:
        shutil.rmtree(folder / out, ignore_errors=True)
    SCRIPT["printed"](command, folder, env)


def test_marks_are_of_commands_that_are_there() -> None:
    everything = [command for page in PAGES for command in commands(page)]
    for beginnings in MARKED.values():
        for beginning in beginnings:
            assert any(command.startswith(beginning) for command in everything), beginning


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=names)
def test_a_command_runs_or_is_marked(page: Path) -> None:
    others = [c for c in commands(page) if needs(c) is None and not c.startswith("llmcurate ")]
    assert others == [], "name what these need in MARKED, or let them begin with llmcurate"


def test_a_new_command_is_seen_wherever_a_page_has_it(tmp_path: Path) -> None:
    page = tmp_path / "new.md"
    page.write_text(
        "Text\n\n```\nllmcurate run x.yaml \\\n  in -o out   # why\n{not: a command}\n```\n\n"
        "1. A list\n\n   ```console\n   $ llmcurate stats out\n   kept 5\n   ```\n\n"
        "    llmcurate check out\n\n```bash\nmake news\n```\n\n```python\nmake = 1\n```\n"
    )
    lines = ["llmcurate run x.yaml in -o out", "llmcurate stats out", "llmcurate check out"]
    assert commands(page) == [*lines, "make news"]
    assert [needs(line) for line in commands(page)] == [None, None, None, "a network"]


@pytest.mark.parametrize("page", [p for p in PAGES if "--set " in p.read_text()], ids=names)
def test_settings_in_commands_are_there(page: Path) -> None:
    for command in commands(page):
        words = shlex.split(command)
        sets = [value for option, value in pairwise(words) if option == "--set"]
        sections = PRETRAIN if {"pretrain", "torchrun"} & set(words[:2]) else SECTIONS
        corpora = [word.partition("=")[0] for word in words if words[1] == "compare"]
        for change in map(Change.of, sets):
            if change.section in corpora and change.section not in sections:
                change = Change.of(change.given.partition(f"{change.section}.")[2])
            change = change.within(sections)
            known = set(sections[change.section]())
            assert change.key in known or change.key.partition(".")[0] in known, command
