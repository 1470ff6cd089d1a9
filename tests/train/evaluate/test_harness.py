"""lm-evaluation-harness: a run has the figures that its export has under the class `hf`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from tests.parameters import mostly_slow
from tests.train.conftest import sentences
from tests.train.data.feed_settings import MODEL
from tests.train.loop.small_runs import build, trained
from train.data.shards import read_shards
from train.hf.export import export

lm_eval = pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness")
from lm_eval.tasks import TaskManager  # noqa: E402

from train.evaluate.harness import HarnessModel, run_tasks  # noqa: E402

OWN = ["--task-folder", str(Path(lm_eval.__file__).parent / "tasks" / "arc")]
SHARED = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{train: {folder}/{rows}.jsonl, test: {folder}/{rows}.jsonl}}}}
test_split: test
fewshot_split: train
metadata: {{version: 1}}
"""
TASKS = {
    "choice": """\
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "last": """\
output_type: loglikelihood
doc_to_text: question
doc_to_target: "{{choices[0]}}"
metric_list: [{metric: perplexity, aggregation: perplexity}, {metric: acc}]
""",
    "rolling": """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
""",
    "written": """\
output_type: generate_until
doc_to_text: question
doc_to_target: "{{choices[0]}}"
generation_kwargs: {until: ["t", " a"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match, ignore_case: true}]
""",
}


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return trained(folder, build(replace(MODEL, context=64)), read_shards(shard_folder).tokenizer)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder of task files, one for each kind of request."""
    folder = tmp_path_factory.mktemp("tasks")
    questions = [
        {"question": sentences(3 + n, 9 + 2 * n), "choices": [" cat", " mat sat", "x"]}
        | {"answer": n % 3}
        for n in range(12)
    ]
    texts = [{"text": sentences(50 + n, 4 + 30 * n)} for n in range(4)]
    for name, rows in (("questions", questions), ("texts", texts)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, settings in TASKS.items():
        rows = "texts" if name == "rolling" else "questions"
        head = SHARED.format(name=name, folder=folder, rows=rows)
        (folder / f"{name}.yaml").write_text(head + settings)
    return folder


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf") / "model"
    export(run, folder)
    return folder


def measured(model, tasks, **options):
    results = lm_eval.simple_evaluate(
        model=model,
        tasks=[*TASKS],
        task_manager=TaskManager(include_path=tasks, include_defaults=False),
        bootstrap_iters=10,
        **options,
    )
    answers = {
        name: [sample["resps"] for sample in samples]
        for name, samples in results["samples"].items()
    }
    figures = {
        (name, measure): value
        for name, measures in results["results"].items()
        for measure, value in measures.items()
        if "," in measure and isinstance(value, float)
    }
    return figures, answers


@pytest.fixture(scope="module", autouse=True)
def the_machine_is_not_described():
    """The harness adds what pip lists, and what compilers and drivers say of themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
        yield


@pytest.mark.parametrize("few_shot", mostly_slow([2, 0]))
def test_a_run_has_the_figures_of_its_export_under_hf(run, exported, tasks, few_shot):
    ours, own_answers = measured(
        "llmcurate", tasks, model_args=f"pretrained={run},device=cpu", num_fewshot=few_shot
    )
    args = f"pretrained={exported},dtype=float32"
    theirs, answers = measured("hf", tasks, model_args=args, num_fewshot=few_shot, device="cpu")
    assert own_answers["written"] == answers["written"]
    assert len(theirs) >= 10
    for measure, value in theirs.items():
        assert ours[measure] == pytest.approx(value, rel=1e-4), measure


def test_the_block_of_the_docs_runs(run, tasks):
    page = Path(__file__).parents[3] / "docs" / "training.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    (code,) = (block for block in blocks if "lm_eval" in block)
    code = code.replace("pretrained=model", f"pretrained={run}")
    code = code.replace('["hellaswag"]', '["choice"], task_manager=manager, bootstrap_iters=10')
    *imports, call = code.strip().splitlines()
    names = {"manager": TaskManager(include_path=tasks, include_defaults=False)}
    exec("\n".join([*imports, f"found = {call}"]), names)
    assert 0 <= names["found"]["results"]["choice"]["acc,none"] <= 1


def test_the_batch_changes_nothing(run, tasks):
    alone, together = (
        measured(HarnessModel(str(run), device="cpu", batch_size=size), tasks)[0] for size in (1, 5)
    )
    assert together == pytest.approx(alone, rel=1e-5)


def test_the_command_prints_the_measures_of_tasks(run, tasks, capsys):
    named = ["--task", "choice", "--task", "rolling", "--task-folder", str(tasks)]
    arguments = ["evaluate", str(run), *named, "--limit", "3", "--device", "cpu"]
    assert invoke([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tasks"]
    assert set(found) == {"choice", "rolling"} and 0 <= found["choice"]["acc,none"] <= 1
    assert invoke(arguments) == 0
    assert f"{found['rolling']['word_perplexity,none']:.4g}" in capsys.readouterr().out


@pytest.mark.parametrize("all_tasks", mostly_slow([False, True]))  # thousands of files
def test_an_unknown_task_is_one_line_with_similar_ones(run, tasks, capsys, monkeypatch, all_tasks):
    def manager(include_path, include_defaults=True):
        return TaskManager(
            include_path=include_path, include_defaults=include_defaults and all_tasks
        )

    monkeypatch.setattr("train.evaluate.harness.TaskManager", manager)
    code = invoke(["evaluate", str(run), "--task", "choise", "--task-folder", str(tasks)])
    error = capsys.readouterr().err
    assert code == 2 and error.count("\n") == 1 and "choice" in error


def test_what_does_not_fit_in_the_context_is_refused(run, tasks):
    model = HarnessModel(str(run), device="cpu", max_length=8)
    with pytest.raises(LlmcurateError, match="12 tokens to write, the context is 8"):
        run_tasks(model, ["written"], folder=tasks)


@pytest.mark.parametrize("folder", mostly_slow([OWN, []]), ids=["its own", "all"])
def test_without_a_network_a_task_says_what_takes_local_data(run, folder):
    """A task of the harness, found in its own folder or among all tasks, thousands of files."""
    command = [sys.executable, "-m", "llmcurate", "evaluate", str(run), "--task", "arc_easy"]
    done = subprocess.run([*command, *folder], capture_output=True, text=True)
    assert done.returncode == 1
    assert "--task-folder" in done.stderr and "Retrying" not in done.stderr
