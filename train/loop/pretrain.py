"""Pre-train a model on token shards: the training loop, its log, and resuming.

OUT/  checkpoints/step-0000020/   the state after 20 steps; see checkpoint.py
      metrics.jsonl               a line per step: reproducible figures, and "timing"
      train.json                  the summary; written last, so a run with it is finished
      sample.txt  tokenizer.json  a generated text; the tokenizer of the shards
      token_roles.json            the special tokens as trained, and other files of the tokenizer
      shards.json                 the paths of the shards (step_documents.py)
      compared.jsonl              the shard files already checked against the manifest
      spikes.json                 the steps whose data is skipped after a rollback
      metrics.csv  tensorboard/  wandb/  profile/   optional
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import clear_dead, write_atomic
from llmcurate.base.disk.sealed_json import encode_json, seal, unseal
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.messages import json_values
from llmcurate.base.roles import copy_beside
from llmcurate.base.tokenizer_file import load_tokenizer, roles_of
from train.config import TrainConfig
from train.data.chat import FILE as CHAT_TEMPLATE
from train.data.feed import Feed
from train.data.shards import Comparison
from train.data.vocabulary import as_trained, roles_of_run
from train.device import autocast, device_notices, keep_compiled, pick_device, same_bits, uncompiled
from train.generate import Sampling, complete
from train.loop.backends import backends_line, layer_backends, try_kernels
from train.loop.distributed import Ranks, ranks, reshard
from train.loop.evaluate import fingerprints, open_texts, text_notice
from train.loop.memory import naming_memory
from train.loop.start import make_plan
from train.loop.training import Evaluation, Progress, Run
from train.measure.accounting import active_parameters, parameters
from train.measure.step_documents import write_shard_paths
from train.model.config import ModelConfig
from train.model.plugins import plugin_errors
from train.runs import checkpoint
from train.runs.metrics import read_lines
from train.runs.plan import Plan


def summarise(run: Run) -> dict[str, Any]:
    """Generate a text; write ``sample.txt`` and ``train.json``. Every process must call it."""
    plan, settings, out = run.plan, run.plan.train, run.out
    scores = run.scores or run.evaluate()
    with uncompiled(), run.average.swapped() if run.average is not None else nullcontext():
        sample = None
        # If the weights are split over processes, all processes generate together.
        together = run.saver.parts
        writes = plan.model.form == "decoder" and plan.model.writes
        readable = run.sampler.tokenizer is not None and writes
        if (run.ranks.first or together) and readable:
            with autocast(run.ranks.device, settings.precision) if together else nullcontext():
                tokenizer = load_tokenizer(out / "tokenizer.json")
                run.model.special = roles_of_run(out / "tokenizer.json", tokenizer)
                sample = complete(
                    run.model.eval(),
                    tokenizer,
                    [""],
                    max_tokens=min(200, plan.model.context),
                    sampling=Sampling(temperature=0.8, top_k=50),
                    seed=settings.seed,
                    agree=run.ranks.agreed if together else None,
                )[0].text
            reshard(run.model)
    if run.ranks.first:
        if sample is not None:
            write_atomic(out / "sample.txt", (sample + "\n").encode("utf-8"))
        write_atomic(out / "train.json", encode_json(seal(_figures(run, scores, sample))))
    run.ranks.wait()
    return unseal(json.loads((out / "train.json").read_bytes()))


def _figures(run: Run, evaluation: Evaluation, sample: str | None) -> dict[str, Any]:
    plan, settings, data = run.plan, run.plan.train, run.sampler.summary()
    scores = evaluation.held_out
    sources = data.sources.values()
    lines = read_lines(run.out / "metrics.jsonl")
    losses = [line["loss"] for line in lines if line.get("loss") is not None]
    top = checkpoint.checkpoint_to_use(run.out)
    best = checkpoint.load_state(top).held_out if top else None
    timings = [line["timing"] for line in lines]
    seconds = sum(each["seconds"] for each in timings)
    read = sum(each["seconds"] * each["tokens_per_second"] for each in timings)
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
        **({"active_parameters": active_parameters(plan.model)} if plan.model.sparse else {}),
        # the values of the last line that has them
        **{name: line[name] for name in ("load", "loads") for line in lines if name in line},
        **({"converted": lines[0]["converted"]} if lines and "converted" in lines[0] else {}),
        "flops_per_token": run.flops,
        "steps": settings.steps,
        "tokens": run.tokens,
        "epochs": data.epochs,
        "first_loss": losses[0] if losses and lines[0]["step"] == 1 else None,
        "last_loss": losses[-1] if losses else None,
        "skipped_steps": sum("skipped" in line for line in lines),
        "held_out_loss": scores.loss,
        "bits_per_byte": scores.bits_per_byte,
        **({"held_out_terms": scores.terms} if scores.terms else {}),
        "held_out_documents": sum(source.held_out_documents for source in sources),
        "held_out_sources": json_values(scores.sources),
        "scored_documents": scores.documents,
        "scored_tokens": scores.tokens,
        "eval": json_values(evaluation.texts),
        "eval_shards": fingerprints(run.texts),
        "train_documents": sum(source.documents for source in sources),
        "train_tokens": sum(source.unique_tokens for source in sources),
        "data": json_values(data),
        "device": run.ranks.device.type,
        "attention": json_values(layer_backends(plan.model, settings, run.ranks.device)),
        "checkpoint": f"checkpoints/step-{settings.steps:07d}",
        "best_checkpoint": f"checkpoints/{top.name}" if top and best else None,
        "best_held_out_loss": best["loss"] if best else None,
        "sample": sample,
        "plan": plan.to_json(),
        "timing": timing,
    }


def pretrain(
    shards: Path | None,
    out: Path,
    *,
    model: ModelConfig | str = "tiny",
    changes: dict[str, Any] | None = None,
    train: TrainConfig | None = None,
    on_progress: Progress | None = None,
    on_notice: Callable[[str], object] = bool,
) -> dict[str, Any]:
    """Train ``model`` on the shards, or on the sources in the settings, and return the summary.
    ``model`` is a configuration, the name of a preset, or the folder of a trained model to continue
    from. ``changes`` are changes to the model's settings, such as ``{"attention.window": 64}``.

    Started again with the same settings, a stopped run resumes from its newest checkpoint. On a CPU
    (same PyTorch, same number of threads), or with ``deterministic`` on a GPU (same PyTorch, same
    kind of GPU), the resumed run ends with the same bits as one that never stopped. A finished run
    is not trained again. It is scored again if the texts have changed.

    ``on_progress`` is called with each line of metrics, which also has the run's ``steps``, its
    ``epochs`` so far and ``seconds_left`` (None before it is known). ``on_notice`` is called with
    lines of text before training and while it compiles. Raises ``LlmcurateError``, also if the run
    in ``out`` has other settings. Training that diverges stops and keeps its last checkpoint."""
    with plugin_errors():
        plan, data = make_plan(shards, model, train or TrainConfig(), changes)
    device = pick_device(plan.train.device)
    keep_compiled()
    with plugin_errors(), same_bits(device, plan.train.deterministic), ranks(plan.train) as group:
        if not group.first:
            on_progress, on_notice = None, bool
        return _pretrain(plan, data, out, on_progress, on_notice, group)


def _pretrain(
    plan: Plan,
    data: Feed,
    out: Path,
    on_progress: Progress | None,
    on_notice: Callable[[str], object],
    group: Ranks,
) -> dict[str, Any]:
    checkpoints, texts = out / "checkpoints", open_texts(data)
    if group.first:
        out.mkdir(parents=True, exist_ok=True)
        checkpoint.refuse_link(checkpoints)
        clear_dead(out)
        checkpoint.set_aside_damaged(checkpoints, on_notice)
    group.wait()
    start = start_from(plan, checkpoints)
    done = start is not None and checkpoint.step_of(start) == plan.train.steps
    if done and start is not None:
        summary = _finished(out / "train.json", start)
        if (
            summary is not None
            and summary.get("eval_shards", {}) == fingerprints(texts)
            and summary["plan"]["train"]["eval_tokens"] == plan.train.eval_tokens
        ):
            return summary
    group.wait()  # all have read train.json before it is removed
    if group.first:
        (out / "train.json").unlink(missing_ok=True)
        _write_tokenizer(plan, data, out)
        write_shard_paths(out, data)
    failed = try_kernels(plan.model, plan.train, group.device)
    for line in (
        *data.notices(),
        *(text_notice(name, text) for name, text in texts.items()),
        *failed,
        backends_line(layer_backends(plan.model, plan.train, group.device)),
        *device_notices(group.device, plan.train.deterministic),
    ):
        on_notice(line)
    if not group.first:
        with naming_memory(plan, group.device, group.count):
            run = Run(plan, data, out, group, texts=texts)
            run.train_to_end(start, on_progress)
        return summarise(run)
    first = 0 if start is None else checkpoint.step_of(start)
    comparison = Comparison(data.shards.values(), out / "compared.jsonl", first)
    try:
        with naming_memory(plan, group.device, group.count):
            run = Run(plan, data, out, group, comparison.done, on_notice, texts)
            run.train_to_end(start, on_progress)
        comparison.wait()
        return summarise(run)
    finally:
        comparison.close()
        if comparison.failed:
            for path in checkpoint.complete(checkpoints):
                if checkpoint.step_of(path) > comparison.since:
                    checkpoint.set_aside(path)


def _write_tokenizer(plan: Plan, data: Feed, out: Path) -> None:
    """Write tokenizer.json, the files that belong to it, and the roles of its special tokens. For a
    decoder, the roles name the ids that training reads before each document and at its end."""
    path, tokenizer = out / "tokenizer.json", data.vocabulary.written()
    path.unlink(missing_ok=True)
    if tokenizer is None or data.tokenizer is None:
        return
    write_atomic(path, tokenizer)
    if plan.start is not None:
        copy_beside(plan.start.tokenizer, out)
    copy_beside(data.tokenizer, out)
    if data.template is not None:
        write_atomic(out / CHAT_TEMPLATE, data.template.encode())
    roles = roles_of(path, load_tokenizer(path))
    if plan.model.form == "decoder":
        first = next(iter(data.shards.values()))
        roles = as_trained(roles, first.before, first.end)
    roles.write(out)


def start_from(plan: Plan, checkpoints: Path) -> Path | None:
    """Return the checkpoint to resume from, or None if the run has no checkpoint. Raises
    ``LlmcurateError`` if the resumed run would differ from one that never stopped."""
    start = checkpoint.newest(checkpoints)
    if start is None:
        return None
    earlier = checkpoint.load_plan(start)
    if differ := plan.differences(earlier):
        raise UsageError(
            f"{start} was made under other settings ({'; '.join(differ)}): use those, or another"
            " output folder"
        )
    shared = plan.shared_steps(earlier)
    if checkpoint.step_of(start) > shared:
        early = [
            path for path in checkpoint.complete(checkpoints) if checkpoint.step_of(path) <= shared
        ]
        first = f"delete those after {early[-1].name}" if early else "use another output folder"
        raise UsageError(
            f"{start} was made for {counted(earlier.train.steps, 'step')}, and from step"
            f" {int(shared) + 1} "
            f"the learning rates of schedule {plan.train.schedule} depend on the number: use "
            f"{counted(earlier.train.steps, 'step')}, or to train {plan.train.steps}, {first}"
        )
    return start


def _finished(path: Path, last: Path) -> dict[str, Any] | None:
    try:
        checkpoint.tokenizer_of(last)
        summary = unseal(json.loads(path.read_bytes()))
        return summary if "plan" in summary else None
    except (OSError, ValueError, LlmcurateError):
        return None
