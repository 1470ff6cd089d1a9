"""What a finished run says of itself: a sample of its text, and ``train.json``."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from train.accounting import parameters
from train.attends import attends
from train.checkpoint import best, complete
from train.evaluate import HeldOut
from train.files import encode_json, write_atomic
from train.generate import continue_text, load_tokenizer
from train.metrics import read_lines
from train.model.decoder import Decoder
from train.optim.whole import fill, whole

if TYPE_CHECKING:
    from train.run import Run


def summarise(run: Run) -> dict[str, Any]:
    """Sample a text, write ``sample.txt`` and ``train.json``; every process must call."""
    plan, settings, out = run.plan, run.plan.train, run.out
    scores = run.scores or run.evaluate()
    with run.average.swapped() if run.average is not None else nullcontext():
        model = _alone(run)
        if run.ranks.first:
            sample = None
            if run.sampler.tokenizer is not None:  # without one, ids are all there is
                sample = continue_text(
                    model.eval(),
                    load_tokenizer(out / "tokenizer.json"),
                    "",
                    max_tokens=min(200, plan.model.context),
                    temperature=0.8,
                    top_k=50,
                    seed=settings.seed,
                )
                write_atomic(out / "sample.txt", (sample + "\n").encode("utf-8"))
            write_atomic(out / "train.json", encode_json(_figures(run, scores, sample)))
    run.ranks.wait()
    summary: dict[str, Any] = json.loads((out / "train.json").read_bytes())
    return summary


def _alone(run: Run) -> Decoder:
    """The model in one process, which split weights are not."""
    state = {name: (value, whole(value)) for name, value in run.model.state_dict().items()}
    if all(value is gathered for value, gathered in state.values()):
        return run.model
    model = Decoder(run.plan.model, attention=run.plan.train.attention).to(run.ranks.device)
    for name, value in model.state_dict().items():
        fill(value, state[name][1])
    return model


def _figures(run: Run, scores: HeldOut, sample: str | None) -> dict[str, Any]:
    plan, settings, data = run.plan, run.plan.train, run.sampler.summary()
    sources = data["sources"].values()
    lines = read_lines(run.out / "metrics.jsonl")
    losses = [line["loss"] for line in lines if line.get("loss") is not None]
    seconds = sum(line["timing"]["seconds"] for line in lines)
    top = best(complete(run.out / "checkpoints"))
    read = sum(one["seconds"] * one["tokens_per_second"] for one in (x["timing"] for x in lines))
    speed = read / max(seconds, 1e-9)
    timing = {
        "seconds": seconds,
        "tokens_per_second": speed,
        "flops_per_second": speed * run.flops,
        "processes": run.ranks.count,
    }
    if run.peak is not None:
        timing["mfu"] = speed * run.flops / (run.peak * run.ranks.count)
    return {
        "parameters": parameters(plan.model),
        "flops_per_token": run.flops,
        "steps": settings.steps,
        "tokens": run.tokens,
        "epochs": sum(source["tokens"] for source in sources)
        / max(1, sum(source["unique_tokens"] for source in sources)),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "skipped_steps": sum("skipped" in line for line in lines),
        "held_out_loss": scores.loss,
        "bits_per_byte": scores.bits_per_byte,
        "held_out_documents": sum(source["held_out_documents"] for source in sources),
        "held_out_sources": {name: asdict(score) for name, score in scores.sources.items()},
        "scored_documents": scores.documents,
        "scored_tokens": scores.tokens,
        "train_documents": sum(source["documents"] for source in sources),
        "train_tokens": sum(source["unique_tokens"] for source in sources),
        "data": data,
        "device": run.ranks.device.type,
        "attention": attends(plan.model, settings, run.ranks.device),
        "checkpoint": f"checkpoints/step-{settings.steps:07d}",
        "best_checkpoint": f"checkpoints/{top.name}" if top else None,
        "sample": sample,
        "plan": plan.to_json(),
        "timing": timing,
    }
