"""The bytes that runs and trainings leave, compared with those on record: the gate of a redesign.

    python scripts/golden.py                   # `make golden`: all cases
    python scripts/golden.py c4 t5-tiny        # those whose names begin so
    python scripts/golden.py --against REV     # with another commit's bytes instead of the record
    python scripts/golden.py --record          # writes scripts/golden.json anew

Ten recipes run over the demo's web and, where they are there, the 1,497 real pages of
../shared/corpora/wcxb; three of them also with two workers, killed and resumed, and on Ray, which
must all leave the same. Four small models are trained by one process and by two. What is compared:
the files of corpus/ and rejected/, decisions, ids, the figures of the report, the files of
tokenizer and shards, losses and weights.

Bytes depend on the processor and on the packages that compute. With others than the record's, the
commit before this one (the last one, while files are changed) makes the bytes to compare with. A
change that is meant to change bytes records them anew in a commit of its own, which says what
changed and why. Exit code 1 where bytes differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_suffix(".json")
SHARED = Path(os.environ.get("LLMCURATE_SHARED", ROOT.parent / "shared")) / "corpora"
PAGES, LANGUAGES = SHARED / "wcxb" / "dev.warc.gz", SHARED / "models" / "lid.176.ftz"
PACKAGES = (
    *("numpy", "pyarrow", "numba", "torch", "resiliparse", "chardetng_py"),
    "fasttext-numpy2-wheel",
)
Digests = dict[str, dict[str, str]]  # of a case, by part

CHAIN = """\
read: {partition_bytes: 131072}
steps:
  - extract
  - language: {keep: [en], threshold: 0.5}
  - gopher_repetition
  - c4: {min_sentences: 3}
  - dedup_exact: {key: url, survivor: newest}
  - dedup_minhash
  - dedup_suffix_array: {boundary: line}
  - pii: {phones: true}
  - tokenizer: {vocab: 1000}
  - shards
"""
WAYS = {
    "two workers": ("--workers", "2"),
    "killed": ("--workers", "2"),
    "ray": ("--workers", "2", "--engine", "ray"),
}
# By recipe, the settings that stand for models and lists which nobody ships.
RECIPES: dict[str, tuple[str, ...]] = {
    "chain.yaml": (),
    "fineweb": (),
    "refinedweb": (),
    "c4": ("c4.badwords=words.txt",),
    "c4@paper": ("c4.badwords=words.txt",),
    "massiveweb": (),
    "mc4": ("bad_words.badwords=words.txt",),
    "oscar": (),
    "ccnet-llama1": ("perplexity.model=models/{lang}/perplexity.bin",),
    "dclm-baseline": ("quality.model=quality/quality.bin",),
}
IN_ALL_WAYS = ("chain.yaml", "fineweb", "c4")
MODELS = ("tiny", "bert-tiny", "t5-tiny", "mixtral-tiny")


@dataclass(frozen=True)
class Place:
    """A folder where the code of a checkout runs. code: the checkout."""

    code: Path
    folder: Path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A process of Python in the folder, with the checkout's modules."""
        own = {"PYTHONPATH": str(self.code), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        own |= {"LLMCURATE_OFFLINE": "1", "LLMCURATE_LID_MODEL": "language.bin"}
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> None:
        """The command `llmcurate` to its end."""
        process = self.start("-m", "llmcurate", *arguments)
        printed = process.communicate()[0]
        if process.returncode:
            raise SystemExit(f"llmcurate {' '.join(arguments)}: {printed[-2000:]}")

    def kill(self, after: float, *arguments: str) -> None:
        """The command, killed with its workers when `after` seconds are over."""
        process = self.start("-m", "llmcurate", *arguments)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGKILL)
            psutil.wait_procs(children, timeout=5)
        process.communicate()

    def prepare(self) -> None:
        """The inputs, and models and lists in place of published ones."""
        made = "from pathlib import Path; from curate.demo import language, web; here = Path('.'); "
        made += "web.build_web(here / 'web'); language.train_demo_model(here, quiet=True)"
        process = self.start("-c", made)
        if printed := process.communicate()[0] if process.wait() else "":
            raise SystemExit(printed)
        (self.folder / "words.txt").write_text("gambling\n")
        (self.folder / "chain.yaml").write_text(CHAIN)
        draw = random.Random(0)
        words = ["".join(draw.choices("aeioulnrst", k=draw.randrange(2, 9))) for _ in range(4000)]
        for name in ("good", "bad"):
            texts = (" ".join(draw.choices(words, k=60)) + "." for _ in range(300))
            lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            (self.folder / f"{name}.jsonl").write_text(lines)
        quality = ("--positive", "good.jsonl", "--negative", "bad.jsonl", "--epochs", "2")
        self.run("quality", "train", *quality, "-o", "quality")
        sizes = ("--vocab", "400", "--order", "3", "--discount-fallback")
        self.run("perplexity", "train", "good.jsonl", *sizes, "-o", "models/en")

    def recipe(self, name: str, source: str, way: str = "") -> dict[str, str]:
        """The digests of a recipe over an input."""
        sets = [word for choice in RECIPES[name] for word in ("--set", choice)]
        if source != "web":
            sets += ["--set", f"language.model={LANGUAGES}"] if "language" in text_of(name) else []
        options = [*sets, "-o", "out", *WAYS.get(way, ("--workers", "1"))]
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        if way == "killed":
            for after in (1.0, 1.6, 2.4, 4.0):
                self.kill(after, "run", name, source, *options)
        self.run("run", name, source, *options)
        return run_parts(self.folder / "out")

    def training(self, preset: str, processes: int) -> dict[str, str]:
        """The digests of a small training on the chain's shards."""
        shutil.rmtree(self.folder / "model", ignore_errors=True)
        sizes = ("--steps", "6", "--rows", "4", "--context", "64", "--set", "log_every=1")
        options = ("--model", preset, *sizes, "--processes", str(processes), "--device", "cpu")
        self.run("pretrain", "shards", *options, "-o", "model")
        return model_parts(self.folder / "model")


def text_of(recipe: str) -> str:
    """The text of a shipped recipe, or of CHAIN."""
    path = ROOT / "pipelines" / f"{recipe}.yaml"
    return path.read_text(encoding="utf-8") if path.exists() else CHAIN


def digest(data: Any) -> str:
    """The first half of the sha256 of bytes, or of a value as JSON."""
    if not isinstance(data, bytes):
        data = json.dumps(data, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:32]


def of_files(paths: list[Path]) -> str:
    """The digest of files: their names and bytes."""
    return digest([(path.name, digest(path.read_bytes())) for path in sorted(paths)])


def run_parts(out: Path) -> dict[str, str]:
    """The digests of the parts of a run."""
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    totals = {name: value for name, value in record["totals"].items() if name != "seconds"}
    groups = {
        "corpus": [*(out / "corpus").glob("*")],
        "rejected": [*(out / "rejected").glob("*")],
        "decisions": [*out.glob("decisions.parquet")],
        "tokenizer": [*out.glob("tokenizer*.json"), *out.glob("special_tokens_map.json")],
        "shards": [*out.glob("manifest.json"), *out.glob("tokens-*"), *out.glob("documents-*")],
    }
    parts = {name: of_files(files) for name, files in groups.items() if files}
    return {**parts, "ids": totals["kept_ids"], "report": digest([totals, record["figures"]])}


def model_parts(out: Path) -> dict[str, str]:
    """The digests of the parts of a training."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    losses = [(line["step"], line.get("loss"), line.get("held_out")) for line in lines]
    files = sorted((out / "checkpoints").glob("*/*.safetensors"))
    return {"losses": digest(losses), "weights": of_files(files)}


def machine() -> dict[str, str]:
    """The things that bytes depend on beside the code."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith("flags")), "")
        cpu = digest(sorted(flags.split()))[:16]
    found = {"cpu": cpu, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def cases(chosen: list[str]) -> Iterator[tuple[str, str, str]]:
    """(kind, name, way) of the cases whose names begin with one of those chosen, or all."""
    sources = ["web", *(["pages"] if PAGES.exists() and LANGUAGES.exists() else [])]
    found = [(source, name, "") for source in sources for name in RECIPES]
    found += [("web", name, way) for name in IN_ALL_WAYS for way in WAYS]
    if "pages" in sources:
        found += [("pages", name, "two workers") for name in IN_ALL_WAYS]
    found += [("training", name, str(n)) for n in (1, 2) for name in MODELS]
    for case in found:
        if not chosen or case[1].startswith(tuple(chosen)):
            yield case


def digests(code: Path, chosen: list[str]) -> Digests:
    """The digests of all cases as a checkout makes them; the ways of a recipe have one name."""
    result: Digests = {}
    with tempfile.TemporaryDirectory() as name:
        place = Place(code, Path(name))
        place.prepare()
        for kind, name, way in cases(chosen):
            began = time.perf_counter()
            if kind == "training":
                if not (place.folder / "shards").exists():
                    place.recipe("chain.yaml", "web")
                    shutil.copytree(place.folder / "out", place.folder / "shards")
                case, parts = f"{name}, processes {way}", place.training(name, int(way))
                way = ""
            else:
                source = "web" if kind == "web" else str(PAGES)
                case, parts = f"{name}, {kind}", place.recipe(name, source, way)
            first = result.setdefault(case, parts)
            odd = ", ".join(part for part in first if parts.get(part) != first[part])
            took = f"{time.perf_counter() - began:.0f} s"
            line = [f"{case}, {way}" if way else case, *([f"{odd} DIFFER"] if odd else []), took]
            print(": ".join(line), flush=True)
            if odd:
                result[f"{case}, {way}"] = parts
    return result


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A commit's files in a folder of their own."""
    with tempfile.TemporaryDirectory() as name:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", f"{name}/code", revision], check=True)
        try:
            yield Path(name) / "code"
        finally:
            subprocess.run([*git, "remove", "--force", f"{name}/code"], check=True)


def parent() -> str:
    """The commit to compare with: the last one while files are changed, else the one before."""
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]
    return "HEAD" if subprocess.check_output(status) else "HEAD^"


def compared(wanted: Digests, got: Digests, whose: str) -> int:
    """Prints what differs; exit status."""
    odd = [
        f"{case}: {', '.join(p for p in parts if wanted[case].get(p) != parts[p])}"
        for case, parts in got.items()
        if case in wanted and parts != wanted[case]
    ]
    odd += [f"{case}: not as in the other ways" for case in got if case not in wanted]
    for line in odd:
        print(f"DIFFERS from {whose}: {line}")
    print(f"{len(got) - len(odd)} of {len(got)} cases have the bytes of {whose}")
    return bool(odd)


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--against", metavar="REV")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    got = digests(ROOT, options.names)
    if options.record:
        kept = record.get("digests", {}) if record.get("machine") == machine() else {}
        new = {"machine": machine(), "digests": dict(sorted({**kept, **got}.items()))}
        RECORD.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
        return 0
    if not options.against and record.get("machine") == machine():
        return compared(record["digests"], got, "the record")
    revision = options.against or parent()
    why = "as asked for" if options.against else "the record is of another machine"
    print(f"the same cases as {revision} makes them ({why})", flush=True)
    with checkout(revision) as code:
        return compared(digests(code, options.names), got, revision)


if __name__ == "__main__":
    sys.exit(main())
