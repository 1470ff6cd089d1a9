"""Codes of languages, and profiles, which adapt rules made for English to other languages.

Labels in any form are folded to codes of ISO 639-3 by the tables of language_codes.txt. Profiles
are in profiles.yaml, with sources (benchmarks/language_profiles.py learns others). In a script
without spaces, words are counted with a dictionary if a PyPI package with a word list is installed.
A step's settings record the hash of the word list, and another list later raises an error."""

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
# The part of a POSIX locale after its region (`sr_RS.UTF-8@latin`).
_LOCALE = re.compile(r"(?:\.[\w-]+)?(?:@(\w+))?", re.ASCII)
_MODIFIERS = {"latin": "Latn", "cyrillic": "Cyrl", "devanagari": "Deva", "arabic": "Arab"}


@lru_cache(maxsize=4096)
def _parsed(label: str) -> tuple[str | None, str | None]:
    """Return (ISO 639-3 code, ISO 15924 script) of a label in any form; each is None if unknown."""
    # Common Crawl lists a page's languages (`zho,eng`), the main one first.
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
    """Return the ISO 15924 script of a label such as `eng_Latn`, or None if it has none."""
    return _parsed(label)[1]


def iso639_3(label: str) -> str | None:
    """Return the ISO 639-3 code of a label, or None if the label is no code. A label is a code of
    ISO 639-1, 639-2/B or 639-3 (`en`, `eng`), alone or with a script (`eng_Latn`), a BCP 47 tag or
    a POSIX locale; upper and lower case are equal. Three letters are their own code, except for
    withdrawn codes and Wikipedia's `als`, which is another language in ISO."""
    return _parsed(label)[0]


def comparable(label: str) -> str:
    """Return the one code for all labels of a language: its macrolanguage's code if that is the
    usual name of the language (`zho` for `cmn` and `zh-TW`), else the language's own code. A label
    that is no code stays as it is."""
    code = iso639_3(label)
    return label if code is None else _TABLES["dominant"].get(code, code)


def macrolanguage(label: str) -> str | None:
    """Return the code of the macrolanguage of a label's language (`zho` for `yue`), or None."""
    code = iso639_3(label)
    return _TABLES["members"].get(code) if code else None


def entry_for(label: str, names: Iterable[str]) -> str | None:
    """Return the name among `names` that applies to a label: the label itself, else a name of its
    language and script, else a name of its macrolanguage, else None."""
    return _entry(label, tuple(names))


@lru_cache(maxsize=4096)
def _entry(label: str, names: tuple[str, ...]) -> str | None:
    if label in names:
        return label
    script = script_of(label)
    for code in (comparable(label), macrolanguage(label)):
        alike = [name for name in names if comparable(name) == code]
        # A name without a script covers all of the language's scripts: `th` covers `tha_Thai`.
        alike.sort(key=lambda name: (script_of(name) != script, script_of(name) is not None, name))
        if alike and (script is None or script_of(alike[0]) in (None, script)):
            return alike[0]
    return None


def labels_named(keep: Iterable[str], labels: Iterable[str]) -> frozenset[str]:
    """Return those of `labels` that `keep` names, by the label itself or by a code of its language.
    Raises ValueError for a name that matches no label; the message lists similar labels."""
    labels = list(labels)
    chosen_labels: set[str] = set()
    for name in keep:
        if name in labels:
            chosen_labels.add(name)
            continue
        same, matching = comparable(name), [x for x in labels if matches_label(name, x)]
        if not matching and script_of(name) is None:
            # A macrolanguage that the model has no label for covers all of its languages.
            matching = [x for x in labels if macrolanguage(x) == same]
        if not matching:
            alike = [x for x in labels if comparable(x) == same]
            near = alike or get_close_matches(name, labels, 3, 0.5) or sorted(labels)[:5]
            raise ValueError(
                f"the model has no label for {name!r}; among its {len(labels)}: {', '.join(near)}"
            )
        chosen_labels.update(matching)
    return frozenset(chosen_labels)


def matches_label(name: str, label: str) -> bool:
    """Return True if name and label have the same language, and the same script if both name
    one."""
    wrote = script_of(name)
    # A label without a script covers all of the language's: lid.176's `th` covers `tha_Thai`.
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
    """The profile of a language."""

    name: str  # the language's code in the file of profiles
    clusters: float = 0.0  # mean grapheme clusters per word in a script without spaces, else 0
    stop_words: tuple[str, ...] = ()  # the most frequent words
    end_marks: str = ""  # characters that end sentences, with closing quotes; may be none
    # {step: {setting: value}}, the values that replace the step's own
    limits: Mapping[str, Mapping[str, float | dict[int, float]]] = field(default_factory=dict)
    words: str = "estimate"  # the setting `words` of a step

    @property
    def code(self) -> str:
        """Return the one code for all labels of the language (`zho` for `cmn` and `zh-TW`)."""
        return comparable(self.name)

    @property
    def digest(self) -> str:
        """Return a hash of the profile's content."""
        facts = [self.name, self.clusters, self.stop_words, self.end_marks, self.limits]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _profile(path: Path, name: str, values: Any) -> Profile:
    where = f"{path}: profile {name}"
    if not isinstance(values, dict):
        raise UsageError(f"{where} must be a mapping")
    # `word_length` and `source` are for readers, `reference` for benchmarks/language_profiles.py.
    for key in values.keys() - {
        "source", "word_length", "clusters", "stop_words", "end_marks", "limits", "reference",
    }:  # fmt: skip
        raise UsageError(f"{where}: unknown key {key!r}")
    clusters, words = values.get("clusters", 0.0), values.get("stop_words", [])
    marks, limits = values.get("end_marks", ""), values.get("limits", {})
    if not isinstance(clusters, (int, float)) or not (clusters == 0 or 1 <= clusters <= 20):
        raise UsageError(f"{where}: clusters must be a number from 1 to 20")
    if not isinstance(words, list) or not all(isinstance(w, str) and w for w in words):
        raise UsageError(f"{where}: stop_words must be a list of words")
    if not isinstance(marks, str):
        raise UsageError(f"{where}: end_marks must be a string of characters")
    if not isinstance(limits, dict) or not all(isinstance(x, dict) for x in limits.values()):
        raise UsageError(f"{where}: limits must hold settings by step")
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
        raise UsageError(f"profiles {path}: it holds no profile such as `th: {{...}}`")
    # YAML reads `no`, the code of Norwegian, as false.
    names = {("no" if name is False else str(name)): entry for name, entry in values.items()}
    profiles = [_profile(path, name, entry) for name, entry in names.items()]
    return {profile.code: profile for profile in profiles}


def read(path: Path) -> dict[str, Profile]:
    """Return {code: profile} from a file or a folder's `profiles.yaml`. Raises UsageError."""
    path = path.expanduser()
    path = path / FILE if path.is_dir() else path
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise UsageError(f"profiles {path}: {error.strerror}") from None
    return _read(path, stamp)


def shipped() -> dict[str, Profile]:
    """Return the profiles that come with the package, by code."""
    return _read(SHIPPED, 0)


@dataclass(frozen=True)
class Chosen:
    """The profiles that apply to documents. `by_code` maps languages' codes to profiles. If set,
    `always` applies to all documents, `unlabelled` to documents without a language label."""

    by_code: Mapping[str, Profile] = field(default_factory=dict)
    always: Profile | None = None
    unlabelled: Profile | None = None

    def of(self, label: str | None) -> Profile | None:
        """Return the language profile for documents with this label in the column `lang`. Return
        None if they have no profile, so that a step's own limits apply."""
        if self.always is not None or label is None:
            return self.always or self.unlabelled
        code = entry_for(label, self.by_code)
        return None if code is None else self.by_code[code]

    @property
    def profiles(self) -> list[Profile]:
        """Return all profiles, each once, in the order of their codes."""
        by_code = {p.code: p for p in (*self.by_code.values(), self.always, self.unlabelled) if p}
        return [by_code[code] for code in sorted(by_code)]


def file_of(setting: str) -> Path | None:
    """Return the file that a setting names, or None if the setting is auto, none or a language."""
    named = comparable(setting) in shipped() and not setting.endswith((".yaml", ".yml"))
    if setting in (AUTO, NONE) or named:
        return None
    path = Path(setting).expanduser()
    return path / FILE if path.is_dir() else path


@lru_cache(maxsize=1)
def _auto() -> Chosen:
    return Chosen({code: p for code, p in shipped().items() if code != ENGLISH})


def chosen(setting: str) -> Chosen:
    """Return the profiles of a setting `profile`. Raises UsageError if it names neither a language
    with a profile nor a file."""
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
            f"profile {setting}: neither a language with a profile ({names}) nor a file or folder"
        )
    of_file = read(path)
    everyone = {**_auto().by_code, **of_file}
    return Chosen(everyone, unlabelled=next(iter(of_file.values())) if len(of_file) == 1 else None)


# Dictionaries.


@dataclass(frozen=True)
class Source:
    """A word list: its PyPI package, its file there (each line begins with a word), its scripts."""

    package: str
    file: str
    scripts: tuple[str, ...]


# Khmer, Burmese and Japanese have no maintained plain list on PyPI.
SOURCES = {
    "tha": Source("pythainlp", "corpus/words_th.txt", ("Thai",)),
    "lao": Source("laonlp", "corpus/lo_spellcheck_dict.txt", ("Lao",)),
    "zho": Source("jieba", "dict.txt", ("Han",)),
}


def list_of(code: str) -> Path | None:
    """Return the path of a language's word list, or None if its package is not installed."""
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


def effective_words(words: str, codes: Iterable[str]) -> str:
    """Return the setting `words` (how words are counted in scripts without spaces) without `auto`.

    `auto` becomes a list such as `tha=HASH,zho=HASH`: those of the languages `codes` whose word
    list is installed here, with its hash. It becomes `estimate` if no word list is installed. Any
    other value is returned unchanged. Raises UsageError if a word list that it names is missing or
    has another hash."""
    if words == AUTO:
        paths = {code: list_of(code) for code in sorted(set(codes))}
        dictionaries = [f"{code}={_digest(path)}" for code, path in paths.items() if path]
        return ",".join(dictionaries) or ESTIMATE
    for code in list_hashes(words):
        dictionary_for(words, code)
    return words


def list_hashes(words: str) -> dict[str, str]:
    """Return {language: hash of its word list, or "" if none is given} from a setting `words` such
    as `tha=HASH,zho`; {} for `auto` and `estimate`."""
    if words in (AUTO, ESTIMATE):
        return {}
    pairs = (entry.strip().partition("=") for entry in words.split(","))
    return {comparable(code): digest for code, _, digest in pairs}


def dictionary_for(words: str, code: str) -> Dictionary | None:
    """Return the dictionary for words of the language `code`, or None if `words` names no word list
    for the language. `words`: from `effective_words`, such as `tha=HASH`. Raises UsageError if the
    word list is missing or has another hash than in `words`."""
    digests = list_hashes(words)
    if code not in digests:
        return None
    path = list_of(code)
    if path is None:
        raise UsageError(
            f"words: no dictionary for {code}: pip install 'llmcurate[segment]', or words: estimate"
        )
    if digests[code] and digests[code] != _digest(path):
        raise UsageError(
            f"words: {path} is not the list that the run used ({digests[code]}): install the"
            f" version of {SOURCES[code].package} that it used, or set words: auto for a new run"
        )
    return _words(path, code)


@lru_cache(maxsize=4)
def _words(path: Path, code: str) -> Dictionary:
    from tokenize_kit.segment import dictionary_of

    lines = path.read_text("utf-8-sig").splitlines()
    words = {line.split()[0] for line in lines if line.strip()}
    return dictionary_of(words, _digest(path), path, SOURCES[code].scripts)
