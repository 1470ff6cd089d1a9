"""Which weights an optimiser treats how: a pure function of the model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

HEAD = "head"


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The trained weights of a model, each in one list.

    ``hidden``: matrices between hidden states, which Muon takes. ``head``: the output head, where
    it is not the embedding. ``embeddings``: what is looked up, a tied head included. ``vectors``:
    norms and biases. Weight decay falls on ``hidden`` and ``head`` alone: a norm's scale and the
    embedding of a rare token are not to shrink for want of gradients.
    """

    hidden: list[nn.Parameter]
    head: list[nn.Parameter]
    embeddings: list[nn.Parameter]
    vectors: list[nn.Parameter]

    @property
    def decayed(self) -> list[nn.Parameter]:
        return [*self.hidden, *self.head]

    @property
    def exempt(self) -> list[nn.Parameter]:
        return [*self.embeddings, *self.vectors]


def group(model: nn.Module) -> Groups:
    """A weight of two dimensions or more is a matrix where a linear map owns it, else it is looked
    up (tokens, positions, distances); the map called ``head`` is the output head.
    """
    maps: dict[int, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            maps.setdefault(id(module.weight), name.rpartition(".")[2])
        elif isinstance(module, nn.Embedding):
            maps[id(module.weight)] = ""  # tied to a head: an embedding
    groups = Groups(hidden=[], head=[], embeddings=[], vectors=[])
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        owner = maps.get(id(parameter), "")
        if parameter.dim() < 2:
            groups.vectors.append(parameter)
        elif not owner:
            groups.embeddings.append(parameter)
        elif owner == HEAD:
            groups.head.append(parameter)
        else:
            groups.hidden.append(parameter)
    return groups
