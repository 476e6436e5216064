"""Sparse values as callers have them: matrices of SciPy, sparse tensors of PyTorch, tuples of arrays; and the parts behind them.

What a caller gives is checked before anything runs: element type, shape, capacity, and the pattern: rows that follow each
other, columns (of row-sparse tensors: rows) in range that ascend, so that none occurs twice. Neither library is imported here
unless the caller has given something of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program.float_formats import FORMATS, NARROW, recognized, type_name

Array: TypeAlias = NDArray[Any]
_POSITION = np.dtype(np.int32)
Form: TypeAlias = Literal["scipy", "torch", "tuple"]


class PatternError(ValueError):
    """Of indices that are no pattern: out of range, in another order, or such that one occurs twice."""


def _unknown(indptr: Array, indices: Array, columns: int) -> bool:
    return False


def _not_known(indptr: Array, indices: Array, values: Array) -> object:
    return NotImplemented


@dataclass(frozen=True)
class StoredType:
    """A tensor of a storage kind: `csr` or `row_sparse`."""

    label: str
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    capacity: int
    is_pattern: Callable[[Array, Array, int], bool] = field(default=_unknown, compare=False)
    """A fast look at indptr and indices, below `columns`; what it does not say yes to is looked at by NumPy."""
    is_ready: Callable[[Array, Array, Array], object] = field(default=_not_known, compare=False)
    """Of indptr, indices and values: None where a program takes them as they are, and what they say is right."""

    @property
    def columns(self) -> int:
        """What the elements of `indices` are below."""
        return self.shape[1] if self.kind == "csr" else self.shape[0]

    def __str__(self) -> str:
        return f"{type_name(self.dtype)} {list(self.shape)} stored as {self.kind} with a capacity of {self.capacity}"

    def parts(self, given: Any) -> list[Array]:
        """The arrays `indptr`, `indices` and `values`, as long as the capacity. Raises TypeError or ValueError."""
        kind = cast("type[object]", type(given))
        if (known := _FORMATS.get(kind)) is None:
            known = _FORMATS[kind] = str(given.format) if form_of(given) == "scipy" else ""
        if known == self.kind and given.shape == self.shape:
            ready = [given.indptr, given.indices, given.data]
            if self.is_ready(*ready) is None:
                return ready
        indptr, indices, values = self._arrays(given)
        if self.is_ready(indptr, indices, values) is None:
            return [indptr, indices, values]
        values = recognized(values, self.dtype)
        if values.dtype != self.dtype:
            raise TypeError(f"{self.label}: expected {self}, got elements of {type_name(values.dtype)}")
        self._check_shapes(indptr, indices, values)
        if indices.size > self.capacity:
            raise ValueError(
                f"{self.label}: {indices.size} entries, but a capacity of {self.capacity}; give the type a larger one"
            )
        self._check_pattern(indptr, indices)
        return [
            _positions(indptr, indptr.size),
            _positions(indices, self.capacity),
            _padded(values, self.capacity, self.dtype),
        ]

    def _arrays(self, given: Any) -> tuple[Array, Array, Array]:
        form = form_of(given)
        if form == "torch":
            return _of_torch(self, given)
        if form == "scipy":
            if self.kind != "csr" or given.format != "csr":
                cure = "call .tocsr()" if self.kind == "csr" else "give (indices, values)"
                raise TypeError(f"{self.label}: expected {self}, got a SciPy matrix of format '{given.format}'; {cure}")
            matrix: Any = given
            rows, columns = matrix.shape
            self._check_extents((int(rows), int(columns)))
            return np.asarray(matrix.indptr), np.asarray(matrix.indices), np.asarray(matrix.data)
        wanted = ("indptr", "indices", "values") if self.kind == "csr" else ("indices", "values")
        if not isinstance(given, tuple) or len(cast("tuple[Any, ...]", given)) != len(wanted):
            raise TypeError(
                f"{self.label}: expected {self}: a tuple ({', '.join(wanted)}) or a sparse matrix of SciPy or PyTorch, got "
                f"{type(cast(object, given)).__name__}"
            )
        arrays = [np.asarray(array) for array in cast("tuple[Any, ...]", given)]
        if self.kind == "row_sparse":
            arrays.insert(0, np.array([0, arrays[0].size], np.int32))
        return arrays[0], arrays[1], arrays[2]

    def _check_extents(self, shape: tuple[int, ...]) -> None:
        if shape != self.shape:
            raise ValueError(f"{self.label}: expected {self}, got shape {list(shape)}")

    def _check_shapes(self, indptr: Array, indices: Array, values: Array) -> None:
        rows = self.shape[0] + 1 if self.kind == "csr" else 2
        row = self.shape[1:] if self.kind == "row_sparse" else ()
        for name, array in (("indptr", indptr), ("indices", indices)):
            if array.dtype.kind not in "iu" or array.ndim != 1:
                raise TypeError(
                    f"{self.label}, {name}: expected a list of integers, got {type_name(array.dtype)} {list(array.shape)}"
                )
        if indptr.size != rows:
            raise ValueError(f"{self.label}, indptr: expected {rows} elements, one more than rows, got {indptr.size}")
        if values.shape != (indices.size, *row):
            raise ValueError(
                f"{self.label}, values: expected shape {[indices.size, *row]} as there are indices, got {list(values.shape)}"
            )

    def _check_pattern(self, indptr: Array, indices: Array) -> None:
        if self.is_pattern(indptr, indices, self.columns):
            return
        steps = np.diff(indptr.astype(np.int64))  # of unsigned numbers none would be below 0
        if indptr[0] != 0 or int(indptr[-1]) != indices.size or (steps < 0).any():
            raise PatternError(
                f"{self.label}, indptr: expected numbers from 0 to {indices.size}, as many as indices, that do not fall"
            )
        if not indices.size:
            return
        if int(indices.min()) < 0 or int(indices.max()) >= self.columns:
            place = int(np.argmax((indices < 0) | (indices >= self.columns)))
            raise PatternError(
                f"{self.label}, indices: {int(indices[place])} at {place} is out of range; expected 0 <= index < {self.columns}"
            )
        falls = indices[1:] <= indices[:-1]
        starts = indptr[1:-1]
        falls[starts[(starts > 0) & (starts < indices.size)] - 1] = False
        if falls.any():
            place = int(np.argmax(falls)) + 1
            twice = indices[place] == indices[place - 1]
            what = "occurs twice; call sum_duplicates()" if twice else "comes after a larger one; call sort_indices()"
            raise PatternError(f"{self.label}, indices: {int(indices[place])} at {place} of a row {what}")

    def whole(self, parts: Sequence[Array], form: Form) -> Any:
        """What a caller gets for parts: without the room behind the last entry."""
        indptr, indices, values = parts
        count = int(indptr[-1])
        indices, values = indices[:count], values[:count]
        if form == "torch":
            return _to_torch(self, indptr, indices, values)
        if self.kind == "row_sparse":
            return indices, values
        if form == "scipy":
            return import_module("scipy.sparse").csr_array((values, indices, indptr), shape=self.shape)
        return indptr, indices, values


_FORMATS: dict[type[object], str] = {}
"""By type of SciPy's matrices, how they are stored; nothing for other types."""


def form_of(given: Any) -> Form:
    """What a caller's value is of."""
    return _form_of(cast("type[object]", type(given)))


@lru_cache(256)
def _form_of(kind: type[object]) -> Form:
    module = kind.__module__.partition(".")[0]
    if module == "torch" and hasattr(kind, "layout"):
        return "torch"
    return "scipy" if module == "scipy" and hasattr(kind, "format") else "tuple"


def _positions(array: Array, length: int) -> Array:
    """Positions as the program has them, zeros behind the last one."""
    return _padded(array, length, _POSITION)


def _padded(array: Array, length: int, dtype: np.dtype[Any]) -> Array:
    if len(array) == length:
        return np.ascontiguousarray(array, dtype)
    found = np.zeros((length, *array.shape[1:]), dtype)
    found[: len(array)] = array
    return found


def _of_torch(wanted: StoredType, given: Any) -> tuple[Array, Array, Array]:
    torch: Any = sys.modules["torch"]
    tensor = given.detach()
    wanted._check_extents(tuple(tensor.shape))  # pyright: ignore[reportPrivateUsage]
    if wanted.kind == "csr" and tensor.layout == torch.sparse_csr:
        return tensor.crow_indices().numpy(), tensor.col_indices().numpy(), _numpy_of(torch, tensor.values())
    if wanted.kind == "row_sparse" and tensor.layout == torch.sparse_coo and tensor.sparse_dim() == 1:
        tensor = tensor.coalesce()
        indices = tensor.indices()[0].numpy()
        return np.array([0, indices.size], np.int32), indices, _numpy_of(torch, tensor.values())
    cure = "call .to_sparse_csr()" if wanted.kind == "csr" else "give one of torch.sparse_coo with one sparse dimension"
    raise TypeError(f"{wanted.label}: expected {wanted}, got a tensor of layout {tensor.layout}; {cure}")


def _numpy_of(torch: Any, values: Any) -> Array:
    """The same memory; PyTorch has no way of its own for element types that NumPy has none for."""
    for narrow in FORMATS:
        if values.dtype == getattr(torch, narrow.foreign, None):
            return values.view(getattr(torch, _PATTERNS[narrow.bits])).numpy().view(NARROW[narrow.name])
    return values.numpy()


def _from_numpy(torch: Any, values: Array) -> Any:
    for narrow in FORMATS:
        if values.dtype == NARROW[narrow.name]:
            return torch.from_numpy(values.view(_PATTERNS[narrow.bits])).view(getattr(torch, narrow.foreign))
    return torch.from_numpy(values)


_PATTERNS = {16: "int16", 8: "uint8"}
"""By bits: the integers whose arrays NumPy and PyTorch both have."""


def _to_torch(given: StoredType, indptr: Array, indices: Array, values: Array) -> Any:
    torch: Any = sys.modules["torch"]
    size, wide = given.shape, torch.from_numpy(indices.astype(np.int64))
    values = values if values.flags.writeable else values.copy()  # PyTorch warns of what it could not write to
    if given.kind == "csr":
        rows = torch.from_numpy(indptr.astype(np.int64))
        return torch.sparse_csr_tensor(rows, wide, _from_numpy(torch, values), size=size)
    return torch.sparse_coo_tensor(wide[None], _from_numpy(torch, values), size=size, is_coalesced=True)
