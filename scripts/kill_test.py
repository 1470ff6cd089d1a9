"""Kills a run with SIGKILL at random moments, resumes it, and compares what it leaves.

    python scripts/kill_test.py --kills 20
    python scripts/kill_test.py --kills 10 --method minhash

The recipe filters, deduplicates twice, trains a tokenizer and encodes shards. Every kill prints
when it came and what stood in OUT; after each one the workers must be gone. In half of the rounds
the run is killed again while it resumes. At the end of a round the run goes on to its end, and
corpus/, rejected/, decisions.parquet, tokenizer.json and the shards must equal those of a run that
nobody disturbed, byte by byte. Exit code 0 if all do.

With --method it is `llmcurate dedup --method` on generated documents with copies, and index/ must
be the same too. Then most kills come while the dedup decides: after it says that it does, at a
random moment of the time that deciding took the undisturbed run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.generated_corpus import documents as generated  # noqa: E402

RECIPE = """\
name: kills
read: {partition_bytes: 12000, batch_rows: 40}
steps:
  - c4: {min_sentences: 2}
  - dedup_exact: {key: url, survivor: newest}
  - dedup_exact: {key: text, survivor: longest}
  - tokenizer: {vocab: 400}
  - shards: {shard_tokens: 4000}
"""
PROMISED = (
    *("corpus", "corpus.json", "rejected", "rejected.json", "decisions.parquet", "index"),
    *("tokenizer.json", "manifest.json"),
)
DECIDES = ": deciding over"  # what a run says when a dedup begins to decide
AIMED = 0.7  # share of kills while it does
WORDS = "the house stands on a hill and the river below it runs clear and cold".split()


def write_input(path: Path, count: int) -> None:
    """Documents in which every 5th repeats a text and URLs come twice."""
    draw = random.Random(0)
    text = ""
    with path.open("w", encoding="utf-8") as f:
        for i in range(count):
            if i % 5 != 4:
                text = "\n".join(
                    " ".join(draw.choices(WORDS, k=9)).capitalize() + "." for _ in range(6)
                )
            url = f"https://host.test/{i // 2 if i % 3 else i}"
            date = f"2020-01-{draw.randrange(1, 29):02d}"
            f.write(json.dumps({"id": f"d{i}", "text": text, "url": url, "date": date}) + "\n")


def digests(out: Path) -> dict[str, str]:
    """sha256 of everything that must not differ."""
    tops = [out / name for name in PROMISED] + sorted(out.glob("tokens-*"))
    paths = [p for top in tops for p in ([top] if top.is_file() else sorted(top.rglob("*")))]
    return {
        str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in paths
        if p.is_file()
    }


@dataclass(frozen=True)
class Case:
    """The command that is run. method: of dedup, or "" for the recipe."""

    folder: Path
    method: str
    workers: int

    def start(self, out: Path) -> subprocess.Popen[str]:
        """The command in a process of its own."""
        source = str(self.folder / "in.jsonl")
        arguments = ["run", str(self.folder / "kills.yaml"), source]
        if self.method:
            arguments = ["dedup", source, "--method", self.method]
        arguments += ["-o", str(out), "--workers", str(self.workers)]
        command = [sys.executable, "-m", "curate.cli.app", *arguments]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, cwd=ROOT, stdout=nothing, stderr=pipe, text=True)


def standing(out: Path) -> str:
    """The state that a killed run left, in a few words."""
    stages = sorted(p for p in out.glob("stages/*") if p.is_dir())
    kept = sum(len(list(s.glob("part-*.kept.parquet"))) for s in stages)
    names = ("corpus", "corpus.json", ".corpus-new", "tokenizer.json", "manifest.json")
    there = [n for n in names if (out / n).exists()]
    return f"{len(stages)} stages begun, {kept} partitions, {' '.join(there) or 'no output'}"


def kill(case: Case, out: Path, delay: float, deciding: int = 0) -> bool:
    """Kills a run after delay seconds, counted from where the nth dedup begins to decide if
    `deciding` is n; False where it was over before."""
    process = case.start(out)
    assert process.stderr is not None
    seen = 0
    while seen < deciding and (line := process.stderr.readline()):
        seen += DECIDES in line
    try:
        process.wait(timeout=delay)
        return False
    except subprocess.TimeoutExpired:
        pass
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    gone, alive = psutil.wait_procs(children, timeout=3)
    when = f"{delay:.2f} s after it began {'to decide' if deciding else ''}".strip()
    print(f"  killed {when}: {standing(out)}; {len(gone)} workers gone", flush=True)
    if alive:
        raise SystemExit(f"FAILED: workers {[p.pid for p in alive]} outlive their run")
    return True


def finish(case: Case, out: Path) -> float:
    """Runs to the end; seconds."""
    began = time.perf_counter()
    process = case.start(out)
    error = process.communicate()[1]
    if process.returncode != 0:
        raise SystemExit(f"FAILED: exit code {process.returncode}: {error[-2000:]}")
    return time.perf_counter() - began


def main() -> None:
    """See the module's docstring."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--documents", type=int, help="400; 12000 with --method")
    options.add_argument("--method", default="", help="of dedup, instead of the recipe")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    draw = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = Case(folder, chosen.method, chosen.workers)
        (folder / "kills.yaml").write_text(RECIPE, encoding="utf-8")
        if chosen.method:
            with (folder / "in.jsonl").open("w", encoding="utf-8") as f:
                f.writelines(json.dumps(d) + "\n" for d in generated(chosen.documents or 12_000))
        else:
            write_input(folder / "in.jsonl", chosen.documents or 400)
        length = finish(case, folder / "calm" / "out")
        wanted = digests(folder / "calm" / "out")
        stages = json.loads((folder / "calm" / "out" / "run.json").read_text())["stages"]
        deciding = [s["decided"]["seconds"] for s in stages if s.get("decided")]
        print(
            f"undisturbed: {length:.2f} s, of which {sum(deciding):.2f} s to decide,"
            f" {len(wanted)} files",
            flush=True,
        )
        kills = rounds = aimed = 0
        while kills < chosen.kills:
            out = folder / "killed" / "out"  # of the same name: an index knows whose it is
            shutil.rmtree(out, ignore_errors=True)
            rounds += 1
            again = True
            while again and kills < chosen.kills:
                if chosen.method and draw.random() < AIMED:
                    # A dedup that a killed run has decided on is not decided again.
                    again = kill(case, out, draw.random() * deciding[0], 1)
                    aimed += again
                else:
                    delay = draw.uniform(0.25, 1.0) * length
                    again = kill(case, out, delay)
                    if not again:  # over before: the first run had to compile, and took longer
                        length = delay
                kills += again
                again = again and draw.random() < 0.5
            finish(case, out)
            if digests(out) != wanted:
                names = sorted(set(digests(out).items()) ^ set(wanted.items()))
                differ = ", ".join(sorted({name for name, _ in names}))
                raise SystemExit(f"FAILED: after {kills} kills {differ} differ")
            leftovers = [p.name for p in out.rglob("*") if p.name.startswith(".")]
            if leftovers:
                raise SystemExit(f"FAILED: {leftovers} were left behind")
    inside = f", {aimed} of them from when it began to decide" if chosen.method else ""
    print(f"{kills} kills in {rounds} rounds{inside}: the same bytes every time")


if __name__ == "__main__":
    main()
