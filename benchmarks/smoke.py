"""Runs every benchmark on its smallest input, so that none of them rots: one line each.

    python benchmarks/smoke.py                # `make bench-smoke`: all of them
    python benchmarks/smoke.py --slice 7      # the part of commit 7, as `.ci/run` takes it
    python benchmarks/smoke.py bench_c4 ...   # those named

With LLMCURATE_SMOKE in the environment sizes are the second ones of `sized` (shared_texts.py), a
target that is missed is no failure, and a peer that is not installed is skipped and named. Exit
status 1 where a benchmark fails.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import SHARED

HERE = Path(__file__).resolve().parent
SLICES = 10
LIMIT = 300  # seconds of a benchmark
NO_BENCHMARKS = {
    "smoke": "runs the others",
    "shared_texts": "texts and measures that the others import",
    "tokenizer_texts": "texts that the others import",
    "generated_corpus": "documents that the others import",
    "page_variants": "pages that the others import",
    "extract_pages": "pages and scores that the others import",
    "extract_scores": "rows and intervals that the others import",
    "extract_shown": "the page of bench_extract --show",
    "migrate_published": "needs checkouts of other tools",
    "recipe_choices": "patches that bench_recipe imports",
    "published_tokenizers": "needs the tokenizers of other tools",
    "fit_extract": "makes curate/extract/main-text.npz: an hour",
    "fit_profiles": "makes curate/text/profiles.yaml from a run on real pages",
}
# Seconds on two cores, by which slices are even, and arguments for the smallest input.
BENCHMARKS: dict[str, tuple[int, str]] = {
    "archive_readers": (8, "{corpora}/web/web-00000.warc.gz --repeat 1"),
    "attention": (9, ""),
    "attention_compile": (9, "--gpu 90 --head-dim 64 --masks causal"),
    "beside_nanochat": (15, ""),
    "bench_bloom": (8, "--keys 20000 --documents 300"),
    "bench_c4": (2, ""),
    "bench_checkpoint_memory": (24, "--model tiny"),
    "bench_cold": (33, ""),
    "bench_decontaminate": (6, "--documents 200"),
    "bench_driver": (7, "--partitions 100 1000 --linked 100 --ids 5000"),
    "bench_extract": (2, ""),
    "bench_filters": (2, "--documents 300"),
    "bench_generate": (20, ""),
    "bench_help": (4, ""),
    "bench_language": (1, ""),
    "bench_lines": (7, ""),
    "bench_losses": (5, "--rounds 1"),
    "bench_memory": (17, "repeated_value"),
    "bench_metadata": (1, ""),
    "bench_minhash": (10, "--documents 300 --peer-documents 30 --datatrove-documents 50"),
    "bench_mix": (5, "--mib 2"),
    "bench_normalize": (3, ""),
    "bench_opt_out": (3, ""),
    "bench_packing": (1, "--documents 20000"),
    "bench_paragraphs": (10, "--documents 300"),
    "bench_passages": (7, "--documents 300"),
    "bench_perplexity": (3, ""),
    "bench_perplexity_quality": (1, ""),
    "bench_pii": (3, ""),
    "bench_planning": (1, "--files 10 --delay 0.002"),
    "bench_pretrain": (1, "--rounds 1"),
    "bench_quality": (1, "--smaller"),
    "bench_ray": (23, "--documents 100 --rounds 1"),
    "bench_recipe": (
        20,
        "{corpora}/longtext/ru-novels.jsonl.zst -o {out} --variants NorMuon --seeds 0",
    ),
    "bench_refresh": (23, "--documents 300 --rounds 1"),
    "bench_report": (8, "--documents 20000"),
    "bench_resolve": (
        13,
        "--documents 30000 --exact 30000 --passes 1 --only exact",
    ),
    "bench_resolve_large": (14, "--documents 1000 --passes 1 --only vectors"),
    "bench_scale": (1, "--archives 10 --recipe c4-unfiltered"),
    "bench_semantic": (1, "--documents 300"),
    "bench_shuffle": (25, "--rows 100000"),
    "bench_suffix_array": (1, "--runs 1 --of code"),
    "bench_tokenizer_algorithms": (1, "--mb 6 --vocab 1000"),
    "bench_tokenizer_compression": (1, "--mb 6"),
    "bench_tokenizer_encode": (1, "--mb 0.1 --passes 1"),
    "bench_tokenizer_latency": (1, "--passes 1"),
    "bench_tokenizer_limits": (16, ""),
    "bench_tokenizer_shards": (1, "--mb 0.5 --passes 1"),
    "bench_tokenizer_sizes": (1, "--mb 0.5 --passes 1"),
    "bench_tokenizer_spm": (1, "--mb 0.1 --passes 1"),
    "bench_tokenizer_thai": (6, "--mb 0.5"),
    "bench_tokenizer_train": (6, "--mb 0.5 --of all"),
    "bench_tokenizer_unigram": (6, "--mb 0.5 --of English --vocab 1000"),
    "bench_training_memory": (14, ""),
    "bench_url": (2, ""),
    "bench_warc_to_text": (1, "--runs 1"),
    "bench_whatif": (6, "--documents 20000 --times 1"),
    "dedup_memory": (9, "--gb 0.01 --methods exact,minhash"),
    "hostile_pages": (3, ""),
    "interval_coverage": (1, "3"),
    "langid_model": (1, ""),
    "language_preparation": (1, ""),
    "language_profiles": (
        4,
        "{corpora}/longtext/th-thaigov.jsonl.zst --lang th --limit 60"
        " --model {corpora}/models/lid.176.ftz",
    ),
    "languages": (6, "--langs th --set language.model={corpora}/models/lid.176.ftz"),
    "lm_eval_export": (3, "--steps 5"),
    "migrate_decisions": (3, "20"),
    "minhash_memory": (5, "--documents 20000 40000"),
    "minhash_million": (5, "--documents 5000"),
    "parity_datatrove": (2, "60"),
    "parity_passages": (2, "40"),
    "pii_languages": (1, ""),
    "planted_mixture": (1, "{out} --total=200000 --runs=4 --confirm=1 --tokens=3000"),
    "pretrain": (15, ""),
    "real_warc_table": (6, "{corpora}/real_warc"),
    "recipe_extractors": (1, ""),
    "semantic_versions": (1, "--pages 3"),
    "sentence_counter": (8, ""),
    "tokenizer_conversions": (1, "--mb 0.2"),
    "tokenizer_memory": (7, "--gb 0.01"),
}
OURS = ("curate", "tokenize_kit", "train", "llmcurate", "benchmarks", "pipelines")


def run(name: str) -> tuple[bool, str]:
    """If a benchmark did what it should, and its line."""
    script = HERE / f"{name}.py"
    _, arguments = BENCHMARKS[name]
    if "{corpora}" in arguments and not SHARED.is_dir():
        return True, f"{name}: skipped, its texts are not in {SHARED}"
    smoke = ["--smoke"] if '"--smoke"' in script.read_text(encoding="utf-8") else []
    environment = {**os.environ, "LLMCURATE_SMOKE": "1", "PYTHONPATH": str(HERE.parent)}
    before = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        words = arguments.format(out=f"{folder}/out", corpora=SHARED / "corpora").split()
        try:
            done = subprocess.run(
                [sys.executable, str(script), *words, *smoke],
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return False, f"{name}: not done after {LIMIT} s"
    took = f" ({cpu_seconds() - before:.0f} s of CPU)"
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    missing = re.findall(r"No module named '(\w+)", done.stderr)
    if missing and missing[-1] not in OURS:
        return True, f"{name}: skipped, {missing[-1]} is not installed"
    if done.returncode:
        return False, "\n".join([f"{name}: failed{took}", *lines[-15:]])
    figures = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return True, f"{name}: {' '.join(figures[-1].split())[:160] if figures else 'done'}{took}"


def cpu_seconds() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def slice_of(number: int) -> list[str]:
    """The benchmarks of one of SLICES parts that take about as long as each other."""
    parts: list[list[str]] = [[] for _ in range(SLICES)]
    for name in sorted(BENCHMARKS, key=lambda name: -BENCHMARKS[name][0]):
        min(parts, key=seconds).append(name)
    return parts[number % SLICES]


def seconds(names: Iterable[str]) -> int:
    """Seconds of benchmarks one after the other."""
    return sum(BENCHMARKS[name][0] for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--slice", type=int)
    asked = parser.parse_args()
    names = asked.names or (list(BENCHMARKS) if asked.slice is None else slice_of(asked.slice))
    failed = []
    for name in names:
        good, line = run(name)
        print(line, flush=True)
        failed += [] if good else [name]
    if failed:
        print(f"failed: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
