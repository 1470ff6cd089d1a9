"""Profiles: what the rules made for English must know of another language.

A profile says how the words of a language are counted, which words and end marks its prose has, and
the limits that stand in for a rule's own. The shipped ones are in profiles.yaml beside this module,
with the source of every figure; benchmarks/language_profiles.py learns others in the same form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from curate.text.codes import comparable
from llmcurate.base.disk.files import check_regular
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError

SHIPPED = Path(__file__).with_name("profiles.yaml")
FILE = "profiles.yaml"  # in a folder that holds profiles
ENGLISH = "eng"
AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class Profile:
    """One language.

    name: its code as the file has it. clusters: the mean length of a word in grapheme clusters,
    for a script without spaces; 0 for one with spaces. stop_words: the most frequent words.
    end_marks: the characters that end its sentences, closing quotes included; empty where it
    writes none. limits: by step and setting, what stands in for the step's own.
    """

    name: str
    clusters: float = 0.0
    stop_words: tuple[str, ...] = ()
    end_marks: str = ""
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    words: str = "estimate"  # by which dictionaries a step counts (text/dictionaries.py)

    @property
    def code(self) -> str:
        """What all labels of the language have in common, as `codes.comparable` says it."""
        return comparable(self.name)

    @property
    def digest(self) -> str:
        """A hash of all that it says."""
        facts = [self.name, self.clusters, self.stop_words, self.end_marks, self.limits]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _profile(path: Path, name: str, values: Any) -> Profile:
    """The profile of an entry of a file; UsageError names what is wrong with it."""
    where = f"{path}: profile {name}"
    if not isinstance(values, dict):
        raise UsageError(f"{where}: is no mapping")
    # `word_length` and `source` are for readers, `reference` for benchmarks/language_profiles.py.
    for key in values.keys() - {
        "source", "word_length", "clusters", "stop_words", "end_marks", "limits", "reference",
    }:  # fmt: skip
        raise UsageError(f"{where}: unknown key {key!r}")
    clusters, words = values.get("clusters", 0.0), values.get("stop_words", [])
    marks, limits = values.get("end_marks", ""), values.get("limits", {})
    if not isinstance(clusters, (int, float)) or not (clusters == 0 or 1 <= clusters <= 20):
        raise UsageError(f"{where}: clusters is a number from 1 to 20")
    if not isinstance(words, list) or not all(isinstance(w, str) and w for w in words):
        raise UsageError(f"{where}: stop_words is a list of words")
    if not isinstance(marks, str):
        raise UsageError(f"{where}: end_marks is a text of characters")
    if not isinstance(limits, dict) or not all(isinstance(x, dict) for x in limits.values()):
        raise UsageError(f"{where}: limits has settings by step")
    return Profile(name, float(clusters), tuple(dict.fromkeys(words)), marks, limits)


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> dict[str, Profile]:
    try:
        check_regular(path)
        values = read_yaml(path.read_text("utf-8"), f"profiles {path}")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"profiles {path}: {getattr(error, 'strerror', error)}") from None
    if not isinstance(values, dict) or not values:
        raise UsageError(f"profiles {path}: it has no profile, as `th: {{...}}` would be one")
    # YAML's `no`, which it takes for false, is Norwegian.
    names = {("no" if name is False else str(name)): entry for name, entry in values.items()}
    profiles = [_profile(path, name, entry) for name, entry in names.items()]
    return {profile.code: profile for profile in profiles}


def read(path: Path) -> dict[str, Profile]:
    """Profiles by code of a file, or of the file `profiles.yaml` in a folder; UsageError where it
    is not one."""
    path = path.expanduser()
    path = path / FILE if path.is_dir() else path
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise UsageError(f"profiles {path}: {error.strerror}") from None
    return _read(path, stamp)


def shipped() -> dict[str, Profile]:
    """The profiles that come with the package, by code."""
    return _read(SHIPPED, 0)


@dataclass(frozen=True)
class Chosen:
    """Which profile judges a document. by_code: for a label of that code; always: for every
    document, whatever its label; unlabelled: for one without a label."""

    by_code: Mapping[str, Profile] = field(default_factory=dict)
    always: Profile | None = None
    unlabelled: Profile | None = None

    def of(self, label: str | None) -> Profile | None:
        """The profile for a label of the column `lang`; None: the rule's own limits hold."""
        if self.always is not None or label is None:
            return self.always or self.unlabelled
        return self.by_code.get(comparable(label.partition("-")[0]))

    @property
    def profiles(self) -> list[Profile]:
        """All of them, each once, by code."""
        by_code = {p.code: p for p in (*self.by_code.values(), self.always, self.unlabelled) if p}
        return [by_code[code] for code in sorted(by_code)]


def file_of(setting: str) -> Path | None:
    """The file that a setting names; None where it is auto, none or a language."""
    if setting in (AUTO, NONE) or (comparable(setting) in shipped() and "/" not in setting):
        return None
    path = Path(setting).expanduser()
    return path / FILE if path.is_dir() else path


@lru_cache(maxsize=1)
def _auto() -> Chosen:
    return Chosen({code: p for code, p in shipped().items() if code != ENGLISH})


def chosen(setting: str) -> Chosen:
    """What a setting `profile` means. UsageError where it names neither a language nor a file."""
    if setting == NONE:
        return Chosen()
    if setting == AUTO:
        return _auto()
    path = file_of(setting)
    if path is None:
        return Chosen(always=shipped()[comparable(setting)])
    if not path.exists():
        names = ", ".join(sorted(p.name for p in shipped().values()))
        raise UsageError(
            f"profile {setting}: no language with a profile ({names}), and no file or folder"
        )
    of_file = read(path)
    everyone = {**_auto().by_code, **of_file}
    return Chosen(everyone, unlabelled=next(iter(of_file.values())) if len(of_file) == 1 else None)
