"""Train without the rest of the toolkit, in one process or in those of torchrun:

torchrun --nproc-per-node 8 -m train shards/ model/ --model 124m --set steps=2000 --set rows=64
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from train.config import TrainConfig
from train.errors import TrainError, counted
from train.settings import from_dict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__)
    parser.add_argument("shards", type=Path, help="folder of token shards; -: sources")
    parser.add_argument("out", type=Path, help="folder of the model; a run there is gone on with")
    parser.add_argument("--model", default="tiny", help="a preset, or a folder to start from")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="sets")
    parser.add_argument("--fresh", action="store_true", help="begin anew")
    parser.add_argument("--json", action="store_true", help="metrics, then the summary, as JSON")
    asked = parser.parse_args()
    try:
        config = from_dict(TrainConfig, _settings(asked.sets), "--set")
        from train.loop.pretrain import pretrain

        summary = pretrain(
            None if str(asked.shards) == "-" else asked.shards,
            asked.out,
            model=asked.model,
            train=config,
            resume=not asked.fresh,
            on_progress=_print if asked.json else _say,
            on_notice=_print_notice if asked.json else _say_notice,
        )
    except TrainError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    from train.loop.distributed import first_process

    if first_process():
        print(
            json.dumps({"summary": summary}) if asked.json else _summary_line(summary), flush=True
        )
    return 0


def _settings(sets: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for assignment in sets:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise TrainError(f"--set {assignment}: give NAME=VALUE", exit_code=2)
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _print(line: dict[str, Any]) -> None:
    from train.runs.metrics import finite

    print(json.dumps(finite(line)), flush=True)


def _say(line: dict[str, Any]) -> None:
    loss = line.get("loss")
    shown = "no loss" if loss is None else f"loss {loss:.3f}"
    speed = line["timing"]["tokens_per_second"]
    print(
        f"step {line['step']} of {line['steps']}: {shown}, {speed:,.0f} tokens/s", file=sys.stderr
    )


def _print_notice(line: str) -> None:
    print(json.dumps({"notice": line}), flush=True)


def _say_notice(line: str) -> None:
    print(line, file=sys.stderr)


def _summary_line(summary: dict[str, Any]) -> str:
    bits = summary["bits_per_byte"]  # None: nothing says how many bytes the text has
    bits_a_byte = "" if bits is None else f", {bits:.3f} bits a byte"
    steps = counted(summary["steps"], "step")
    return f"{steps}, held-out loss {summary['held_out_loss']:.3f}{bits_a_byte}"


if __name__ == "__main__":
    sys.exit(main())
