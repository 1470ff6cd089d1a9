"""The command line: what users type, what they read, and the exit codes they script against."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.cli.app import _report
from tests.curate.command_line import completed_here
from tests.curate.command_line import run_here as llmcurate

SENTENCES = "The river runs past the old mill. Nobody works there any more. It is quiet now."


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line as a process, as users start it."""
    return subprocess.run(
        [sys.executable, "-m", "curate.cli.app", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        timeout=250,
    )


def write_corpus(path: Path, texts: list[str]) -> Path:
    lines = [json.dumps({"id": f"d{i}", "text": t}) for i, t in enumerate(texts)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    texts = [f"{SENTENCES} This is page {i}, and it says so itself." for i in range(40)]
    return write_corpus(folder / "in.jsonl", [*texts, texts[0], "too short", "{ }"])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    assert llmcurate("init", str(folder)).returncode == 0
    done = llmcurate("filter", "c4", str(corpus), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, curate.cli.app\n"
        "try: curate.cli.app.invoke(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch','numba','pyarrow','pydantic','numpy','duckdb','fasttext_pybind'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_that_cannot_begin_loads_nothing_for_it(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "manifest.json").write_text("{}")
    lines = (
        "run fineweb absent.warc.gz -o x",
        "run fineweb in.jsonl -o x",  # no language model, and none may be fetched
        "dedup absent -o x",
        "tokenizer train absent -o x",
        "pretrain absent.jsonl -o x",
        "pretrain shards -o x --model nano-99",
        "refresh c5 in.jsonl -o x",
    )
    code = (
        "import os, sys, curate.cli.app as app, curate.run.plan\n"  # the last for all of them
        f"for line in {lines!r}:\n"
        "    if os.fork():\n"  # each line in a process of its own
        "        print(line, os.waitstatus_to_exitcode(os.wait()[1]), flush=True)\n"
        "        continue\n"
        "    code = app.invoke(line.split())\n"
        "    heavy = {'torch', 'numba', 'duckdb', 'curate.run.driver'} & set(sys.modules)\n"
        "    sys.exit(f'{line} imported {heavy}' if heavy else code)"
    )
    offline = {"LLMCURATE_OFFLINE": "1", "LLMCURATE_CACHE": str(tmp_path / "cache")}
    here = {**os.environ, **offline, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=here
    )
    assert done.stdout.splitlines() == [f"{line} 2" for line in lines], done.stderr


def test_more_workers_than_cores_are_named(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    line = ("filter", "c4", "in.jsonl", "--workers", "900", "-o")
    assert "900 workers on " in llmcurate(*line, "x", cwd=tmp_path).stderr
    assert llmcurate(*line, "y", "--quiet", cwd=tmp_path).stderr == ""


def test_the_curve_of_minhash_is_a_table_of_three_lines(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    done = llmcurate("dedup", "in.jsonl", "--method", "minhash", "-o", "x", cwd=tmp_path)
    head, jaccard, found = done.stderr.splitlines()[:3]
    assert head.startswith("minhash: 14 bands") and head.endswith("at 0.685")
    assert jaccard.split()[:2] == ["Jaccard", "0.50"] and found.split()[:2] == ["found", "5.3%"]


@pytest.mark.lab
def test_in_a_workspace_commands_take_the_newest_run(workspace: Path) -> None:
    what = llmcurate("whatif", "--set", "c4.min_sentences=1", cwd=workspace)
    assert "0001-filter: c4.min_sentences" in what.stdout
    checked = llmcurate("check", cwd=workspace)
    assert checked.returncode == 0 and "0001-filter" in checked.stderr
    assert "0001-filter" in llmcurate("verify", cwd=workspace).stderr
    assert "no search index in" in llmcurate("search", "old mill", cwd=workspace).stderr
    assert "no model in" in llmcurate("evaluate", "--on", "a=b.jsonl", cwd=workspace).stderr


def test_in_a_workspace_a_phrase_alone_is_searched_in_the_newest_index(
    tmp_path: Path, corpus: Path
) -> None:
    assert llmcurate("init", cwd=tmp_path).returncode == 0
    assert llmcurate("search", "build", corpus, cwd=tmp_path).returncode == 0
    assert "found 41 times" in llmcurate("search", "old mill", cwd=tmp_path).stdout


def test_an_experiment_is_described_without_being_made(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    line = ("compare", "a=in.jsonl", "b=in.jsonl", "--on", "news=in.jsonl", "-o", "x")
    done = llmcurate(*line, "--tokens", "100k", "--dry-run", cwd=tmp_path)
    assert "9 runs of 100,000 tokens each" in done.stdout, done.stderr
    assert "placebo: a in another order" in done.stdout and not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("pretrain x --model ti", "tiny"),
        ("compare --model ti", "tiny"),
        ("model show ti", "tiny"),
        ("refresh fineweb-e", "fineweb-edu"),
        ("tokenizer train x --pattern ws", ""),
        ("tokenizer train x --pattern gp", "gpt2"),
        ("tokenizer train t.jsonl --by la", "lang"),
        ("stats . --text-column co", "content"),
        pytest.param("migrate --from do", "dolma", marks=pytest.mark.lab),
        ("quality train --preset d", "dclm"),
    ],
)
def test_words_are_completed(line: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "1", "content": "a", "lang": "en"}\n')
    assert completed_here(*line.split(), cwd=tmp_path) == word.split()


def test_version_prints_one_line() -> None:
    done = process("--version")
    assert done.returncode == 0 and done.stdout.startswith("llmcurate 0.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["run", "no-such-recipe", "-o", "x"], "no recipe 'no-such-recipe'"),
        (["filter", "c5", "in.jsonl", "-o", "x"], "did you mean 'c4'?"),
        (["filter", "", "absent.jsonl", "-o", "x"], "names no filter; choose from c4, "),
        (["filter", "c4", "absent.jsonl", "-o", "x"], "absent.jsonl does not exist"),
        (["dedup", "in.jsonl", "-o", "x", "--method", "magic"], "no dedup method 'magic'"),
        (["dedup", "in.jsonl", "-o", "x", "--survivor", "best"], "unknown survivor policy"),
        (["filter", "c4", "in.jsonl"], "give -o OUT"),
        (["filter", "c4", "in.jsonl", "-o", "x", "--set", "c4.min_sentence=1"], "min_sentences"),
        (["explain", "d1"], "give --in"),
        (["tokenizer", "train", "in.jsonl", "-o", "x", "--model", "magic"], "model"),
        (["extract", "--extractor", "magic", "in.jsonl", "-o", "x"], "extractor"),
        (["pretrain", "nowhere", "-o", "x"], "nowhere does not exist"),
        (["fineweb", "in.jsonl"], "did you mean `llmcurate run fineweb`?"),
        (["view"], "did you mean `llmcurate browse`?"),
        (["gopher_quality", "in.jsonl"], "`llmcurate filter gopher_quality`?"),
        (["run", "finweb", "in.jsonl", "-o", "x"], "did you mean 'fineweb'?"),
        (["filter", "rules.py", "in.jsonl", "-o", "x"], "rules.py:commercial"),
        (["filter", "no.py", "in.jsonl", "-o", "x"], "no file no.py"),
        (
            ["filter", "rules:keep", "in.jsonl", "-o", "x"],
            "write your own function as FILE.py:FUNCTION",
        ),
        (
            ["pretrain", "in.jsonl", "-o", "x", "--eval", "a"],
            "a: no such path: give PATH",
        ),
        (["tokenizer", "train", "in.jsonl", "-o", "x", "--vocab-size", "many"], "many"),
        (
            ["run", "trove.py", "in.jsonl", "-o", "x"],
            "run `llmcurate migrate trove.py -o recipe.yaml`",
        ),
        (
            ["run", "dedup.toml", "in.jsonl", "-o", "x"],
            "of text-dedup, not a recipe: run",
        ),
        (["run", "juicer.yaml", "in.jsonl", "-o", "x"], "llmcurate migrate juicer.yaml -o recipe"),
        (["run", "dclm.yaml", "in.jsonl", "-o", "x"], "a configuration of DCLM, not a recipe"),
        pytest.param(
            ["tokenizer", "prune", "tok", "in.jsonl", "-o", "x"],
            "texts are given by --on",
            marks=pytest.mark.lab,
        ),
        (["compare", "a=in.jsonl", "b=x", "-o", "x"], "(--on NAME=PATH)"),
        (["compare", "a=in.jsonl", "b=x", "-o", "x", "--tokens", "9 lives"], "100k or 1e5"),
    ],
)
def test_wrong_use_is_a_one_line_error_with_exit_code_2(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    files = {
        "rules.py": "import re\n\n\ndef commercial(text):\n    return 1.0\n",
        "trove.py": "from datatrove.pipeline.filters import C4QualityFilter\n",
        "dedup.toml": '[algorithm]\nalgorithm_name = "minhash"\n',
        "dclm.yaml": "- source: cc\n  steps:\n    - func: move_url_modifier\n",
        "juicer.yaml": "project_name: demo\nprocess:\n  - language_id_score_filter:\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = llmcurate(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "filter document_length in.jsonl -o",
        "stats in.jsonl -o",
        "demo -o",
        "refresh r.yaml in.jsonl -o",
        "fetch list.txt -o",
        "init",
    ],
)
def test_an_out_that_cannot_be_made_is_a_one_line_error(tmp_path: Path, command: str) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    (tmp_path / "list.txt").write_text("https://host.test/a\n")
    (tmp_path / "r.yaml").write_text("steps: [c4]")
    done = llmcurate(*command.split(), "in.jsonl/out", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert " in.jsonl/out cannot be created (not a directory); name a folder" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_out_without_write_permission_is_a_one_line_error(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    (tmp_path / "locked").mkdir(mode=0o555)
    done = llmcurate("filter", "c4", "in.jsonl", "-o", "locked/out", cwd=tmp_path)
    assert done.returncode == 2 and "cannot be created (permission denied)" in done.stderr


def test_the_name_of_an_out_may_hold_a_time(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.jsonl", [SENTENCES])
    done = llmcurate("filter", "c4", "in.jsonl", "-o", "out_12:30", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert llmcurate("dedup", "out_12:30", "-o", "a:b", cwd=tmp_path).returncode == 0


def test_json_outcome_is_the_last_line_and_adds_up(tmp_path: Path, corpus: Path) -> None:
    done = llmcurate("filter", "c4", str(corpus), "-o", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    for key in ("read", "kept", "rejected", "skipped", "corrupt", "bytes_in", "bytes_out"):
        assert isinstance(outcome[key], int)
    assert outcome["read"] == 43 == outcome["kept"] + outcome["rejected"]
    assert outcome["by_rule"] == {"c4.few_sentences": 2}
    assert Path(outcome["paths"]["corpus"]).is_dir()


def test_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path, corpus: Path) -> None:
    done = llmcurate("dedup", str(corpus), "-o", str(tmp_path / "out"), "--dry-run")
    assert done.returncode == 0
    assert "input: 1 file, " in done.stdout and "0 of 1 partition done" in done.stdout
    assert not (tmp_path / "out").exists()


def test_running_again_says_that_all_is_done(tmp_path: Path, corpus: Path) -> None:
    arguments = ("dedup", str(corpus), "-o", str(tmp_path / "out"))
    assert llmcurate(*arguments).returncode == 0
    again = llmcurate(*arguments)
    assert again.returncode == 0 and "nothing to do" in again.stdout


def test_other_settings_on_the_same_out_say_what_is_recomputed(
    tmp_path: Path, corpus: Path
) -> None:
    arguments = ("filter", "c4", str(corpus), "-o", str(tmp_path / "out"))
    assert llmcurate(*arguments).returncode == 0
    again = llmcurate(*arguments, "--set", "c4.min_sentences=9")
    assert again.returncode == 0 and "so run again: c4" in again.stderr


def test_a_filter_given_web_pages_extracts_them_first(tmp_path: Path) -> None:
    page = f"<html><body><main><p>{SENTENCES}</p></main></body></html>"
    (tmp_path / "page.html").write_text(page)
    done = llmcurate("filter", "c4", "page.html", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "extracting" in done.stderr and "kept 1 document (" in done.stdout


def test_a_recipe_without_extraction_refuses_web_pages(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<html><body>hello</body></html>")
    (tmp_path / "r.yaml").write_text("steps: [c4]\n")
    done = llmcurate("run", "r.yaml", "page.html", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2 and "step `extract`" in done.stderr


def test_unknown_recipe_key_names_file_line_and_nearest_key(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("name: x\nsteps:\n  - c4:\n      min_sentense: 3\n")
    done = llmcurate("run", "r.yaml", "in.jsonl", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "r.yaml:4: unknown key 'min_sentense' in c4" in done.stderr
    assert "did you mean 'min_sentences'?" in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = llmcurate("--debug", "run", "no-such-recipe", "-o", "x", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" in done.stderr


def test_explain_tells_rule_value_threshold_and_partner(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    recipe = tmp_path / "r.yaml"
    recipe.write_text("steps:\n  - c4\n  - dedup_exact: {key: text, survivor: first}\n")
    assert llmcurate("run", str(recipe), str(corpus), "-o", str(out)).returncode == 0
    short = llmcurate("explain", "d41", "--in", str(out)).stdout
    assert "dropped by c4.few_sentences: value 0, threshold 3" in short
    copy = llmcurate("explain", "d40", "--in", str(out)).stdout
    assert "duplicate of d0 with similarity 1.000; d0 is kept" in copy
    whole = json.loads(llmcurate("explain", "d40", "--in", str(out), "--json").stdout)
    assert whole["decisions"][0]["partner_id"] == "d0"
    assert "the duplicate that is kept" in llmcurate("explain", "d0", "--in", str(out)).stdout
    unknown = llmcurate("explain", "d", "--in", str(out))
    assert unknown.returncode == 2 and "did you mean d" in unknown.stderr


def test_a_workspace_finds_input_and_numbers_its_runs(workspace: Path) -> None:
    assert [p.name for p in (workspace / "runs").iterdir()] == ["0001-filter"]
    done = llmcurate("dedup", "--method", "exact", cwd=workspace)
    assert done.returncode == 0, done.stderr
    decisions = pq.read_table(workspace / "runs" / "0002-dedup" / "decisions.parquet")
    assert decisions.num_rows == 2
    again = llmcurate("explain", "d40", cwd=workspace)
    assert again.returncode == 0 and "0002-dedup" in again.stdout


def test_tokenizer_train_as_typed_warns_about_fewer_merges(workspace: Path) -> None:
    done = llmcurate("tokenizer", "train", "--vocab", "32000", cwd=workspace)
    assert done.returncode == 0, done.stderr
    assert "instead of 32000" in done.stderr
    folder = next((workspace / "runs").glob("*-tokenizer"))
    assert (folder / "tokenizer.json").is_file()


def test_torchrun_is_refused_with_the_right_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = llmcurate("pretrain", "shards", "-o", "x", cwd=tmp_path)
    assert done.returncode == 2 and "--processes N" in done.stderr


def test_pretrain_encodes_stale_shards_first_and_then_generates(workspace: Path) -> None:
    pytest.importorskip("torch")
    if not list((workspace / "runs").glob("*-tokenizer")):
        assert llmcurate("tokenizer", "train", "--vocab", "400", cwd=workspace).returncode == 0
    small = ("--set", "pretrain.context=32", "--set", "pretrain.rows=2", "--steps", "3")
    done = llmcurate("pretrain", *small, cwd=workspace)
    assert done.returncode == 0, done.stderr
    assert "encoding first" in done.stderr and "3 steps" in done.stdout
    model = next((workspace / "runs").glob("*-pretrain"))
    assert (model / "checkpoints" / "step-0000003" / "model.safetensors").is_file()
    again = llmcurate("pretrain", *small, cwd=workspace)
    assert again.returncode == 0 and "nothing to do" in again.stdout
    text = llmcurate("generate", "The river", "--max-tokens", "5", cwd=workspace)
    assert text.returncode == 0 and text.stdout.startswith("The river")


def test_init_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "llmcurate.yaml").write_text("runs: elsewhere\n")
    assert llmcurate("init", str(tmp_path)).returncode == 0
    assert (tmp_path / "llmcurate.yaml").read_text() == "runs: elsewhere\n"
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "llmcurate.yaml").write_text("rums: x\n")
    done = llmcurate("dedup", cwd=bad)
    assert done.returncode == 2 and "unknown key 'rums'" in done.stderr


@pytest.mark.lab
def test_help_of_a_group_shows_its_default_action_and_the_subcommands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from curate.cli.app import invoke

    invoke(["language", "--help"])
    shown = capsys.readouterr().out
    assert "--keep" in shown and "--threshold" in shown and "evaluate" in shown


def test_init_says_what_comes_next(tmp_path: Path) -> None:
    first = llmcurate("init", cwd=tmp_path).stdout.splitlines()
    assert first[-1].startswith("next: llmcurate run recipe.yaml IN")
    again = llmcurate("init", cwd=tmp_path).stdout
    assert again.startswith(f"{tmp_path} is a workspace already\nnext: ")
    elsewhere = llmcurate("init", "a folder", cwd=tmp_path).stdout
    assert "next: cd 'a folder', then llmcurate run recipe.yaml IN" in elsewhere


@pytest.mark.parametrize("name", ["in", "in/texts.jsonl.gz", "w.warc.wet.gz"])
def test_an_input_given_instead_of_a_recipe_is_recognised(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    write_corpus(tmp_path / "in" / "texts.jsonl", [SENTENCES])
    done = llmcurate("run", name, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert f"{name} is not a recipe: " in done.stderr and f"run recipe.yaml {name}`" in done.stderr
    (tmp_path / "c4").mkdir()  # a shipped recipe of that name is meant
    planned = llmcurate("run", "c4", "in", "-o", "out", "--dry-run", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr


def test_a_workspace_runs_its_own_recipe(tmp_path: Path) -> None:
    bare = llmcurate("run", cwd=tmp_path)
    assert bare.returncode == 2 and "give RECIPE, or work in a workspace" in bare.stderr
    assert llmcurate("init", cwd=tmp_path).returncode == 0
    unnamed = llmcurate("run", cwd=tmp_path)
    assert unnamed.returncode == 2 and "add `input: IN` to it" in unnamed.stderr
    (tmp_path / "page.html").write_text(
        f"<html><body><main><p>{SENTENCES}</p></main></body></html>"
    )
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("# input: archives/ ", "input: page.html"))
    done = llmcurate("run", cwd=tmp_path)
    assert done.returncode == 0 and "read 1 document (" in done.stdout, done.stderr
    assert (tmp_path / "runs/0001-recipe/corpus").is_dir()


def test_a_damaged_file_that_a_library_found_leads_to_check(capsys: pytest.CaptureFixture[str]):
    assert _report(pa.ArrowInvalid("Parquet magic bytes not found in footer.")) == 1
    assert "footer; `llmcurate check OUT` names the damaged files" in capsys.readouterr().err
