"""Train without the rest of the toolkit, in one process or in several started by torchrun:

torchrun --nproc-per-node 8 -m train shards/ model/ --model 124m --set model.layers=6
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.settings import from_dict, unflatten
from llmcurate.base.terminal import echo, print_result, say
from train.config import TrainConfig
from train.model.plugin_settings import TRUST_CODE
from train.recipe import as_published


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__)
    parser.add_argument("shards", type=Path, help="folder of token shards; - if sources are set")
    parser.add_argument("out", type=Path, help="folder of the model; an unfinished run resumes")
    parser.add_argument("--model", default="tiny", help="a preset, or the folder of a model")
    parser.add_argument("--plan", type=Path, help="plan.json with the model and settings to use")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="sets")
    parser.add_argument("--trust-code", action="store_true", help="run the Python code of models")
    parser.add_argument("--json", action="store_true", help="print metrics and summary as JSON")
    asked = parser.parse_args()
    if asked.trust_code:
        os.environ[TRUST_CODE] = "1"
    try:
        settings = _settings(asked.sets)
        of_model = [name for name in settings if name.startswith("model.")]
        changes = {name.removeprefix("model."): settings.pop(name) for name in of_model}
        settings = unflatten(settings)  # eval.wiki=FOLDER
        model: Any = asked.model
        if asked.plan is not None:
            from train.dial import read_plan

            plan = read_plan(asked.plan)
            model, settings = plan.model, plan.train | settings
        settings = as_published(model, settings, changed=bool(changes))
        config = from_dict(TrainConfig, settings, "--set")
        from train.loop.distributed import first_process
        from train.loop.pretrain import pretrain

        summary = pretrain(
            None if str(asked.shards) == "-" else asked.shards,
            asked.out,
            model=model,
            changes=changes,
            train=config,
            on_progress=_print if asked.json else _say,
            on_notice=(lambda line: _print({"notice": line})) if asked.json else say,
        )
    except LlmcurateError as error:
        say(f"error: {error}")
        return error.exit_code
    if first_process():
        print_result({"summary": summary}, _summary_line(summary), asked.json)
    return 0


def _settings(sets: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for assignment in sets:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment}: give NAME=VALUE")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _print(line: dict[str, Any]) -> None:
    from train.runs.metrics import finite

    echo(json.dumps(finite(line)), as_it_is=True)


def _say(line: dict[str, Any]) -> None:
    loss = line.get("loss")
    shown = "no loss" if loss is None else f"loss {loss:.3f}"
    speed = f"{line['timing']['tokens_per_second']:,.0f} tokens/s"
    seconds = line["seconds_left"]
    left = "" if seconds is None else f", {timedelta(seconds=round(seconds))} left"
    say(f"step {line['step']} of {line['steps']}: {shown}, {speed}{left}")


def _summary_line(summary: dict[str, Any]) -> str:
    bits = summary["bits_per_byte"]  # None: the text's bytes are unknown
    per_byte = "" if bits is None else f", {bits:.3f} bits per byte"
    steps = counted(summary["steps"], "step")
    terms = "".join(f", {n} {x:.3f}" for n, x in (summary.get("held_out_terms") or {}).items())
    return f"{steps}, held-out loss {summary['held_out_loss']:.3f}{per_byte}{terms}"


if __name__ == "__main__":
    sys.exit(main())
