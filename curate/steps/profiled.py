"""Steps whose rules were made for English, and take what differs in other languages of a profile.

A profile (curate/text/profiles.py) has limits by step and setting. They stand in for settings that
nobody gave, in documents of its language: the step is copied with them, and each copy measures and
limits its own documents. What a recipe, an option or `--set` gives holds for every language.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from curate.documents.documents import Documents
from curate.documents.limits import ByLang, Limit, decide
from curate.steps.contracts import FromFiles, Step
from curate.text import profiles
from curate.text.dictionaries import effective
from curate.text.profiles import Chosen, Profile
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

PROFILE = (
    "Whose stop words, end marks and limits hold: auto takes the shipped profile of the language in"
    " `lang`, where that is not English and has one; a language (th) takes its profile for every"
    " document; a file of profiles, or the folder of one, comes before the shipped ones;"
    " none takes no profile. Settings that are given hold for all languages."
)


WORDS = (
    "How words of scripts without spaces are counted in documents with a profile: auto cuts them by"
    " a dictionary where the extra `segment` brings one for the language (Thai, Lao, Chinese), else"
    " takes estimate: grapheme clusters by the profile's mean length of a word (Khmer, Burmese and"
    " Japanese always). recipe.yaml says what auto was."
)


class Profiled(Step, FromFiles):
    """The base of such steps: `measure` annotates columns, `own_limits` compares them."""

    profile: str = Field("auto", description=PROFILE)

    def measure(self, docs: Documents, profile: Profile | None) -> Documents:
        """The batch, which is all of one profile, with the columns that the limits look at."""
        raise NotImplementedError

    def own_limits(self) -> list[Limit]:
        """The limits by this copy's settings."""
        raise NotImplementedError

    def apply(self, docs: Documents) -> Documents:
        return decide(self.measured(docs), self.limits())

    def limits(self) -> list[Limit]:
        theirs = {
            code: {x.rule: x.threshold for x in step.own_limits()}
            for code, step in self.adapted.items()
        }
        limits = []
        for limit in self.own_limits():
            by_lang = {
                code: np.nan if threshold is None else float(threshold)
                for code, thresholds in theirs.items()
                if (threshold := thresholds[limit.rule]) != limit.threshold
            }
            if by_lang:
                limit = replace(limit, by_lang=ByLang(by_lang, self.chosen))
            limits.append(limit)
        return limits

    @property
    def chosen(self) -> Chosen:
        """Which profile judges which document."""
        return profiles.chosen(self.profile)

    @cached_property
    def adapted(self) -> dict[str, Any]:
        """The step as it is for each profile that changes a setting, by code."""
        return {
            profile.code: self.model_copy(update=changes, deep=False)
            for profile in self.chosen.profiles
            if (changes := self._changes(profile))
        }

    def _changes(self, profile: Profile) -> dict[str, Any]:
        """The settings that a profile changes, checked as the recipe's are."""
        profile_limits = profile.limits.get(self.name, {})
        changes = {k: v for k, v in profile_limits.items() if k not in self.model_fields_set}
        if not changes:
            return {}
        try:
            checked = type(self).model_validate({**changes, "profile": profiles.NONE})
        except ValidationError as error:
            said = problem(error, lambda name: f"{self.name}.{name}")
            raise UsageError(f"profile {profile.name}: {said}") from None
        return {name: getattr(checked, name) for name in changes}

    @model_serializer(mode="wrap")
    def _without_what_profiles_decide(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The settings; one that was not given, and that a profile changes, is left out: written
        down it would be given, and hold for all languages."""
        values: dict[str, Any] = dump(self)
        if self.profile == profiles.NONE:
            return values
        try:
            chosen = self.chosen.profiles
        except UsageError:  # which the run's plan meets, and says
            return values
        changed = {k for p in chosen for k in p.limits.get(self.name, {})}
        return {k: v for k, v in values.items() if k not in changed - self.model_fields_set}

    def identity(self) -> dict[str, Any]:
        """With the profiles as they are, so that other figures are another stage."""
        self.adapted  # noqa: B018 - a profile's mistakes are found when the run is planned
        facts = super().identity()
        if used := self.chosen.profiles:
            facts["profiles"] = {p.code: p.digest for p in used}
        return facts

    def resources(self) -> list[str]:
        path = profiles.file_of(self.profile)
        return [*super().resources(), *([str(path)] if path is not None else [])]

    def parts(self, docs: Documents) -> Iterator[tuple[Profile | None, Any, np.ndarray]]:
        """(profile, the step as it is for it, bool[rows]) of the profiles that a batch needs."""
        coded = docs.table["lang"].combine_chunks().dictionary_encode()
        labels = [*coded.dictionary.to_pylist(), None]
        at = coded.indices.fill_null(len(labels) - 1).to_numpy(zero_copy_only=False)
        of_label = [self.chosen.of(label) for label in labels]
        codes = np.array([p.code if p else "" for p in of_label])[at]
        by_code = {p.code: p for p in of_label if p}
        for code in np.unique(codes).tolist():
            profile = by_code.get(code)
            yield profile, self.adapted.get(code, self), codes == code

    def measured(self, docs: Documents) -> Documents:
        """The batch with the columns of `measure`, each row as its profile has it."""
        parts = list(self.parts(docs))
        if len(parts) <= 1:
            for profile, step, _ in parts:
                measured: Documents = step.measure(docs, profile)
                return measured
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


class WordCounting(Profiled):
    """The base of those that count words, of scripts without spaces, too."""

    words: str = Field("auto", description=WORDS)

    @cached_property
    def effective_words(self) -> str:
        """The setting `words` as it is here and now."""
        unspaced = [p.code for p in self.chosen.profiles if p.clusters]
        return effective(self.words, unspaced) if unspaced else self.words

    def identity(self) -> dict[str, Any]:
        facts = super().identity()
        facts["settings"] |= {"words": self.effective_words}
        return facts

    def resolved(self) -> dict[str, Any]:
        return super().resolved() | {"words": self.effective_words}

    def parts(self, docs: Documents) -> Iterator[tuple[Profile | None, Any, np.ndarray]]:
        for profile, step, mask in super().parts(docs):
            if profile is not None and profile.clusters:
                profile = replace(profile, words=self.effective_words)
            yield profile, step, mask


def _part(docs: Documents, rows: np.ndarray) -> Documents:
    """Some rows of a batch, whose segmentations are kept with those of the batch."""

    def build() -> Documents:
        return Documents(docs.table.select(["text", "lang"]).take(pa.array(rows)))

    part = docs.table_of(f"rows {hashlib.sha256(rows.tobytes()).hexdigest()}", build)
    part.table_of("", lambda: None)  # so that it has a cache that later copies share
    return replace(part, step=docs.step)
