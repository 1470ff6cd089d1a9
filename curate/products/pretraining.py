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

from curate.disk.digests import text_digest
from curate.errors import RunFailed, UsageError, as_failure
from curate.steps.contracts import Product, ProductContext, sha256

if TYPE_CHECKING:
    from train.config import TrainConfig


# Training in several processes: torchrun starts them, this one reports.

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
                    found = _object(line)
                    if "summary" in found:
                        summary = found["summary"]
                    elif "notice" in found:
                        on_notice(found["notice"])
                    elif "step" in found:
                        on_progress(found)
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
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _failure(said: str, code: int) -> RunFailed:
    lines = [line for line in said.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("error: ")]
    shown = ours[:1] or lines[-LAST_LINES:] or [f"torchrun ended with status {code}"]
    failure = RunFailed(" / ".join(shown).removeprefix("error: "))
    if ours and "exitcode  : 2" in said:
        failure.exit_code = 2
    return failure


def _shards_digest(path: Path) -> str:
    """What stands for shards in a stage's name: their manifest, or names and sizes of files; the
    trainer looks at what is in these."""
    if (path / "manifest.json").is_file():
        return sha256(path / "manifest.json")
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        found = [(file.name, file.stat().st_size) for file in files if file.is_file()]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    return text_digest(repr(found))


def _weights_digest(folder: Path) -> str:
    """What stands for a model in a stage's name: its files of weights."""
    found = []
    for file in sorted(folder.rglob("*.safetensors")):
        facts = file.stat()
        found.append((str(file.relative_to(folder)), _read_once(file, facts.st_mtime_ns)))
    return text_digest(repr(found))


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

    shards: str | None = Field(None, description="folder of shards; none: the recipe's own")
    model: str = Field("tiny", description="a preset, or the folder of a model to go on from")
    steps: int = Field(400, ge=1)
    rows: int = Field(4, ge=1, description="rows of `context` tokens a step")
    context: int = Field(256, ge=8)
    objective: str = Field("causal", description="causal or prefix")
    optimizer: str = Field("adamw", description="adamw, muon, adafactor or lion")
    lr: float = Field(3e-3, gt=0)
    schedule: str = Field(
        "cosine", description="cosine, wsd, wsd-sqrt, linear, inverse-sqrt or constant"
    )
    lr_floor: float = Field(0.1, ge=0, le=1, description="of lr, where the schedule ends")
    warmup: int = Field(20, ge=0)
    decay: float = Field(0.2, ge=0, le=1, description="share of the steps over which wsd falls")
    weight_decay: float = Field(0.1, ge=0)
    beta1: float = Field(0.9, ge=0, le=1)
    beta2: float = Field(0.95, ge=0, le=1)
    eps: float = Field(1e-8, gt=0)
    momentum: float = Field(0.95, ge=0, le=1, description="of Muon")
    clip: float = Field(1.0, gt=0, description="the norm of the gradient is at most that")
    z_loss: float = Field(0.0, ge=0)
    ema: float = Field(0.0, ge=0, lt=1, description="decay of an average of the weights; 0: none")
    packing: str = Field("concat", description="concat, best-fit or padding")
    sources: tuple[dict[str, Any], ...] = Field((), description="shards with a weight, or amount")
    stages: tuple[dict[str, Any], ...] = Field((), description="stretches with own settings")
    max_epochs: float | None = Field(None, gt=0, description="of any source")
    vocab_size: int | None = Field(None, ge=1, description="of shards that do not say")
    end_of_text: int | None = Field(None, ge=0, description="id, of shards that do not say")
    tokenizer: str | None = Field(None, description="tokenizer.json, of shards without one")
    token_dtype: str | None = Field(None, description="of OLMo's .npy; none: by vocab_size")
    held_out: float = Field(0.05, gt=0, lt=1)
    attention: str = Field("auto", description="sdpa, triton, flex or eager")
    precision: str = Field("auto", description="auto (bf16 on a GPU), fp32 or bf16")
    device: str = "auto"
    accumulate: int = Field(1, ge=1, description="micro-batches that a step's rows are cut into")
    loss_chunk: int = Field(0, ge=0, description="tokens whose logits are held at once; 0: fits")
    recompute: bool = Field(False, description="activations inside blocks are not kept")
    compile: bool = False
    processes: int = Field(1, ge=1, description="as many as there are GPUs to train on")
    parallel: str = Field("ddp", description="ddp or fsdp, for several processes")
    spike: str = Field("stop", description="stop, skip or rollback, after a loss spike")
    spike_factor: float = Field(0.0, ge=0, description="deviations over the median; 0: only NaN")
    spike_window: int = Field(64, ge=1)
    spike_batches: int = Field(1, ge=1, description="steps passed over after a rollback")
    log_every: int = Field(10, ge=1)
    tensorboard: bool = False
    eval_every: int = Field(50, ge=1)
    eval_tokens: int = Field(16_384, ge=1)
    checkpoint_every: int = Field(50, ge=1)
    keep_checkpoints: int = Field(3, ge=1)
    keep_best: bool = True
    async_checkpoints: bool = False
    seed: int = Field(0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _steps_of_stages(cls, values: Any) -> Any:
        """Stages say how many steps there are."""
        if isinstance(values, dict) and values.get("stages") and "steps" not in values:
            found = [s.get("steps", 0) if isinstance(s, dict) else 0 for s in values["stages"]]
            if all(isinstance(steps, int) for steps in found):
                return values | {"steps": sum(found)}
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
        found, free = super().identity(), TrainConfig.FREE | {"processes"}
        settings = {k: v for k, v in found["settings"].items() if k not in free}
        if (folder := Path(self.model)).is_dir() and self.model not in PRESETS:
            settings["model"] = _weights_digest(folder)
        return found | {"settings": _placeless(settings), "shards": digests}

    def lineage(self) -> dict[str, Any]:
        """All but the number of steps: training says itself whether it may go on to more."""
        found = self.identity()
        del found["settings"]["steps"]
        return found

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
    told = ("held_out", "skipped")
    keep = [
        m
        for i, m in enumerate(lines)
        if i % stride == 0 or i == len(lines) - 1 or any(name in m for name in told)
    ]
    names = ("step", "loss", "held_out", "lr", "grad_norm", "skipped", "documents")
    return [{k: m[k] for k in names if k in m} for m in keep]
