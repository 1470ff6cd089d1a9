"""Training as a recipe step: thin settings over train."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from curate.disk.files import text_digest
from curate.errors import RunFailed, UsageError, as_failure
from curate.steps.contracts import Product, ProductContext, sha256

if TYPE_CHECKING:
    from train.config import TrainConfig


LAST_LINES = 5  # of what the processes said, where they failed


def pretrain_in(
    processes: int,
    shards: Path | None,
    out: Path,
    *,
    model: str,
    settings: dict[str, Any],
    fresh: bool,
    on_progress: Callable[[dict[str, Any]], None],
    on_notice: Callable[[str], None],
) -> dict[str, Any]:
    """As `train.loop.pretrain.pretrain`, by as many processes of `python -m train`; raises
    RunFailed with the error they ended with, and its exit code."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "train", str(shards or "-"), str(out)]
    command += ["--json", "--model", model, *(["--fresh"] if fresh else [])]
    for name, value in settings.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    summary: dict[str, Any] | None = None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as run:
            assert run.stdout is not None
            try:
                for line in run.stdout:
                    event = _object(line)
                    if "summary" in event:
                        summary = event["summary"]
                    elif "notice" in event:
                        on_notice(event["notice"])
                    elif "step" in event:
                        on_progress(event)
            except BaseException:
                run.terminate()  # torchrun ends its processes
                raise
        if run.returncode == 0 and summary is not None:
            return summary
        errors.seek(0)
        raise _failure(errors.read(), run.returncode)


def _object(line: str) -> dict[str, Any]:
    """A line of `--json`; what a library prints beside it is nothing."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _failure(output: str, code: int) -> RunFailed:
    lines = [line for line in output.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("error: ")]
    shown = ours[:1] or lines[-LAST_LINES:] or [f"torchrun ended with status {code}"]
    failure = RunFailed(" / ".join(shown).removeprefix("error: "))
    if ours and "exitcode  : 2" in output:
        failure.exit_code = 2
    return failure


def _shards_digest(path: Path) -> str:
    """The digest of shards in a stage's name: of their manifest, or names and sizes of files; the
    trainer looks at what is in these."""
    if (path / "manifest.json").is_file():
        return sha256(path / "manifest.json")
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        entries = [(file.name, file.stat().st_size) for file in files if file.is_file()]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    return text_digest(repr(entries))


def _weights_digest(folder: Path) -> str:
    """The digest of a model in a stage's name: of its files of weights."""
    digests = []
    for file in sorted(folder.rglob("*.safetensors")):
        facts = file.stat()
        digests.append((str(file.relative_to(folder)), _read_once(file, facts.st_mtime_ns)))
    return text_digest(repr(digests))


@cache
def _read_once(path: Path, changed: int) -> str:
    """The digest of a large file, as long as it does not change."""
    from train.files import sha256 as large_file

    return large_file(path)


def _placeless(settings: Any) -> Any:
    """Without the folders of sources: their content is hashed."""
    if isinstance(settings, dict):
        return {name: _placeless(value) for name, value in settings.items() if name != "shards"}
    return [_placeless(v) for v in settings] if isinstance(settings, (list, tuple)) else settings


class PretrainProduct(Product):
    """Trains a small decoder on token shards: checkpoints, metrics, a sample."""

    name: ClassVar[str] = "pretrain"
    makes: ClassVar[str] = "model"
    needs: ClassVar[tuple[str, ...]] = ("shards",)
    reads_corpus: ClassVar[bool] = False
    in_place: ClassVar[bool] = True

    shards: str | None = Field(
        None,
        description="Folder of the token shards. Without a value those that the recipe encodes.",
    )
    model: str = Field(
        "tiny",
        description="Name of a model preset, or the folder of a model whose training goes on.",
    )
    steps: int = Field(400, ge=1, description="Number of steps.")
    rows: int = Field(4, ge=1, description="Rows of `context` tokens in the batch of a step.")
    context: int = Field(256, ge=8, description="Tokens in a row.")
    objective: str = Field("causal", description="The objective: `causal` or `prefix`.")
    optimizer: str = Field(
        "adamw", description="The optimizer: `adamw`, `muon`, `adafactor` or `lion`."
    )
    lr: float = Field(3e-3, gt=0, description="Learning rate after warm-up.")
    schedule: str = Field(
        "cosine",
        description=(
            "The learning rate's schedule after warm-up: `cosine`, `wsd`, `wsd-sqrt`, "
            "`linear`, `inverse-sqrt` or `constant`."
        ),
    )
    lr_floor: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of the learning rate that is left where the schedule ends.",
    )
    warmup: int = Field(
        20, ge=0, description="Steps of warm-up, in which the learning rate rises linearly."
    )
    decay: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Share of the steps over which the schedules `wsd` and `wsd-sqrt` fall.",
    )
    weight_decay: float = Field(0.1, ge=0, description="Weight decay.")
    beta1: float = Field(
        0.9, ge=0, le=1, description="Decay of the average of gradients (AdamW and Lion)."
    )
    beta2: float = Field(
        0.95,
        ge=0,
        le=1,
        description="Decay of the average of squared gradients (AdamW), or of gradients (Lion).",
    )
    eps: float = Field(
        1e-8,
        gt=0,
        description="Number added to the denominator of an update, so that it is never 0.",
    )
    momentum: float = Field(0.95, ge=0, le=1, description="Momentum of Muon.")
    clip: float = Field(
        1.0, gt=0, description="Largest norm of the gradient; a larger one is scaled down to it."
    )
    z_loss: float = Field(
        0.0,
        ge=0,
        description="Weight of the square of the log normaliser in the loss; 0 leaves it out.",
    )
    ema: float = Field(
        0.0, ge=0, lt=1, description="Decay of an average of the weights; 0 keeps none."
    )
    packing: str = Field(
        "concat", description="How documents fill rows: `concat`, `best-fit` or `padding`."
    )
    sources: tuple[dict[str, Any], ...] = Field(
        (), description="Folders of shards with a weight or an amount each, in place of one folder."
    )
    stages: tuple[dict[str, Any], ...] = Field(
        (),
        description=(
            "Stretches of the training with settings of their own; their steps add up to `steps`."
        ),
    )
    max_epochs: float | None = Field(
        None,
        gt=0,
        description="Largest number of epochs of any source. Without a value there is no limit.",
    )
    vocab_size: int | None = Field(
        None, ge=1, description="Size of the vocabulary, for shards that do not state it."
    )
    end_of_text: int | None = Field(
        None,
        ge=0,
        description="Id of the token that ends documents, for shards that do not state it.",
    )
    tokenizer: str | None = Field(
        None, description="Path of a tokenizer.json, for shards without one."
    )
    token_dtype: str | None = Field(
        None,
        description=(
            "Type of the numbers in OLMo's .npy files. Without a value it follows from the "
            "size of the vocabulary."
        ),
    )
    held_out: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of the documents that the model is scored on and not trained on.",
    )
    attention: str = Field(
        "auto",
        description=(
            "Back end of attention: `sdpa`, `triton`, `flex` or `eager`; `auto` takes the "
            "fastest that the device has."
        ),
    )
    precision: str = Field(
        "auto",
        description="Precision of training: `fp32`, `bf16`, or `auto`, which is bf16 on a GPU.",
    )
    device: str = Field("auto", description="The device: `auto`, `cpu`, `cuda` or `cuda:N`.")
    accumulate: int = Field(
        1, ge=1, description="Micro-batches that the rows of a step are cut into, on each process."
    )
    loss_chunk: int = Field(
        0, ge=0, description="Tokens whose logits are held at once; 0 takes a number that fits."
    )
    recompute: bool = Field(
        False,
        description=(
            "Compute activations inside blocks again in the backward pass instead of keeping them."
        ),
    )
    compile: bool = Field(False, description="Compile the model with torch.compile.")
    processes: int = Field(1, ge=1, description="Number of processes, one a GPU.")
    parallel: str = Field(
        "ddp",
        description=(
            "How several processes share the work: `ddp` copies the model, `fsdp` shards it."
        ),
    )
    spike: str = Field(
        "stop",
        description=(
            "What follows a loss spike: `stop`, `skip` the step, or `rollback` to the last "
            "checkpoint."
        ),
    )
    spike_factor: float = Field(
        0.0,
        ge=0,
        description=(
            "Deviations above the median of the loss from which on it is a spike; 0 counts "
            "only a loss that is not a number."
        ),
    )
    spike_window: int = Field(
        64, ge=1, description="Steps that the median and the deviation of the loss are taken over."
    )
    spike_batches: int = Field(1, ge=1, description="Batches that are skipped after a rollback.")
    log_every: int = Field(10, ge=1, description="Steps between two writings of metrics.")
    tensorboard: bool = Field(False, description="Write metrics for TensorBoard too.")
    eval_every: int = Field(
        50, ge=1, description="Steps between two evaluations of the held-out documents."
    )
    eval_tokens: int = Field(
        16_384, ge=1, description="Largest number of held-out tokens in an evaluation."
    )
    checkpoint_every: int = Field(50, ge=1, description="Steps between two checkpoints.")
    keep_checkpoints: int = Field(
        3, ge=1, description="Number of the newest checkpoints that are kept."
    )
    keep_best: bool = Field(
        True, description="Keep the checkpoint of the lowest held-out loss too."
    )
    async_checkpoints: bool = Field(False, description="Write checkpoints while training goes on.")
    seed: int = Field(0, ge=0, description="Seed of the weights and of the order of the rows.")

    @model_validator(mode="before")
    @classmethod
    def _steps_of_stages(cls, values: Any) -> Any:
        """Stages say how many steps there are."""
        if isinstance(values, dict) and values.get("stages") and "steps" not in values:
            numbers = [s.get("steps", 0) if isinstance(s, dict) else 0 for s in values["stages"]]
            if all(isinstance(steps, int) for steps in numbers):
                return values | {"steps": sum(numbers)}
        return values

    @model_validator(mode="after")
    def _checked(self) -> PretrainProduct:
        from train.config import stages_of
        from train.errors import TrainError

        try:
            stages_of(self._config())
        except TrainError as error:
            raise ValueError(str(error)) from None
        return self

    def _config(self) -> TrainConfig:
        from train.config import TrainConfig
        from train.settings import from_dict

        return from_dict(TrainConfig, self._settings(), "pretrain")

    def _settings(self) -> dict[str, Any]:
        """Those of training itself."""
        return self.model_dump(mode="json", exclude={"shards", "model", "processes"})

    def _own(self) -> list[str]:
        """Folders of shards that the settings name."""
        stages = [s for stage in self.stages for s in stage.get("sources", ())]
        named = [source["shards"] for source in (*self.sources, *stages)]
        return [self.shards, *named] if self.shards else named

    def _takes_default(self) -> bool:
        """Whether something is to be trained on that no source names."""
        open_stage = not self.stages or any(not stage.get("sources") for stage in self.stages)
        return not self.shards and not self.sources and open_stage

    def identity(self) -> dict[str, Any]:
        """Without what changes no result, so that a run stopped goes on under other such settings,
        after a spike for instance."""
        from train.config import TrainConfig
        from train.model.presets import PRESETS

        digests = [_shards_digest(Path(path)) for path in self._own()]
        identity, free = super().identity(), TrainConfig.FREE | {"processes"}
        settings = {k: v for k, v in identity["settings"].items() if k not in free}
        if (folder := Path(self.model)).is_dir() and self.model not in PRESETS:
            settings["model"] = _weights_digest(folder)
        return identity | {"settings": _placeless(settings), "shards": digests}

    def lineage(self) -> dict[str, Any]:
        """All but the number of steps: training says itself whether it may go on to more."""
        identity = self.identity()
        del identity["settings"]["steps"]
        return identity

    def build(self, context: ProductContext) -> dict[str, Any]:
        try:
            from train.errors import TrainError
            from train.loop.pretrain import pretrain
        except ModuleNotFoundError as error:
            raise RunFailed(
                f"training needs {error.name}: pip install 'llmcurate[train]'"
            ) from None
        shards = Path(self.shards) if self.shards else None
        if self._takes_default():
            if "shards" not in context.inputs:
                raise UsageError("pretrain: name a folder of shards, or encode them in the recipe")
            shards = context.inputs["shards"]
        if self.processes > 1:
            summary = pretrain_in(
                self.processes,
                shards,
                context.out,
                model=self.model,
                settings=self._settings(),
                fresh=context.fresh,
                on_progress=lambda line: _progress(line, context),
                on_notice=context.say,
            )
            return {"summary": summary, "metrics": _curve(context.out / "metrics.jsonl")}
        try:
            summary = pretrain(
                shards,
                context.out,
                model=self.model,
                train=self._config(),
                resume=not context.fresh,
                on_progress=lambda line: _progress(line, context),
                on_notice=context.say,
            )
        except TrainError as error:
            raise as_failure(error) from None
        return {"summary": summary, "metrics": _curve(context.out / "metrics.jsonl")}


def _progress(line: dict[str, Any], context: ProductContext) -> None:
    """A step's figures on the way; a spike is told at once."""
    if "skipped" in line:
        documents = line.get("documents", [])
        names = f"; documents: {', '.join(documents[:3])}" if documents else ""
        more = f" and {len(documents) - 3} more" if len(documents) > 3 else ""
        context.say(f"step {line['step']} changed nothing: {line['skipped']}{names}{more}")
    context.progress(line)


def _curve(path: Path, points: int = 200) -> list[dict[str, Any]]:
    """Of at most so many lines of the metrics, and of all that were scored or skipped: what the
    report draws."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    stride = max(1, len(lines) // points)
    always = ("held_out", "skipped")
    keep = [
        m
        for i, m in enumerate(lines)
        if i % stride == 0 or i == len(lines) - 1 or any(name in m for name in always)
    ]
    names = ("step", "loss", "held_out", "lr", "grad_norm", "skipped", "documents")
    return [{k: m[k] for k in names if k in m} for m in keep]
