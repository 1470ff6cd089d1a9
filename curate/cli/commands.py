"""What the commands do: each on documents is a recipe on the same machinery."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from curate.api import How, execute
from curate.errors import UsageError
from curate.run import workspace
from curate.run.driver import Outcome, make_plan
from curate.steps.recipe import build, compose, load
from curate.terminal.progress import say


def run(recipe: str, inputs: list[str], sets: tuple[str, ...], how: How) -> Outcome:
    """`llmcurate run`."""
    return execute(load(recipe, sets), inputs, how, title=Path(recipe).stem)


def steps(
    title: str,
    chosen: list[tuple[str, dict[str, Any]]],
    inputs: list[str],
    how: How,
    sets: tuple[str, ...] = (),
) -> Outcome:
    """A command that is a recipe of the chosen steps."""
    return execute(compose(title, chosen, sets), inputs, how, title)


def dedup(
    method: str, options: dict[str, Any], sets: tuple[str, ...], inputs: list[str], how: How
) -> Outcome:
    """`llmcurate dedup`; options: those given, by the field of a step."""
    from curate.dedup import methods

    recipe = compose("dedup", methods.chosen(method, options), sets)
    for step in recipe.document_steps:
        for line in step.forecast():
            say(line, how.quiet)
    return execute(recipe, inputs, how, "dedup")


def decontaminate(
    options: dict[str, Any], sets: tuple[str, ...], inputs: list[str], how: How
) -> Outcome:
    """`llmcurate decontaminate`; options: those given, by the field of the step."""
    recipe = compose("decontaminate", [("decontaminate", options)], sets)
    for line in recipe.document_steps[0].forecast():
        say(line, how.quiet)
    outcome = execute(recipe, inputs, how, "decontaminate")
    if not how.as_json:
        for stage in outcome.stages:
            for note in (stage.get("decided") or {}).get("notes", ()):
                print(note)
    return outcome


def mix(options: dict[str, Any], sets: tuple[str, ...], inputs: list[str], how: How) -> None:
    """`llmcurate mix`; options: those given, by the field of the step, as the command has them."""
    from curate.mix.options import settings

    chosen = settings(options, _inputs(inputs))
    recipe = compose("mix", [("mix", chosen)], sets)
    execute(recipe, [], how, "mix")
    if how.dry_run:
        from curate.mix.make import preview

        preview(recipe.products[0], how.as_json)


def encode(tokenizer: Path | None, options: dict[str, Any], inputs: list[str], how: How) -> Outcome:
    """`llmcurate tokenizer encode`; options: those given, by the field of the step."""
    path = tokenizer or _workspace("--tokenizer").need("tokenizer", "llmcurate tokenizer train")
    settings = {"tokenizer": str(path), **options}
    return execute(compose("shards", [("shards", settings)], ()), inputs, how, "shards")


def evaluate_language(
    model: Path, label: str, max_chars: int, inputs: list[str], out: Path | None, as_json: bool
) -> None:
    """`llmcurate language evaluate`: prints the figures; nothing is written without OUT."""
    from curate.corpus.direct import DirectInput
    from curate.inspect import results
    from curate.inspect.evaluate.language import evaluate, render
    from curate.scoring.language.scores import table

    results.check_folder(out)
    plan = make_plan(build("evaluate", []), inputs)
    for notice in plan.inputs.notices:
        say(notice)
    direct = DirectInput(plan.inputs, plan.recipe.read)
    result = evaluate(model, direct.batches(None), label, max_chars)
    figures = {"inputs": inputs, **result, "corrupt": direct.tally["corrupt"]}
    results.show(figures, lambda: table(figures), lambda: render(figures, inputs), out, as_json)


def pretrain(
    shards: Path | None,
    settings: dict[str, Any],
    sets: tuple[str, ...],
    how: How,
) -> Outcome | None:
    """`llmcurate pretrain`; in a workspace stale shards are encoded first."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            "torchrun starts this for every process: use --set pretrain.processes=N without it, "
            "or torchrun ... -m train SHARDS OUT"
        )
    if shards is not None or not any(one.startswith("pretrain.sources=") for one in sets):
        folder = shards or _fresh_shards(_workspace("SHARDS"), how)
        if how.dry_run and not folder.exists():
            print(f"pretrain: after that, on the shards in {folder}")
            return None
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            raise UsageError(f"{folder} holds no token shards")
        settings = {**settings, "shards": str(folder)}
    return execute(compose("pretrain", [("pretrain", settings)], sets), [], how, "pretrain")


def _fresh_shards(space: workspace.Workspace, how: How) -> Path:
    """The newest shards, encoded anew where the corpus or the tokenizer is newer."""
    shards, corpus = space.newest("shards"), space.newest("corpus")
    tokenizer = space.newest("tokenizer")
    newer = [
        f"{kind} of run {found[0]}"
        for kind, found in (("corpus", corpus), ("tokenizer", tokenizer))
        if found and (shards is None or found[0] > shards[0])
    ]
    if shards and (not newer or corpus is None or tokenizer is None):
        return shards[1]
    source = space.need("corpus", "llmcurate run")
    vocabulary = space.need("tokenizer", "llmcurate tokenizer train")
    say(f"encoding first: no shards yet for the {' and the '.join(newer)}", how.quiet)
    quiet = How(None, how.workers, False, how.dry_run, how.quiet)
    return encode(vocabulary, {}, [str(source)], quiet).out


def explain(name: str, out: Path | None, as_json: bool) -> None:
    """`llmcurate explain`."""
    from curate.inspect import explain as explaining
    from curate.run.homes import runs_that_read

    if out is not None:
        outs = runs_that_read(out.resolve(), name) or [out]
    else:
        outs = [p for _, p in reversed(_workspace("--in").numbered())]
    if not outs or not any((o / "run.json").exists() for o in outs):
        raise UsageError(f"{outs[0] if outs else 'this workspace'} holds no finished run")
    found = explaining.explain(outs, name)
    print(json.dumps(found, ensure_ascii=False, default=str) if as_json else explaining.text(found))


def clusters(
    out: Path | None,
    show: int,
    method: str | None,
    least: int,
    members: int,
    width: int | None,
    as_json: bool,
) -> None:
    """`llmcurate dedup clusters`."""
    import shutil
    import sys

    from curate.inspect.report import clusters as browsing
    from curate.inspect.report import clusters_text

    if out is None:
        runs = [p for _, p in reversed(_workspace("OUT").numbered())]
        out = next((p for p in runs if (p / "decisions.parquet").exists()), None)
        if out is None:
            raise UsageError("no run of this workspace has a dedup: name an OUT folder")
    found = browsing.browse(out, show, method, least, members)
    if as_json:
        print(json.dumps(clusters_text.dump(found), ensure_ascii=False))
        return
    columns = width or shutil.get_terminal_size((100, 24)).columns
    print(clusters_text.text(found, columns, clusters_text.coloured(sys.stdout)))


def compare(
    methods: list[str],
    sets: tuple[str, ...],
    tokenizer: Path | None,
    inputs: list[str],
    how: How,
) -> int:
    """`llmcurate dedup compare`; 1 where a method failed."""
    from curate.inspect.compare import compare as comparing

    inputs, out = _inputs(inputs), _folder(how, "compare")
    found = comparing.compare(inputs, methods, sets, out, tokenizer, how.workers, how.quiet)
    if not how.quiet or not how.as_json:
        print(comparing.text(found))
        print(f"page: {out / 'compare.html'}")
    if how.as_json:
        print(
            json.dumps(
                {**found.dump(), "paths": _paths(out, "compare", "compare")}, ensure_ascii=False
            )
        )
    return 1 if found.failed else 0


def evaluate_dedup(
    methods: list[str],
    sets: tuple[str, ...],
    plants: tuple[int, int, int],
    inputs: list[str],
    how: How,
) -> None:
    """`llmcurate dedup evaluate`; plants: of each kind, seed, most documents."""
    from curate.inspect.evaluate import dedups as evaluating

    inputs, out = _inputs(inputs), _folder(how, "evaluate")
    found = evaluating.evaluate(inputs, methods, sets, out, *plants, how.workers, how.quiet)
    if not how.quiet or not how.as_json:
        print(evaluating.text(found))
        print(f"page: {out / 'evaluation.html'}")
    if how.as_json:
        print(
            json.dumps(
                {**found.dump(), "paths": _paths(out, "evaluate", "evaluation")}, ensure_ascii=False
            )
        )


def _inputs(inputs: list[str]) -> list[str]:
    """The inputs as given; in a workspace its newest corpus."""
    return inputs or [str(_workspace("IN").need("corpus", "llmcurate run RECIPE IN..."))]


def _folder(how: How, title: str) -> Path:
    """OUT as given; in a workspace the next run."""
    if how.out is not None:
        return how.out
    return _workspace("-o OUT").out_for(title, "")


def _paths(out: Path, key: str, name: str) -> dict[str, str]:
    return {key: str(out / f"{name}.json"), "page": str(out / f"{name}.html")}


def stats(inputs: list[str], out: Path | None, as_json: bool) -> None:
    """`llmcurate stats`; nothing is written without OUT."""
    import sys

    from curate.inspect import results
    from curate.inspect import stats as statistics

    if not inputs:
        inputs = [str(_workspace("IN").need("corpus", "llmcurate run RECIPE IN..."))]
    results.check_folder(out)
    figures = {"inputs": inputs, **statistics.gather(inputs)}
    results.show(
        figures,
        lambda: statistics.text(figures, sys.stdout.encoding),
        lambda: statistics.render(figures, inputs),
        out,
        as_json,
        name="stats",
    )


def _workspace(missing: str) -> workspace.Workspace:
    space = workspace.find()
    if space is None:
        raise UsageError(
            f"give {missing}, or work in a workspace (a folder with {workspace.FILE}:"
            " `llmcurate init`)"
        )
    return space
