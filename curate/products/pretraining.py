"""Training as a recipe step: its settings are passed to the package train. If training takes
several processes, torchrun starts `train.__main__` in each of them."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from curate.products.eval_texts import are_shards, as_shards, check_names
from curate.products.needs import needs_training
from curate.steps.contracts import (
    Estimate,
    FromFiles,
    Identity,
    NamesCode,
    Nested,
    Product,
    ProductContext,
    step,
    with_settings,
)
from curate.steps.functions import FunctionInFile, is_function
from curate.steps.recipe import SettingNames
from llmcurate.base.disk.files import file_digest, text_digest
from llmcurate.base.disk.units import format_bytes
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.messages import json_values
from llmcurate.base.settings import (
    change,
    dotted_names,
    flatten,
    from_dict,
    refuse_if,
    shared,
    to_dict,
    unflatten,
)
from llmcurate.base.start import command
from train.config import RunBudget, TrainConfig, stages_of
from train.model.config import ModelConfig
from train.objective_settings import RECORDS

_OF_RUN = frozenset({"processes", "time", "tokens", "depth", "plan"})  # not in TrainConfig
PLAN = "plan.json"  # in OUT
DEFAULT_TIME = "5m"  # the budget of a run without model, steps and task
LAST_LINES = 5  # of the processes' output, shown if no line is recognized as the error
TORCHRUN = "torch.distributed.elastic."  # torchrun's own exceptions, which give no cause
# The prefix of a line of a process, or a line of torchrun's log.
_PREFIX = re.compile(r"^\[rank\d+\]: |^[A-Z]\d{4} .*\n", re.MULTILINE)
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)", re.MULTILINE)
_KILLED = re.compile(r"^  traceback : (Signal .*)", re.MULTILINE)


def _failure(output: str, code: int) -> RunFailed:
    output = _PREFIX.sub("", output)
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    raised = [line for line in _RAISED.findall(output) if not line.startswith(TORCHRUN)]
    cause = errors[:1] or raised[:1] or _KILLED.findall(output)[-1:]  # the last: "Root Cause"
    shown = cause or lines[-LAST_LINES:] or [f"torchrun ended with status {code}"]
    failure = RunFailed(" / ".join(shown).removeprefix("error: "))
    if errors and "exitcode  : 2" in output:
        failure.exit_code = 2
    return failure


# The settings of a model and of its training that `--set` accepts.
NAMES: dict[str, SettingNames] = {
    "model": lambda: dotted_names(ModelConfig),
    "pretrain": lambda: dotted_names(TrainConfig),
}


def shards_digest(path: Path) -> str:
    """Return a digest that identifies token shards: of their manifest, or of file names and
    sizes."""
    if (path / "manifest.json").is_file():
        return file_digest(path / "manifest.json")
    try:
        files = sorted([*path.glob("*"), *path.glob("*/*")]) if path.is_dir() else [path]
        entries = [(file.name, file.stat().st_size) for file in files if file.is_file()]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    return text_digest(repr(entries))


def _weights_digest(folder: Path) -> str:
    digests = []
    for file in sorted(folder.rglob("*.safetensors")):
        facts = file.stat()
        digests.append((str(file.relative_to(folder)), _read_once(file, facts.st_mtime_ns)))
    return text_digest(repr(digests))


@cache
def _read_once(path: Path, changed: int) -> str:
    return file_digest(path)


def _resolved(value: Any, folder: Path | None) -> Any:
    named = isinstance(value, str) and is_function(value)
    return str(FunctionInFile.named(value, folder)) if named else value


class _Trained(Product):
    shards: str | None = None
    """Folder of the token shards; by default the shards that the recipe encodes."""
    model: str | dict[str, Any] = "tiny"
    """Name of a model preset, or the folder of a model to train further; or a mapping with that as
    `preset` and other settings of the model."""


if TYPE_CHECKING:
    from train.dial import Dialled
else:
    _Trained = with_settings(_Trained, TrainConfig)


@step("pretrain")
class PretrainProduct(_Trained, FromFiles, NamesCode, Nested):
    """Trains a language model on token shards.

    Writes checkpoints, metrics and a sample.
    """

    SECTIONS: ClassVar[dict[str, str]] = {
        **TrainConfig.SECTIONS,
        "processes": "Parallel training",
        "time": "Budget",
    }
    makes: ClassVar[str] = "model"
    needs: ClassVar[tuple[str, ...]] = ("shards",)
    reads_corpus: ClassVar[bool] = False
    in_place: ClassVar[bool] = True
    resumes: ClassVar[str | None] = "checkpoints/step-*"

    context: Annotated[int, Field(ge=8)] = shared(TrainConfig, "context")
    objective: str | dict[str, Any] = "auto"
    """Training objective: its name, or a mapping with that as `kind` and its settings. `auto` is
    the model's own objective."""
    teacher: str | None = shared(TrainConfig, "teacher")
    sources: tuple[dict[str, Any], ...] = shared(TrainConfig, "sources")
    stages: tuple[dict[str, Any], ...] = shared(TrainConfig, "stages")
    tokenizer: str | None = shared(TrainConfig, "tokenizer")
    eval: dict[str, str] = Field({}, description=shared(TrainConfig, "eval").description)
    eval_tokens: int = shared(TrainConfig, "eval_tokens")
    processes: int = Field(1, ge=1)
    """Number of processes, one per GPU."""
    time: str | None = shared(RunBudget, "time")
    tokens: int | None = shared(RunBudget, "tokens")
    depth: int | None = shared(RunBudget, "depth")
    plan: str | None = None
    """Path of the plan.json of another run, whose model and settings are used again; settings given
    here replace its own."""

    @classmethod
    def setting_names(cls) -> list[str]:
        of_model = [f"model.{name}" for name in NAMES["model"]()]
        return list(dict.fromkeys([*cls.model_fields, *NAMES["pretrain"](), *of_model]))

    @model_validator(mode="before")  # after the two below, which give all settings their names
    @classmethod
    def _as_published(cls, values: Any) -> Any:
        """Add the settings with which the chosen preset was trained, as published."""
        from train.recipe import as_published

        if not isinstance(values, dict) or not _OF_RUN.isdisjoint({*values} - {"processes"}):
            return values
        model = values.get("model")
        changes = dict(model) if isinstance(model, dict) else {"preset": model}
        name = changes.pop("preset", None)
        return as_published(name, values, changed=bool(changes))

    @model_validator(mode="before")
    @classmethod
    def _steps_of_stages(cls, values: Any) -> Any:
        stages = values.get("stages") if isinstance(values, dict) else None
        if isinstance(stages, (list, tuple)) and stages and "steps" not in values:
            numbers = [s.get("steps", 0) if isinstance(s, dict) else 0 for s in stages]
            if all(isinstance(steps, int) for steps in numbers):
                return values | {"steps": sum(numbers)}
        return values

    @model_validator(mode="before")
    @classmethod
    def _dotted_settings(cls, values: Any) -> Any:
        """Merge settings such as `model.attention.window` or `eval.wiki` of `--set` into the
        mappings of the recipe. A string in the recipe first becomes a mapping: `model: tiny`, for
        example, becomes `model: {preset: tiny}`."""
        if isinstance(values, dict):
            defaults: dict[str, dict[str, str]] = {
                "model": {"preset": "tiny"},
                "objective": {"kind": "auto"},
                "eval": {},
            }
            for name, default in defaults.items():
                start = f"{name}."
                dotted = {k: v for k, v in values.items() if str(k).startswith(start)}
                if dotted:
                    merged = values.get(name, {} if name == "model" else default)
                    if not isinstance(merged, dict):
                        merged = dict.fromkeys(default or [""], merged)
                    merged = merged | {k.removeprefix(start): v for k, v in dotted.items()}
                    plain = {k: v for k, v in values.items() if k not in dotted}
                    values = plain | {name: merged}
        return values

    @field_validator("model")
    @classmethod
    def _files_of_parts(cls, value: Any, info: ValidationInfo) -> Any:
        """Make paths such as my_layer.py in `feed_forward: my_layer.py:LiGLU` absolute. They are
        relative to the recipe's folder."""
        if not isinstance(value, dict):
            return value
        folder = (info.context or {}).get("folder")
        return unflatten({name: _resolved(item, folder) for name, item in flatten(value).items()})

    @model_validator(mode="after")
    def _checked(self) -> PretrainProduct:
        from train.model.presets import PRESETS, preset

        try:
            stages_of(self._config())
            self._budget()
            if self._changes and self._preset in PRESETS:
                change(preset(self._preset, context=self.context), self._changes, "model")
            check_names(self.eval)
        except LlmcurateError as error:
            raise ValueError(str(error)) from None
        return self

    def _config(self, texts: dict[str, str] | None = None) -> TrainConfig:
        return from_dict(TrainConfig, self._settings(texts), "pretrain")

    @property
    def _preset(self) -> str:
        return str(self.model.get("preset", "tiny")) if isinstance(self.model, dict) else self.model

    @property
    def _changes(self) -> dict[str, Any]:
        settings = self.model if isinstance(self.model, dict) else {}
        return flatten({name: value for name, value in settings.items() if name != "preset"})

    @property
    def _chosen_model(self) -> str | None:
        """The preset or model folder that the user chose, or None."""
        if isinstance(self.model, dict):
            return self.model.get("preset")
        return self.model if "model" in self.model_fields_set else None

    def _budget(self) -> RunBudget | None:
        """Return the budget from which the run's settings are computed: the time, tokens or depth
        that the user gives. If the user gives none of these, the budget is a default time. It is
        None instead if the user gives steps, stages, the plan of another run or a model, or if the
        data are JSONL records."""
        given = self.model_fields_set
        budget = RunBudget(time=self.time, tokens=self.tokens, depth=self.depth)
        other = budget != RunBudget() or self._chosen_model is not None
        refuse_if(self.plan is not None and other, "give a plan, or a budget and a model")
        known = {"steps", "stages", "plan"} & given or self._chosen_model is not None
        if budget != RunBudget():
            return budget
        if known or isinstance(self._config().objective, RECORDS):
            return None
        return RunBudget(time=DEFAULT_TIME)

    def _planned(
        self, shards: Path | None, out: Path | None, texts: dict[str, str] | None = None
    ) -> tuple[Dialled | None, TrainConfig]:
        """Return (plan, settings of training). The plan is read from the file `plan` or from `out`.
        If neither has one, it is made for the budget, or is None if there is no budget."""
        file = Path(self.plan) if self.plan is not None else None
        if (budget := self._budget()) is not None and out is not None and (out / PLAN).is_file():
            file = out / PLAN
        if file is None and budget is None:
            return None, self._in_parts(self._config(texts))
        from train.dial import dial, read_plan

        whole = self._settings(texts)
        given = {name: value for name, value in whole.items() if name in self.model_fields_set}
        if file is not None:
            plan = read_plan(file)
            plan = replace(plan, model=change(plan.model, self._changes, "model"))
        else:
            assert budget is not None
            plan = dial(
                shards,
                budget,
                given=given,
                model=self._chosen_model,
                changes=self._changes,
                processes=self.processes,
            )
        return plan, from_dict(TrainConfig, {**whole, **plan.train, **given}, "pretrain")

    def _in_parts(self, config: TrainConfig) -> TrainConfig:
        """Return the settings of training. The batch of a preset's published training is divided
        into the micro-batches that this machine's memory needs, if the user does not give their
        number."""
        from train.recipe import published_of

        published = published_of(self._chosen_model)
        given = "accumulate" in self.model_fields_set
        if published is None or given or config.rows != published.rows:
            return config
        from train.loop.memory import in_parts

        return in_parts(self._preset, config, self.processes)

    def _published_line(self, config: TrainConfig) -> str | None:
        """Return a line that says which settings are those of the preset's published training.
        Return None if none was published, if the run's settings are computed from a budget, or if
        the data are JSONL records."""
        from train.recipe import published_of

        published = published_of(self._chosen_model)
        planned = self._budget() is not None
        if published is None or planned or isinstance(config.objective, RECORDS):
            return None
        return published.line(self._preset, to_dict(config))

    def _check_parts(self) -> None:
        from train.model.presets import preset

        if not Path(self._preset).is_dir():
            with needs_training():
                preset(self._preset)
        if self.plan is not None and not Path(self.plan).is_file():
            raise UsageError(f"{self.plan}: no such plan")
        labelled = isinstance(self._config().objective, RECORDS)
        for folder in [] if labelled else self._folders():
            if Path(folder).exists() and not are_shards(folder):
                raise UsageError(
                    f"{folder} holds no token shards; to encode a corpus, run llmcurate tokenizer"
                    f" encode {folder} --tokenizer TOKENIZER -o SHARDS"
                )

    def _settings(self, texts: dict[str, str] | None = None) -> dict[str, Any]:
        settings = self.model_dump(mode="json", exclude={"shards", "model", *_OF_RUN})
        return settings if texts is None else settings | {"eval": texts}

    def _texts(self, shards: Path | None, context: ProductContext) -> dict[str, str]:
        if all(are_shards(path) for path in self.eval.values()):
            return self.eval
        tokenizer = Path(self.tokenizer) if self.tokenizer else shards or Path(self._folders()[0])
        if tokenizer.is_dir():
            tokenizer = tokenizer / "tokenizer.json"
        if not tokenizer.is_file() or tokenizer.suffix != ".json":
            raise UsageError(
                f"{tokenizer} is not a tokenizer.json for the texts of eval: set tokenizer"
            )
        return {
            name: str(
                as_shards(
                    path,
                    tokenizer,
                    context.out / "eval" / name,
                    context.say,
                    context.workers,
                    self._read,
                )
            )
            for name, path in self.eval.items()
        }

    def _folders(self) -> list[str]:
        stages = [s for stage in self.stages for s in stage.get("sources", ())]
        named = [source["shards"] for source in (*self.sources, *stages)]
        return [self.shards, *named] if self.shards else named

    def _takes_default(self) -> bool:
        open_stage = not self.stages or any(not stage.get("sources") for stage in self.stages)
        return not self.shards and not self.sources and open_stage

    def _files(self) -> list[FunctionInFile]:
        values = [v for v in self._changes.values() if isinstance(v, str) and is_function(v)]
        return [FunctionInFile.named(value) for value in values]

    def resolved(self) -> dict[str, Any]:
        """Return the settings to write to the recipe in OUT (the output folder). With a budget or
        another run's plan, these are only the settings that the user gave. With a budget, the
        setting `time` is added, because it may be the default."""
        whole, budget = super().resolved(), self._budget()
        if budget is None and self.plan is None:
            return whole
        given = {name: value for name, value in whole.items() if name in self.model_fields_set}
        return given if budget is None else given | {"time": budget.time}

    def named_code(self) -> str | None:
        return ", ".join(file.shown for file in self._files()) or None

    def resources(self) -> list[str]:
        self._check_parts()
        return [str(file.path) for file in self._files()]

    def identity(self) -> Identity:
        """Return the settings by which a finished product is recognised. Settings that do not
        change the result are left out, so that a stopped run can continue with other values."""
        from train.model.presets import PRESETS
        from train.runs.plan import without_folders

        digests = [shards_digest(Path(path)) for path in self._folders()]
        identity = super().identity().without(TrainConfig.FREE | {"processes"})
        settings = identity.settings
        if (folder := Path(self._preset)).is_dir() and self._preset not in PRESETS:
            digest = _weights_digest(folder)
            settings["model"] = [digest, self._changes] if self._changes else digest
        if self.teacher is not None:
            settings["teacher"] = _weights_digest(Path(self.teacher))
        # Digests of the texts to score. A text that is no local path, such as a URL, has its name
        # here.
        texts = {
            name: shards_digest(path) if path.exists() else str(path)
            for name, path in zip(self.eval, map(Path, self.eval.values()), strict=True)
        }
        if self.plan is not None:
            settings["plan"] = file_digest(Path(self.plan))
        scored = {"eval": texts, "eval_tokens": self.eval_tokens}
        identity.contents |= {"shards": digests, "scored": scored}
        return replace(identity, settings=without_folders(settings))

    def lineage(self) -> Identity:
        """Return the settings that must be equal for a training to continue an earlier one. They
        exclude the number of steps, because training itself decides if it can continue to more
        steps, and the scored texts, because these change no weight."""
        identity = self.identity()
        del identity.settings["steps"], identity.contents["scored"]
        return identity

    def estimate(self, out: Path, inputs: dict[str, Path], fresh: bool) -> Estimate | None:
        if self._takes_default() and "shards" not in inputs:
            return None
        shards = Path(self.shards) if self.shards else inputs.get("shards")
        with needs_training():
            from train.loop.forecast import forecast

            plan, config = self._planned(shards, None if fresh else out)
            figures = forecast(
                shards,
                out,
                model=self._preset if plan is None else plan.model,
                changes=self._changes if plan is None else None,
                train=config,
                resume=not fresh,
                processes=self.processes,
            )
        lines = [] if plan is None else ["", *plan.lines()]
        if line := self._published_line(config):
            lines = ["", line]
        title = self._preset if plan is None else "the planned model"
        return Estimate(json_values(figures), [*lines, "", *figures.lines(title)])

    def build(self, context: ProductContext) -> dict[str, Any]:
        with needs_training():
            from train.loop.pretrain import pretrain
        shards = Path(self.shards) if self.shards else None
        if self._takes_default():
            if "shards" not in context.inputs:
                raise UsageError("pretrain: give a folder of shards, or encode them in the recipe")
            shards = context.inputs["shards"]
        texts = self._texts(shards, context)
        if self._budget() is not None and not (context.out / PLAN).is_file():
            context.say("planning: a trial of some seconds on this device")
        with needs_training():
            plan, config = self._planned(shards, context.out, texts)
        if plan is not None:
            plan.write(context.out / PLAN)
            for line in plan.lines():
                context.say(line)
        if said := self._published_line(config):
            context.say(said)
        if self.processes > 1:
            summary = self._by_processes(shards, config, context)
        else:
            with needs_training():
                summary = pretrain(
                    shards,
                    context.out,
                    model=self._preset if plan is None else plan.model,
                    changes=self._changes if plan is None else None,
                    train=config,
                    on_progress=lambda line: _progress(line, context),
                    on_notice=context.say,
                )
        objective = self._config().objective
        records = isinstance(objective, RECORDS)
        return {
            "summary": summary,
            "metrics": _curve(context.out / "metrics.jsonl"),
            **({"records": [objective.kind, self.shards]} if records else {}),
        }

    def _by_processes(
        self, shards: Path | None, config: TrainConfig, context: ProductContext
    ) -> dict[str, Any]:
        arguments = [str(shards or "-"), str(context.out), "--json"]
        changed = {f"model.{name}": value for name, value in self._changes.items()}
        if (context.out / PLAN).is_file():
            arguments, changed = [*arguments, "--plan", str(context.out / PLAN)], {}
        else:
            arguments += ["--model", self._preset]
        for name, value in (to_dict(config) | changed).items():
            arguments += ["--set", f"{name}={json.dumps(value)}"]
        _, *script = command("train.__main__", *arguments)  # without Python, which torchrun adds
        by = ["--standalone", f"--nproc-per-node={self.processes}"]
        line = command("torch.distributed.run", *by, *script)
        summary = None
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True) as run:
                assert run.stdout is not None
                try:
                    for printed in run.stdout:
                        try:
                            event = json.loads(printed)
                        except ValueError:
                            continue  # printed by a library
                        if not isinstance(event, dict):
                            continue
                        if "summary" in event:
                            summary = event["summary"]
                        elif "notice" in event:
                            context.say(event["notice"])
                        elif "step" in event:
                            _progress(event, context)
                except BaseException:
                    run.terminate()  # torchrun ends its processes
                    raise
            if run.returncode == 0 and summary is not None:
                return dict(summary)
            errors.seek(0)
            raise _failure(errors.read(), run.returncode)


def _progress(line: dict[str, Any], context: ProductContext) -> None:
    if "skipped" in line:
        documents = line.get("documents", [])
        names = f"; documents: {', '.join(documents[:3])}" if documents else ""
        more = f" and {len(documents) - 3} more" if len(documents) > 3 else ""
        context.say(f"step {line['step']} changed nothing: {line['skipped']}{names}{more}")
    loss, timing = line.get("loss"), line.get("timing", {})
    parts = [f"loss {loss:.3f}" if loss is not None else "loss: none"]
    if "tokens_per_second" in timing:
        parts.append(f"{timing['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in timing:
        parts.append(f"MFU {timing['mfu']:.1%}")
    if "epochs" in line:
        parts.append(f"{line['epochs']:.2f} epochs")
    if "memory" in timing:
        parts.append(format_bytes(timing["memory"]))
    left = line.get("seconds_left")
    context.progress(line.get("step", 0), ", ".join(parts), left, line["steps"])


def _curve(path: Path, points: int = 200) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    stride = max(1, len(lines) // points)
    always = ("held_out", "skipped")
    keep = [
        m
        for i, m in enumerate(lines)
        if i % stride == 0 or i == len(lines) - 1 or any(name in m for name in always)
    ]
    names = ("step", "loss", "held_out", "eval", "lr", "grad_norm", "load", "skipped", "documents")
    return [{k: m[k] for k in names if k in m} for m in keep]
