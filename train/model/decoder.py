"""The decoder: embedding, stack and head, and in some models an encoder or a generator."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import Roles
from train.attention import ContextParallel, Mask, SharedMask, prepare
from train.device import in_products
from train.model import roles
from train.model.attention_settings import AttentionPattern
from train.model.block import block
from train.model.cache import Cache, SourceTokens, token_positions
from train.model.config import ModelConfig
from train.model.heads import Head, HeadWeights, builder_of, mean_of_texts
from train.model.layers import Dropout, View, last_norm, norm, note, token_seeds, wrap_int64
from train.model.positions import EMBEDDING, Positions, positions
from train.model.roles import Role


class Embedding(nn.Embedding):
    """A vector for each token, plus one for its segment if the model has segments."""

    def __init__(self, config: ModelConfig) -> None:
        own, size = config.embedding, config.embedding_dim
        super().__init__(config.vocab, size)
        std = own.std or EMBEDDING * (config.mup_base or size) ** -0.5
        roles.set_roles(self, weight=(role := Role(part="embedding", use="lookup", std=std)))
        self.segments = nn.Embedding(own.segments, size) if own.segments else None
        if self.segments is not None:
            roles.set_roles(self.segments, weight=role)
        self.norm = norm(config, config.position_dim) if own.norm else nn.Identity()
        self.out = embedding_projection(config)

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        x = super().forward(tokens)
        if self.segments is None:
            return x
        if segments is None:
            return x + self.segments(torch.zeros_like(tokens))
        return x + self.segments(segments.clamp(max=self.segments.num_embeddings - 1))


def embedding_projection(config: ModelConfig) -> nn.Module:
    """Build the layer from the embedding to the stack: a matrix if their sizes differ."""
    own = config.embedding
    if own.size is None:
        return nn.Identity()
    return roles.linear(own.size, config.hidden, part="embedding", bias=own.bias)


AGAIN = 0x2545F4914F6CDD1D  # between the seeds of two runs of a block


class Stack(nn.Module):
    """The blocks that run one after another on embedded tokens. ``other``: a stack whose blocks
    this stack shares, so that it builds none itself. ``recompute``: N if every N-th block (True:
    each) stores only its input for the backward pass."""

    recompute: bool | int

    blocks: nn.ModuleList

    def __init__(self, config: ModelConfig, backend: str, other: Stack | None = None) -> None:
        super().__init__()
        self.config, self.backend, self.recompute = config, backend, False
        self.compiled = False  # True if each block is compiled by itself
        self.positions = positions(config)
        if other is None:
            self.blocks = nn.ModuleList(
                block(config, n, backend) for n in range(0, config.layers, config.share)
            )
        else:  # not registered as a submodule, so that each weight has one name
            vars(self)["blocks"] = other.blocks
        self.norm = last_norm(config)

    def forward(
        self,
        x: Tensor,
        places: Tensor,
        *,
        documents: Tensor | None = None,
        prefix: Tensor | None = None,
        cache: Cache | None = None,
        draws: Tensor | None = None,
        parallel: ContextParallel | None = None,
        tokens: Tensor | None = None,
        notes: dict[str, list[Tensor]] | None = None,
        source: SourceTokens | None = None,
        encoded: Tensor | None = None,
    ) -> Tensor:
        """Return x [batch, length, hidden] after all blocks, in the same shape. ``places``:
        positions from ``token_positions``. With ``parallel``, x and ``tokens`` have only this
        process's tokens, but the other arguments (except ``draws``) describe whole rows. Figures
        that blocks report are added to ``notes`` by name. ``source``: the tokens that
        cross-attention sees. ``encoded``: the encoder's output for them."""
        x = x.to(in_products(x))  # the residual stream; in float32 a step takes 1.05 times as long
        cross = None if source is None else source.mask(x, documents)
        masks: dict[AttentionPattern, Any] = self.masks(x, places, documents, prefix, cache)
        relations = {pattern: self.positions.relation(mask) for pattern, mask in masks.items()}
        if parallel is not None:
            masks = {s: SharedMask(parallel=parallel, rows=mask) for s, mask in masks.items()}
            places = parallel.own(places)
        rotations = {s: self.positions.rotation(places, s.window is not None) for s in masks}
        unrotated = self.config.unrotated
        every = int(self.recompute) if cache is None and torch.is_grad_enabled() else 0
        if every or (self.compiled and cache is None):
            own = self.config.attention
            like = x.new_empty(0, own.heads, x.shape[1], own.head_dim)
            for mask in (*masks.values(), *(() if cross is None else (cross,))):
                prepare(like, mask, self.backend, own.value_dim, self.compiled)
        counted = None if documents is None else documents >= 0
        for layer, parts in self.config.steps:
            each, pattern = self.blocks[layer // self.config.share], self.config.patterns[layer]
            # A shared block draws other numbers each time it runs.
            again = wrap_int64(layer % self.config.share * AGAIN)
            view = View(
                mask=masks[pattern],
                rotation=None if layer in unrotated else rotations[pattern],
                relation=relations[pattern],
                parts=parts,
                tokens=tokens,
                counted=counted,
                cross=cross,
                encoded=encoded,
                draws=None if draws is None else draws + again,
                cache=None if cache is None else cache.layers[layer],
                kept=None if cache is None else cache.positions[pattern].kept,
            )
            twice = every and layer % every == 0
            out = checkpoint(each, x, view, use_reentrant=False) if twice else each(x, view)
            x, layer_notes = out
            note(notes, layer_notes)
        return x if self.norm is None else self.norm(x)

    def masks(
        self,
        x: Tensor,
        places: Tensor,
        documents: Tensor | None,
        prefix: Tensor | None,
        cache: Cache | None,
    ) -> dict[AttentionPattern, Mask]:
        length, bias, masks = places.shape[1], self.positions.bias(), {}
        content, placed = self.positions.content, bias is not None or self.positions.content
        memory = cache is None and torch.is_grad_enabled()
        for pattern in dict.fromkeys(self.config.patterns):
            keys, where, docs = length, places, documents
            twice = memory and pattern.segment is not None
            if cache is not None:
                where, docs = cache.extend(pattern, places, documents)
                keys = where.shape[1]
            elif twice:
                keys, where = 2 * length, torch.cat((places, places), dim=1)
                docs = None if documents is None else torch.cat((documents, documents), dim=1)
            masks[pattern] = Mask(
                **vars(pattern),
                causal=self.config.causal,
                device=x.device,
                queries=length,
                keys=keys,
                documents=docs,
                prefix=prefix,
                positions=where if placed or pattern.cached_tokens is not None else None,
                bias=bias,
                content=content,
                memory=twice,
                gaps=cache is not None and pattern.cached_tokens is not None and keys > length,
            )
        return masks


_OTHER = 0x1B873593CC9E2D51  # between the seeds of two stacks


class _StackInput(NamedTuple):
    stack: Stack
    positions: Positions
    norm: nn.Module
    out: nn.Module
    seed: int = 0


class Decoder(nn.Module):
    """A model from token ids [batch, length] to logits [batch, length, vocab] in float32.
    ``both_ways``: True if the model was trained to read prompts in both directions. ``special``:
    the special tokens of its training. In an encoder-decoder, the ``encoder`` reads a second text
    (``source``), and the decoder's blocks see the encoder's output. In ELECTRA, a small
    ``generator`` predicts tokens: ``features`` and ``logits`` are the generator's, and ``replaced``
    gives the predictions of the discriminator."""

    def __init__(self, config: ModelConfig, *, attention: str = "auto") -> None:
        super().__init__()
        self.config, self.both_ways, self.special = config, False, Roles()
        self.embedding = Embedding(config)
        self.drop = Dropout(config.dropout, 0)
        self.stack = Stack(config, attention)
        self.encoder: Any = None
        if config.encoder is not None:
            self.encoder = builder_of("encoder")(config, attention, self.stack)
        task = config.head.task
        self.head: Any = Head(config) if task is None else builder_of("task")(config, task)
        self.mtp = builder_of("mtp")(config, attention) if config.head.mtp else nn.ModuleList()
        small = config.generator_config
        self.generator: Any = None
        if small is not None:
            self.generator = builder_of("generator")(small, Head(small), attention)

    @property
    def stacks(self) -> list[Stack]:
        """The model's own stack, and the stack of its encoder or generator if there is one."""
        others = (self.encoder, self.generator)
        return [self.stack, *(other.stack for other in others if other is not None)]

    def initialise(self, seed: int) -> None:
        roles.initialise(self, seed)

    def forward(self, tokens: Tensor, **kwargs: Any) -> Tensor:
        """Return the logits. Arguments are those of ``features``."""
        return self.logits(self.features(tokens, **kwargs))

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits [..., vocab], in float32 or wider, for features [..., hidden]."""
        return self.head_weights().logits(self.head_input(features))

    def head_input(self, features: Tensor) -> Tensor:
        transform = self._predicts.transform
        return features if transform is None else transform(features)

    def head_weights(self) -> HeadWeights:
        """Return the head's weights. The matrix of a tied head is the embedding's."""
        head = self._predicts
        matrix = self.embedding.weight if head.weight is None else head.weight
        return HeadWeights(matrix, head.bias, self.config.head.softcap)

    @property
    def _predicts(self) -> Head:
        head: Any = self.head if self.generator is None else self.generator.head
        if head.replaced is not None:
            raise UsageError("a discriminator predicts no tokens: give the folder of its generator")
        return head  # type: ignore[no-any-return]

    def features(
        self,
        tokens: Tensor,
        *,
        documents: Tensor | None = None,
        prefix: Tensor | None = None,
        cache: Cache | None = None,
        segments: Tensor | None = None,
        draws: Tensor | None = None,
        parallel: ContextParallel | None = None,
        notes: dict[str, list[Tensor]] | None = None,
        source: Tensor | None = None,
        source_documents: Tensor | None = None,
    ) -> Tensor:
        """Return the features that the head reads: [batch, length, hidden].

        ``tokens``: int64 [batch, length].
        ``documents``: [batch, length]. Tokens see only their own document, whose positions start at
            0 in the row. With a cache, -1 marks the padding before shorter texts.
        ``prefix``: bool [batch, length], True for tokens that all of their document's tokens see.
        ``cache``: holds the texts so far, which ``tokens`` continue; they are added to it.
        ``segments``: int64 [batch, length]; None: all tokens are in segment 0.
        ``draws``: int64 [batch], seeds of dropout.
        ``parallel``: if not None, the result has only this process's tokens of the rows.
        ``notes``: receives figures that layers report in training: by name, one tensor per layer.
        ``source``: int64 [batch, source], read by the encoder. With a cache, a source is given only
            with the first tokens.
        ``source_documents``: documents of the source's tokens, -1 for padding. Tokens see the
            source of their own document."""
        if cache is not None and prefix is not None and cache.started:
            raise ValueError("a prefix is allowed only with the first tokens of a text")
        x = self._read(
            self._predictor_input,
            tokens,
            documents,
            segments,
            draws,
            **self._of_source(source, source_documents, cache, draws),
            prefix=prefix,
            cache=cache,
            parallel=parallel,
            notes=notes,
        )
        task = self.config.head.task
        if task is not None and task.before == "mean":
            x = mean_of_texts(x, documents)
        return x if self.config.mup_base is None else x / self.config.width_ratio

    def encode(
        self, tokens: Tensor, documents: Tensor | None = None, draws: Tensor | None = None
    ) -> Tensor:
        """Return the encoder's output [batch, source, hidden]. Arguments: see ``features``."""
        own = self.encoder
        assert own is not None
        by = _StackInput(
            own.stack, own.stack.positions, own.norm, self.embedding.out, wrap_int64(_OTHER)
        )
        return self._read(by, tokens, documents, None, draws)

    def replaced(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        segments: Tensor | None = None,
        draws: Tensor | None = None,
    ) -> Tensor:
        """Return each token's logit for "replaced by a generator": float32 [batch, length]."""
        head = self.head.replaced
        assert head is not None
        logits: Tensor = head(self._read(self._own_input, tokens, documents, segments, draws))
        return logits

    @property
    def _own_input(self) -> _StackInput:
        return _StackInput(
            self.stack, self.stack.positions, self.embedding.norm, self.embedding.out
        )

    @property
    def _predictor_input(self) -> _StackInput:
        own, small = self._own_input, self.generator
        if small is None:
            return own
        return _StackInput(small.stack, own.positions, own.norm, small.out, wrap_int64(_OTHER))

    def _read(
        self,
        by: _StackInput,
        tokens: Tensor,
        documents: Tensor | None,
        segments: Tensor | None,
        draws: Tensor | None,
        cache: Cache | None = None,
        parallel: ContextParallel | None = None,
        **seen: Any,
    ) -> Tensor:
        places = token_positions(tokens, documents, cache)
        index, own = torch.arange(tokens.shape[1], device=tokens.device)[None], places
        if parallel is not None:
            tokens, index, own = (parallel.own(each) for each in (tokens, index, places))
            segments = None if segments is None else parallel.own(segments)
        if draws is not None:
            draws = token_seeds(draws + by.seed, index, self.config.hidden)
        x = self.embedding(tokens, segments)
        wide = self.config.embedding.positions == "after"  # positions come after ``out``
        x = by.positions.embed(by.out(x) if wide else x, own)
        x = self.drop(by.norm(x), draws)
        seen |= {"documents": documents, "cache": cache, "parallel": parallel}
        out: Tensor = by.stack(x if wide else by.out(x), places, draws=draws, tokens=tokens, **seen)
        return out

    def _of_source(
        self,
        source: Tensor | None,
        documents: Tensor | None,
        cache: Cache | None,
        draws: Tensor | None,
    ) -> dict[str, SourceTokens | Tensor | None]:
        seen = None if cache is None else cache.source
        if (source is None) != (self.encoder is None or seen is not None):
            raise ValueError(
                "an encoder-decoder needs a source with the first tokens, and only then"
            )
        if source is None:
            return {"source": seen}
        seen = SourceTokens(length=source.shape[1], documents=documents)
        if cache is not None:
            cache.source = seen
        return {"source": seen, "encoded": self.encode(source, documents, draws)}

    def empty_cache(self) -> Cache:
        return Cache(self.config)


def name_in_whole_model(name: str, config: ModelConfig) -> str:
    """Return the name that a weight of ELECTRA's generator has in the whole model. ``name`` is the
    weight's name in a model that is the generator only."""
    shared = name.startswith("embedding.") and not name.startswith("embedding.out.")
    if shared or (name.startswith("stack.positions.") and config.position.table):
        return name
    return "generator." + name.removeprefix("embedding.")
