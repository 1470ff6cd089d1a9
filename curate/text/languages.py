"""Languages: their codes, and profiles of what the rules made for English must know of another.

Labels in any form are folded to codes of ISO 639-3 by the tables of language_codes.txt. A profile
says how the words of a language are counted, which words and end marks its prose has, and the
limits that hold in place of a rule's own. The shipped ones are in profiles.yaml beside this module,
with the source of every figure; benchmarks/language_profiles.py learns others in the same form.

Words of scripts without spaces are counted by dictionaries, where a package of PyPI brings a list
of them (the extra `segment`). Which are used is part of a step's settings as they are written down,
with a hash of each list: what a run counts does not depend on what else is installed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcurate.base.disk.files import check_regular
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from tokenize_kit.segment import Dictionary


def _code_tables() -> dict[str, dict[str, str]]:
    """The tables of language_codes.txt, which says where each is from, by name."""
    tables: dict[str, dict[str, str]] = {}
    lines = Path(__file__).with_name("language_codes.txt").read_text("utf-8").splitlines()
    for line in lines:
        if line.endswith(":"):
            tables[line[:-1]] = {}
        elif not line.startswith("#"):
            table = tables[[*tables][-1]]
            table.update((key, code) for key, _, code in (x.partition(":") for x in line.split()))
    return tables


_TABLES = _code_tables()
THREE = _TABLES["two"]
TWO = {three: two for two, three in THREE.items()}
_CODES = THREE | _TABLES["bibliographic"] | _TABLES["old"]

# lid.176 has the codes of Wikipedias: there als is Alemannic (gsw), and bh is Bihari, for which
# only ISO 639-2 has a code. With a script (als_Latn, as in NLLB) als is ISO's Tosk Albanian.
_WIKIPEDIA = {"als": "gsw", "bh": "bih"}

# BCP 47 (RFC 5646, 2.1) in any case and with underscores: language, extended language, script,
# region, then variants, extensions and private use.
_TAG = re.compile(
    r"([a-z]{2,3})(?:-([a-z]{3}))?(?:-([a-z]{4}))?(?:-(?:[a-z]{2}|\d{3}))?"
    rf"(?:-(?:(?=[a-z]*\d)[a-z\d]{{5,8}}|\d[a-z\d]{{3}}|{'|'.join(_TABLES['variants'])}))*"
    r"(?:-[a-z\d](?:-[a-z\d]{1,8})*)*",
    re.ASCII,
)
# What a POSIX locale has behind its region (`sr_RS.UTF-8@latin`).
_LOCALE = re.compile(r"(?:\.[\w-]+)?(?:@(\w+))?", re.ASCII)
_MODIFIERS = {"latin": "Latn", "cyrillic": "Cyrl", "devanagari": "Deva", "arabic": "Arab"}


@lru_cache(maxsize=4096)
def _parsed(label: str) -> tuple[str | None, str | None]:
    """(ISO 639-3 code, ISO 15924 script) of a label in any form, None each where it says none."""
    # Common Crawl lists the languages of a page (`zho,eng`), the first before all others.
    name, script = label.partition(",")[0].strip(), None
    at = next((k for k, letter in enumerate(name) if letter in ".@"), len(name))
    if locale := _LOCALE.fullmatch(name[at:]):
        name, script = name[:at], _MODIFIERS.get(locale[1] or "")
    name = name.lower().replace("_", "-")
    if code := _TABLES["tags"].get(name):
        return code, script
    tag = _TAG.fullmatch(name)
    if tag is None:
        return None, None
    language, extended, wrote = tag.groups()
    if wrote:
        script = wrote.capitalize()
        if script not in _TABLES["scripts"]:
            return None, None
    if extended:
        if _TABLES["members"].get(extended) != _CODES.get(language, language):
            return None, None
        language = extended
    if not script and language in _WIKIPEDIA:
        return _WIKIPEDIA[language], None
    return _CODES.get(language, language if len(language) == 3 else None), script


def script_of(label: str) -> str | None:
    """The ISO 15924 part of `eng_Latn`; None where the label has none."""
    return _parsed(label)[1]


def iso639_3(label: str) -> str | None:
    """The ISO 639-3 code of a label: ISO 639-1, 639-2/B or 639-3 (`en`, `eng`), with a script
    (`eng_Latn`), a BCP 47 tag or a POSIX locale, in any case; None where the label is no code.

    Three letters stand for themselves, but for codes that were given up; only Wikipedia's `als` is
    another language to ISO.
    """
    return _parsed(label)[0]


def comparable(label: str) -> str:
    """The code that labels of one language share: that of the macrolanguage where its name is
    used for this one (`cmn`, `zho` and `zh-TW`), else its own; else the label itself."""
    code = iso639_3(label)
    return label if code is None else _TABLES["dominant"].get(code, code)


def macrolanguage(label: str) -> str | None:
    """The code of the macrolanguage, as `comparable` has it: `zho` of `yue`; None without one."""
    code = iso639_3(label)
    return _TABLES["members"].get(code) if code else None


def entry_for(label: str, names: Iterable[str]) -> str | None:
    """Which of the names holds for a label: the label itself, else a name of its language and
    script, else one of its macrolanguage; None where none does."""
    return _entry(label, tuple(names))


@lru_cache(maxsize=4096)
def _entry(label: str, names: tuple[str, ...]) -> str | None:
    if label in names:
        return label
    script = script_of(label)
    for code in (comparable(label), macrolanguage(label)):
        alike = [name for name in names if comparable(name) == code]
        # A name without a script is of all of the language's: `th` of `tha_Thai`, too.
        alike.sort(key=lambda name: (script_of(name) != script, script_of(name) is not None, name))
        if alike and (script is None or script_of(alike[0]) in (None, script)):
            return alike[0]
    return None


def labels_named(keep: Iterable[str], labels: Iterable[str]) -> frozenset[str]:
    """The labels that `keep` names: by the label itself, or by a code of its language.

    Raises:
        ValueError: a name stands for none of the labels; the message says which are near.
    """
    labels = list(labels)
    chosen_labels: set[str] = set()
    for name in keep:
        if name in labels:
            chosen_labels.add(name)
            continue
        same, matching = comparable(name), [x for x in labels if stands_for(name, x)]
        if not matching and script_of(name) is None:
            # A macrolanguage that the model has no label for is all of its languages.
            matching = [x for x in labels if macrolanguage(x) == same]
        if not matching:
            alike = [x for x in labels if comparable(x) == same]
            near = alike or get_close_matches(name, labels, 3, 0.5) or sorted(labels)[:5]
            raise ValueError(
                f"the model has no label for {name!r}; among its {len(labels)}: {', '.join(near)}"
            )
        chosen_labels.update(matching)
    return frozenset(chosen_labels)


def stands_for(name: str, label: str) -> bool:
    """Whether a name is of a label's language, and of its script where both say one."""
    wrote = script_of(name)
    # A label without a script is of all of the language's: lid.176's `th` is `tha_Thai`, too.
    return comparable(name) == comparable(label) and (
        wrote is None or script_of(label) in (None, wrote)
    )


# Profiles.

SHIPPED = Path(__file__).with_name("profiles.yaml")
FILE = "profiles.yaml"  # in a folder that holds profiles
ENGLISH = "eng"
AUTO, NONE, ESTIMATE = "auto", "none", "estimate"


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
    limits: Mapping[str, Mapping[str, float | dict[int, float]]] = field(default_factory=dict)
    words: str = "estimate"  # by which dictionaries a step counts

    @property
    def code(self) -> str:
        """What all labels of the language have in common, as `comparable` says it."""
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
    from llmcurate.base.disk.yaml_file import read_yaml

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
        code = entry_for(label, self.by_code)
        return None if code is None else self.by_code[code]

    @property
    def profiles(self) -> list[Profile]:
        """All of them, each once, by code."""
        by_code = {p.code: p for p in (*self.by_code.values(), self.always, self.unlabelled) if p}
        return [by_code[code] for code in sorted(by_code)]


def file_of(setting: str) -> Path | None:
    """The file that a setting names; None where it is auto, none or a language."""
    named = comparable(setting) in shipped() and not setting.endswith((".yaml", ".yml"))
    if setting in (AUTO, NONE) or named:
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


# Dictionaries.


@dataclass(frozen=True)
class Source:
    """A list of words: the package that brings it, its file there (a word begins each line), and
    the scripts that it cuts."""

    package: str
    file: str
    scripts: tuple[str, ...]


# Khmer, Burmese and Japanese have no plain list on PyPI that is kept.
SOURCES = {
    "tha": Source("pythainlp", "corpus/words_th.txt", ("Thai",)),
    "lao": Source("laonlp", "corpus/lo_spellcheck_dict.txt", ("Lao",)),
    "zho": Source("jieba", "dict.txt", ("Han",)),
}


def list_of(code: str) -> Path | None:
    """The list of a language, where its package is installed; the package is not loaded."""
    source = SOURCES.get(code)
    try:
        spec = find_spec(source.package) if source else None
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / source.file if source else Path(folder)
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=8)
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def effective(words: str, codes: Iterable[str]) -> str:
    """A setting `words` as it is here and now: auto becomes `estimate`, or `tha=HASH,zho=HASH` of
    the lists there are for these languages. UsageError where a named list is another or absent."""
    if words == AUTO:
        paths = {code: list_of(code) for code in sorted(set(codes))}
        dictionaries = [f"{code}={_digest(path)}" for code, path in paths.items() if path]
        return ",".join(dictionaries) or ESTIMATE
    for code in named(words):
        dictionary_for(words, code)
    return words


def named(words: str) -> dict[str, str]:
    """The languages that a setting names, and the hash that each list must have, if any."""
    if words in (AUTO, ESTIMATE):
        return {}
    pairs = (entry.strip().partition("=") for entry in words.split(","))
    return {comparable(code): digest for code, _, digest in pairs}


def dictionary_for(words: str, code: str) -> Dictionary | None:
    """The dictionary for a language by a setting that is effective; None: its words are estimated.
    UsageError where the list is absent or another."""
    digests = named(words)
    if code not in digests:
        return None
    path = list_of(code)
    if path is None:
        raise UsageError(
            f"words: no dictionary for {code}: pip install 'llmcurate[segment]', or words: estimate"
        )
    if digests[code] and digests[code] != _digest(path):
        raise UsageError(
            f"words: {path} is another list than the run had ({digests[code]}): install the version"
            f" of {SOURCES[code].package} that it had, or take words: auto for a new run"
        )
    return _words(path, code)


@lru_cache(maxsize=4)
def _words(path: Path, code: str) -> Dictionary:
    from tokenize_kit.segment import dictionary_of

    lines = path.read_text("utf-8-sig").splitlines()
    words = {line.split()[0] for line in lines if line.strip()}
    return dictionary_of(words, _digest(path), path, SOURCES[code].scripts)
