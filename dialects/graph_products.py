"""Products of tensors that are matrix products after some movement: gemm, einsum."""

from __future__ import annotations
