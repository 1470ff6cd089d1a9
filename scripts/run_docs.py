"""Run the commands of docs/tutorial.md and the notebooks, and write what they print into them.

python scripts/run_docs.py [PAGE...]            # writes it; without a page all of them
python scripts/run_docs.py --check [PAGE...]    # exit status 1 where a page differs

In the tutorial a block `console` has commands behind `$ `, further lines of one behind `> `. A line
`...` stands for lines that the page leaves out. Behind `<!-- varies -->` a block is run and its
output not compared. A block `python` whose first line is `# NAME.py` becomes that file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")))
LEFT_OUT = "..."
BLOCK = re.compile(r"(<!-- varies -->\n)?^```(console|python)\n(.*?)^```$", re.M | re.S)
VARYING = re.compile(r"\b\d[\d,.]* (?=s\b|MiB\b)")  # seconds and memory


def environment(folder: Path) -> dict[str, str]:
    """The environment of commands; folder: where `llmcurate` and `python` are put for them."""
    folder.mkdir()
    for name, arguments in (("llmcurate", "-m curate.cli.app "), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (folder / name).chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **paths, "COLUMNS": "100", "LLMCURATE_OFFLINE": "1"}


def printed(command: str, folder: Path, env: dict[str, str]) -> list[str]:
    """The lines that a command prints on standard output; it must succeed."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def same(old: str, new: str) -> bool:
    """Whether two outputs differ in seconds and memory alone."""
    return VARYING.sub("# ", old) == VARYING.sub("# ", new)


def fitted(old: list[str], new: list[str]) -> list[str]:
    """The part of an output that the page shows: as many lines as before around `...`, or all.
    Where it differs from the old one in seconds and memory alone, the old one stays."""
    if LEFT_OUT in old:
        head = old.index(LEFT_OUT)
        tail = len(old) - head - 1
        new = [*new[:head], LEFT_OUT, *new[len(new) - tail :]]
    return old if same("\n".join(old), "\n".join(new)) else new


def commands(block: str) -> list[tuple[list[str], list[str]]]:
    """(lines of the command, lines of its output) of a block."""
    pairs: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            pairs.append(([line], []))
        elif line.startswith("> ") and not pairs[-1][1]:
            pairs[-1][0].append(line)
        else:
            pairs[-1][1].append(line)
    return pairs


def written(page: str, folder: Path, wanted: Callable[[str], bool] = lambda command: True) -> str:
    """The page with what its commands print. Commands that are not wanted are not run."""
    env = environment(folder / ".bin")

    def replaced(match: re.Match[str]) -> str:
        varies, kind, block = match.groups()
        if kind == "python":
            if name := re.match(r"# (\w+\.py)\n", block):
                (folder / name[1]).write_text(block, encoding="utf-8")
            return match[0]
        lines = []
        for command, old in commands(block):
            text = "\n".join(line[2:] for line in command)
            new = printed(text, folder, env) if wanted(text) else old
            lines += [*command, *(old if varies and old else fitted(old, new))]
        return f"{varies or ''}```{kind}\n" + "\n".join(lines) + "\n```"

    return BLOCK.sub(replaced, page)


def text_of(outputs: list[Any]) -> str:
    """The texts of a cell's outputs."""
    return "".join(o.get("text") or str(o.get("data", {}).get("text/plain")) for o in outputs)


def executed(notebook: str, folder: Path) -> str:
    """The notebook with the outputs of its cells, none of which may fail. Outputs that differ from
    those before in seconds and memory alone stay as they are. HTML that links into the folder goes:
    nobody else has the folder, and the text beside it says the same."""
    import nbformat
    from nbclient import NotebookClient

    os.environ.update(environment(folder / ".bin"))
    old, new = (nbformat.reads(notebook, as_version=4) for _ in range(2))
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(new, timeout=600, record_timing=False, resources=where)
    client.extra_arguments = ["--log-level=ERROR"]
    client.execute()
    for before, after in zip(old.cells, new.cells, strict=True):
        for data in (output.get("data", {}) for output in after.get("outputs", ())):
            if str(folder.resolve()) in data.get("text/html", ""):
                del data["text/html"]
        if after.cell_type == "code" and same(text_of(before.outputs), text_of(after.outputs)):
            after.outputs = before.outputs
    new.metadata = old.metadata
    return nbformat.writes(new) + "\n"


def main() -> int:
    names = [Path(name).resolve() for name in sys.argv[1:] if name != "--check"]
    differ = 0
    for path in names or PAGES:
        before = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            run = executed if path.suffix == ".ipynb" else written
            after = run(before, Path(folder))
        if "--check" not in sys.argv:
            path.write_text(after, encoding="utf-8")
        elif after != before:
            print(f"{path.name} differs: run python scripts/run_docs.py")
            differ = 1
    return differ


if __name__ == "__main__":
    sys.exit(main())
