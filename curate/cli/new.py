"""`llmcurate new step`: a package with a step of the user's own, to begin from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.options import group, output
from llmcurate.base.disk.files import make_folder
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo

new_app = group("new", "Write the beginnings of a package: new step NAME.")

EXAMPLE = "share_of_digits"  # in the texts below, where the user's name takes its place
PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "llmcurate-share-of-digits"
version = "0.1.0"
description = "The step share_of_digits of llmcurate."
requires-python = ">=3.10"
dependencies = ["llmcurate"]

[project.entry-points."llmcurate.steps"]  # by this llmcurate finds the step
share_of_digits = "llmcurate_share_of_digits:ShareOfDigitsStep"

[tool.hatch.build.targets.wheel]
only-include = ["llmcurate_share_of_digits.py"]
"""
MODULE = '''\
"""The step share_of_digits of llmcurate."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow.compute as pc
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import Step, step


@step("share_of_digits")
class ShareOfDigitsStep(Step):
    """Drops documents in which too many characters are digits."""

    only_measures: ClassVar[bool] = True  # it drops whole documents and changes no text

    # Fields are settings: in recipes, in Python and on the command line.
    max_share: float = Field(
        0.2, ge=0, le=1, description="Largest share of digits in a document that stays."
    )

    def apply(self, docs: Documents) -> Documents:
        """Measures all documents of a batch at once, then marks those beyond a limit."""
        characters = pc.fill_null(pc.utf8_length(docs.text), 0).to_numpy()
        digits = pc.fill_null(pc.count_substring_regex(docs.text, r"\\d"), 0).to_numpy()
        docs = docs.annotate("share", digits / np.maximum(characters, 1))
        return decide(docs, self.limits())

    def limits(self) -> list[Limit]:
        """By these the report shows values beside limits, and `llmcurate whatif` tries others."""
        return [Limit("too_high", "share", "max_share", self.max_share, above=True)]
'''
TEST = '''\
"""What share_of_digits drops, and what it keeps."""

from curate.documents.documents import documents
from curate.steps.recipe import make_step


def test_documents_of_mostly_digits_are_dropped_with_their_share() -> None:
    step = make_step("share_of_digits", {"max_share": 0.5})
    texts = ["The 2nd of 3 words.", "1234 5678"]
    docs = documents({"id": ["prose", "table"], "text": texts})
    kept, rejected = step.apply(docs.within(step.label)).split()
    assert kept["id"].to_pylist() == ["prose"]
    assert rejected["rule"].to_pylist() == ["too_high"]
    assert rejected["value"].to_pylist() == [8 / 9]
'''
README = """\
# llmcurate-share-of-digits

A step of llmcurate: it drops documents in which too many characters are digits.

    pip install -e .                 # then llmcurate knows it
    python -m pytest                 # its test
    llmcurate steps share_of_digits  # its settings
    llmcurate filter share_of_digits corpus/ -o out --set share_of_digits.max_share=0.1

In a recipe it is `- share_of_digits: {max_share: 0.1}`, in Python
`Corpus.read("corpus/").step("share_of_digits", max_share=0.1)`.
"""


@new_app.command()
def step(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the step, as share_of_digits.")
    ],
    out: Annotated[
        Optional[Path],
        output("New folder. The default is llmcurate-NAME."),
    ] = None,
) -> None:
    """Write a package with a step of your own.

    It holds a step that works, registered as an entry point, with its test: change it to what you
    mean. A function alone needs no package: llmcurate filter my_rules.py:keep

    \b
    Example:
    llmcurate new step share_of_digits -o my-step
    """
    _check_name(name)
    folder = out or Path(f"llmcurate-{name.replace('_', '-')}")
    if folder.exists():
        raise UsageError(f"{folder} is there already: name another folder with -o")
    make_folder(folder, "-o")
    for file, text in texts(name).items():
        (folder / file).write_text(text, encoding="utf-8")
    echo(f"wrote {folder}: next `pip install -e {folder}`, then `llmcurate steps {name}`")


def texts(name: str) -> dict[str, str]:
    """The files of a package with a step of that name, by path."""
    words = {
        EXAMPLE: name,
        EXAMPLE.replace("_", "-"): name.replace("_", "-"),
        "ShareOfDigitsStep": "".join(word.capitalize() for word in [*name.split("_"), "step"]),
    }
    files = {
        "pyproject.toml": PROJECT,
        f"llmcurate_{name}.py": MODULE,
        f"test_{name}.py": TEST,
        "README.md": README,
    }
    for file, text in files.items():
        for word, replacement in words.items():
            text = text.replace(word, replacement)
        files[file] = text
    return files


def _check_name(name: str) -> None:
    """UsageError where no step can be called so, or one is."""
    from curate.steps.recipe import CUT
    from curate.steps.registry import step_names

    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise UsageError(f"NAME {name!r}: write small letters, digits and _, as in {EXAMPLE}")
    if name in (CUT, "read", *step_names()):
        raise UsageError(f"NAME {name!r}: llmcurate has that already; choose another name")
