"""Attention behind one function, ``attend(q, k, v, mask)``, over several back ends."""

from train.attention.backends import BACKENDS, Backend, Mask, attend

__all__ = ["BACKENDS", "Backend", "Mask", "attend"]
