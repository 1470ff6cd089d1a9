"""lm-evaluation-harness on an exported model: it runs, and scores as we do.

    python benchmarks/lm_eval_export.py [--steps N]

A small model is trained on made-up sentences in which the end of a sentence follows from its
beginning, exported, and judged by the harness (benchmarks/peer_env.sh lm_eval) on a multiple-choice
task and on running text of the same kind, from local files. Exit status 1 where a log-likelihood of
the harness differs from ours by more than 1e-3, or the model answers less than half of the
questions (one in four by chance).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import without
from curate.cli.training import export_model
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.writer import Layout, encode_shards
from train.config import TrainConfig
from train.data.vocabulary import roles_of_run
from train.generate import load
from train.loop.pretrain import pretrain
from train.model.presets import preset

ROOT = Path(__file__).resolve().parents[1]
HARNESS = ROOT / ".bench" / "lm_eval" / "bin" / "python"
COLOURS = {"fox": "red", "sky": "blue", "grass": "green", "sun": "yellow"}
PLACES = ("by the river", "in the wood", "on the hill", "at the gate", "under the bridge")
CHOICE = """\
task: made_up_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/choice.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
"""
TEXT = """\
task: made_up_text
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/text.jsonl
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list:
  - metric: bits_per_byte
"""


def sentence(draw: random.Random) -> str:
    thing = draw.choice(list(COLOURS))
    return f"The {thing} {draw.choice(PLACES)} is {COLOURS[thing]}."


def learn(folder: Path, steps: int) -> None:
    draw = random.Random(0)
    texts = [" ".join(sentence(draw) for _ in range(8)) for _ in range(400)]
    train_tokenizer(texts, folder / "tokenizer", vocab=320)
    rows = [{"id": str(index), "text": text} for index, text in enumerate(texts)]
    tokens = folder / "tokenizer" / "tokenizer.json"
    batch = pa.RecordBatch.from_pylist(rows)
    encode_shards([batch], tokens, folder / "shards", Layout())
    plan = TrainConfig(steps=steps, rows=8, context=64, device="cpu", eval_every=steps)
    pretrain(
        folder / "shards", folder / "run", model=preset("tiny", vocab=320, context=256), train=plan
    )


def write_tasks(folder: Path) -> None:
    draw = random.Random(1)
    questions = []
    for thing in COLOURS:
        for place in PLACES:
            choices = list(COLOURS.values())
            questions.append(
                {
                    "question": f"{sentence(draw)} The {thing} {place} is",
                    "choices": choices,
                    "answer": choices.index(COLOURS[thing]),
                }
            )
    texts = [{"text": " ".join(sentence(draw) for _ in range(4))} for _ in range(5)]
    for name, rows in (("choice", questions), ("text", texts)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "choice.yaml").write_text(CHOICE.format(folder=folder), encoding="utf-8")
    (folder / "text.yaml").write_text(TEXT.format(folder=folder), encoding="utf-8")


def judge(
    model: Path, folder: Path, task: str, begin: bool
) -> tuple[dict[str, Any], list[tuple[str, str, float]]]:
    """The harness's figures, and (before, scored text, log-likelihood) of every request.

    begin: whether the tokenizer begins each text with the end-of-text token, as training did. For
    running text the harness does so itself, and would score a second one.
    """
    out = folder / "out" / task
    command = [
        str(HARNESS), "-m", "lm_eval", "run", "--model", "hf", "--model_args",
        f"pretrained={model},dtype=float32,add_bos_token={begin}", "--tasks", task,
        "--include_path", str(folder), "--device", "cpu", "--batch_size", "4", "--log_samples",
        "--output_path", str(out),
    ]  # fmt: skip
    quiet = {
        "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1",
        "HF_HOME": str(folder / "cache"), "PYTHONPATH": "",
    }  # fmt: skip
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"lm_eval ended with {done.returncode}:\n{done.stderr[-3000:]}")
    results = json.loads(next(out.rglob("results_*.json")).read_bytes())["results"][task]
    requests = []
    for file in sorted(out.rglob("samples_*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            for number, answer in enumerate(sample["resps"]):
                asked = sample["arguments"][f"gen_args_{number}"]
                value = answer[0][0] if isinstance(answer[0], list) else answer[0]
                before, scored = asked["arg_0"], asked.get("arg_1")
                pair = ("", before) if scored is None else (before, scored)
                requests.append((*pair, float(value)))
    return results, requests


@torch.no_grad()
def score(run: Path, requests: list[tuple[str, str, float]]) -> float:
    """The largest difference between the harness's log-likelihoods and ours."""
    model, tokenizer = load(run)
    before_text = list(roles_of_run(run / "tokenizer.json", tokenizer).before)
    assert before_text
    worst = 0.0
    for before, scored, theirs in requests:
        prompt = [*before_text, *tokenizer.encode(before, add_special_tokens=False).ids]
        ids = [*before_text, *tokenizer.encode(before + scored, add_special_tokens=False).ids]
        chances = model(torch.tensor([ids]))[0].double().log_softmax(dim=-1)
        ours = sum(float(chances[i - 1, ids[i]]) for i in range(len(prompt), len(ids)))
        worst = max(worst, abs(ours - theirs))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    steps = parser.parse_args().steps
    without("lm-evaluation-harness", HARNESS)
    if not HARNESS.exists():
        sys.exit("no lm-evaluation-harness: sh benchmarks/peer_env.sh lm_eval")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        learn(folder, steps)
        from curate.cli.options import CommandOptions

        export_model([str(folder / "run")], "float32", CommandOptions(folder / "hf"))
        write_tasks(folder)
        choice, requests = judge(folder / "hf", folder, "made_up_choice", begin=True)
        text, more = judge(folder / "hf", folder, "made_up_text", begin=False)
        requests += more
        worst = score(folder / "run", requests)
    accuracy, bits = choice["acc,none"], text["bits_per_byte,none"]
    print(f"questions answered   {accuracy:.2f}")
    print(f"bits per byte        {bits:.3f}")
    print(f"log-likelihoods      {len(requests)}, at most {worst:.1e} from ours")
    return 0 if worst <= 1e-3 and accuracy >= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
