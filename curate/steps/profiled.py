"""Steps with rules made for English, adapted to other languages by profiles.

A profile (curate/text/languages.py) has limits that replace a step's defaults in documents of its
language. A copy of the step with these limits measures and judges such documents. A setting given
in a recipe or by `--set` applies to every language.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from curate.documents.documents import Documents
from curate.documents.limits import Langs, Limit, decide
from curate.steps.contracts import FromFiles, Identity, Step
from curate.text import languages
from curate.text.languages import Chosen, Profile, effective_words
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

if TYPE_CHECKING:
    from typing_extensions import Self

PROFILE = (
    "The source of stop words, end marks and limits: auto uses the shipped profile of the language"
    " in `lang`, if it is not English and has one; a language (th) uses its profile for every"
    " document; a file of profiles, or its folder, takes precedence over the shipped ones;"
    " none uses no profile. Settings that are given apply to all languages."
)


WORDS = (
    "The method of counting words in scripts without spaces, in documents with a profile: auto uses"
    " a dictionary if the extra `segment` has one for the language (Thai, Lao, Chinese), else"
    " estimate: grapheme clusters divided by the profile's mean word length (always for Khmer,"
    " Burmese and Japanese). recipe.yaml shows what auto selected."
)


@dataclass(frozen=True)
class LimitByLang(Limit):
    """A limit that differs by language. `others` has thresholds of languages with a profile (see
    curate/text/languages.py). All languages without an entry in `others` have `threshold`."""

    others: Mapping[str, float] = field(default_factory=dict)  # by profile code; NaN: no limit
    profiles: Chosen = field(default_factory=Chosen)  # which profile applies to a language
    by_lang: ClassVar[bool] = True

    @property
    def on(self) -> bool:
        return True

    def of(self, label: str | None) -> float | None:
        profile = self.profiles.of(label)
        return self.threshold if profile is None else self.others.get(profile.code, self.threshold)

    def thresholds(self, langs: Langs) -> np.ndarray:
        each = [self.of(name) for name in (*langs.names, None)]
        thresholds = np.array([np.nan if x is None else x for x in each], np.float64)
        return np.asarray(thresholds[langs.at])


class Profiled(FromFiles):
    """A mixin for steps whose limits differ by language; language profiles hold the limits."""

    profile: str = Field("auto", description=PROFILE)

    def own_limits(self) -> list[Limit]:
        """Return the rules with the thresholds of this step's settings, not of profiles."""
        return []

    def limits(self) -> list[Limit]:
        theirs = {
            code: {x.rule: x.threshold for x in step.own_limits()}
            for code, step in self.adapted.items()
        }
        limits = []
        for limit in self.own_limits():
            others = {
                code: np.nan if threshold is None else float(threshold)
                for code, thresholds in theirs.items()
                if (threshold := thresholds[limit.rule]) != limit.threshold
            }
            limits.append(
                LimitByLang(**vars(limit), others=others, profiles=self.chosen) if others else limit
            )
        return limits

    @property
    def chosen(self) -> Chosen:
        """The profiles that may apply, and the choice among them for a document's language."""
        return languages.chosen(self.profile)

    @cached_property
    def adapted(self) -> dict[str, Self]:
        """{code of a profile: copy of the step}, for the profiles that change a setting."""
        steps = {profile.code: self._for(profile) for profile in self.chosen.profiles}
        return {code: step for code, step in steps.items() if step is not self}

    def _for(self, profile: Profile) -> Self:
        profile_limits = profile.limits.get(self.name, {})
        changes = {k: v for k, v in profile_limits.items() if k not in self.model_fields_set}
        if not changes:
            return self
        try:
            checked = type(self).model_validate({**changes, "profile": languages.NONE})
        except ValidationError as error:
            message = problem(error, lambda name: f"{self.name}.{name}")
            raise UsageError(f"profile {profile.name}: {message}") from None
        changed = {name: getattr(checked, name) for name in changes}
        return self.model_copy(update=changed, deep=False)

    @model_serializer(mode="wrap")
    def _without_profile_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out settings that have their default, if the default differs by profile. If
        recipe.yaml named them, they would count as set by the user for all languages."""
        values = dict(dump(self))
        if self.profile == languages.NONE:
            return values
        try:
            chosen = self.chosen.profiles
        except UsageError:  # reported when the run is planned
            return values
        changed = {k for p in chosen for k in p.limits.get(self.name, {})}
        return {k: v for k, v in values.items() if k not in changed - self.model_fields_set}

    def identity(self) -> Identity:
        """Return the step's settings and files, with the digests of its language profiles."""
        self.adapted  # noqa: B018 - finds a profile's errors when the run is planned
        facts = super().identity()
        if used := self.chosen.profiles:
            facts.contents["profiles"] = {p.code: p.digest for p in used}
        return facts

    def resources(self) -> list[str]:
        path = languages.file_of(self.profile)
        return [*super().resources(), *([str(path)] if path is not None else [])]

    def parts(self, docs: Documents) -> Iterator[tuple[Profile | None, Self, np.ndarray]]:
        """Divide a batch by language profile. Yield (profile, or None for documents without one;
        the step with the profile's limits; bool[rows]: True for the documents with this
        profile)."""
        coded = docs.table["lang"].combine_chunks().dictionary_encode()
        labels = [*coded.dictionary.to_pylist(), None]
        at = coded.indices.fill_null(len(labels) - 1).to_numpy(zero_copy_only=False)
        of_label = [self.chosen.of(label) for label in labels]
        codes = np.array([p.code if p else "" for p in of_label])[at]
        by_code = {p.code: p for p in of_label if p}
        for code in np.unique(codes).tolist():
            profile = by_code.get(code)
            yield profile, self.adapted.get(code, self), codes == code


class CountsWords(Profiled):
    """A mixin for steps that count words, also in scripts without spaces."""

    other_words: ClassVar[tuple[str, ...]] = ()  # values of `words` for all scripts
    words: str = Field("auto", description=WORDS)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        choices = [*self.other_words, *languages.SOURCES]
        if not languages.list_hashes(self.words).keys() <= {*choices}:
            raise ValueError(f"words {self.words!r}: use auto, estimate, {', '.join(choices)}")

    @cached_property
    def effective_words(self) -> str:
        """The method that `words: auto` selects in this environment."""
        unspaced = [p.code for p in self.chosen.profiles if p.clusters]
        fixed = not unspaced or self.words in self.other_words
        return self.words if fixed else effective_words(self.words, unspaced)

    def identity(self) -> Identity:
        facts = super().identity()
        facts.settings |= {"words": self.effective_words}
        return facts

    def as_found(self) -> dict[str, str]:
        return super().as_found() | {"words": self.effective_words}

    def parts(self, docs: Documents) -> Iterator[tuple[Profile | None, Self, np.ndarray]]:
        for profile, step, mask in super().parts(docs):
            if profile is not None and profile.clusters:
                profile = replace(profile, words=self.effective_words)
            yield profile, step, mask

    def unspaced(self, docs: Documents) -> list[tuple[Profile, np.ndarray]]:
        """Return (profile, int64[]: row numbers of the documents with this profile) for each
        language profile of a script without spaces."""
        parts = [(profile, mask) for profile, _, mask in self.parts(docs)]
        return [(p, np.flatnonzero(mask)) for p, mask in parts if p is not None and p.clusters]


class WordCounting(CountsWords, Step):
    """The base of steps that only count words. `measure` adds columns of counts to texts that have
    the same language profile."""

    def measure(self, docs: Documents, profile: Profile | None) -> Documents:
        """Return the documents with columns of counts, to be compared with the step's limits. All
        documents have the language profile `profile`, or no profile if it is None."""
        raise NotImplementedError

    def apply(self, docs: Documents) -> Documents:
        return decide(self.measured(docs), self.limits())

    def measured(self, docs: Documents) -> Documents:
        """Return the documents with the columns of `measure`, which is called once for the
        documents of each language profile."""
        parts = list(self.parts(docs))
        if len(parts) <= 1:
            for profile, step, _ in parts:
                return step.measure(docs, profile)
            return self.measure(docs, None)
        tables, order = [], []
        for profile, step, mask in parts:
            rows = np.flatnonzero(mask)
            tables.append(step.measure(_part(docs, rows), profile).table)
            order.append(rows)
        new = [n for n in tables[0].column_names if n not in docs.table.column_names]
        back = pa.array(np.argsort(np.concatenate(order), kind="stable"))
        joined = pa.concat_tables([t.select(new) for t in tables]).take(back).combine_chunks()
        for name in new:
            docs = docs.annotate(name.removeprefix(f"{docs.step}."), joined[name].combine_chunks())
        return docs


def _part(docs: Documents, rows: np.ndarray) -> Documents:
    def build() -> Documents:
        return Documents(docs.table.select(["text", "lang"]).take(pa.array(rows)))

    # Cached in the batch, so that the segmentations of these rows are made once.
    part = docs.table_of(f"rows {hashlib.sha256(rows.tobytes()).hexdigest()}", build)
    part.table_of("", lambda: None)  # creates the cache that copies share
    return replace(part, step=docs.step)
