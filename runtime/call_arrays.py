"""What programs ask of the arrays that they are called with, whatever runs them; and the errors where these do not fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fuse_opt.lowering.program import NUMPY_NAMES, Buffer
from fuse_opt.lowering.program.float_formats import converted, is_narrow, recognized, type_name

Array = NDArray[Any]

_NUMBERS = {"b": "b", "i": "biu", "u": "biu"}
"""By kind of NumPy's element types: the kinds of numbers that are taken for them; all kinds for floats."""


def out_arrays(out: Any, count: int) -> Sequence[Any]:
    """What a caller gives for so many results; one may come without a sequence around it. Raises TypeError, ValueError."""
    given: Sequence[Any] = (out,)
    if isinstance(out, Sequence) and not isinstance(out, str):
        given = cast("Sequence[Any]", out)
    elif count != 1:
        raise TypeError(f"out: expected a sequence of {count} arrays, got {type(out).__name__}")
    if len(given) != count:
        raise ValueError(f"out: expected {count} array{'' if count == 1 else 's'}, got {len(given)}")
    return given


def check_target(number: int, given: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """The caller's array for a result, where an extent of -1 may be anything. Raises ValueError where it does not fit."""
    if isinstance(given, np.ma.MaskedArray):
        raise ValueError(f"out[{number}] is a masked array, whose mask would be lost; give its .data")
    array = recognized(cast(Array, given), dtype) if isinstance(given, np.ndarray) else None
    fits = array is not None and array.dtype == dtype and array.ndim == len(shape)
    if array is None or not fits or any(n not in (-1, m) for n, m in zip(shape, array.shape, strict=True)):
        wanted = f"{type_name(dtype)} {list(shape)}".replace("-1", "?")
        got = type(cast(object, given)).__name__ if array is None else f"{type_name(array.dtype)} {list(array.shape)}"
        raise ValueError(f"out[{number}]: expected {wanted}, got {got}")
    if not array.flags.writeable:
        raise ValueError(f"out[{number}] cannot be written to")
    return array


def check_apart(targets: Sequence[Array]) -> None:
    """Raises `ValueError` where one element stands for two, of one array or of two."""
    for number, target in enumerate(targets):
        if target.size and any(n > 1 and not step for n, step in zip(target.shape, target.strides, strict=True)):
            raise ValueError(f"out[{number}]: expected an array whose elements have memory each, got a broadcast one")
        if overlaps_itself(target.shape, target.strides, target.itemsize):
            got = f"one whose elements overlap by its strides {list(target.strides)}"
            raise ValueError(f"out[{number}]: expected an array whose elements have memory each, got {got}")
        for other, earlier in enumerate(targets[:number]):
            if np.may_share_memory(earlier, target) and np.shares_memory(earlier, target):
                raise shared(other, number)


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether two elements of an array share a byte; exact, and at once for the strides that arrays usually have."""
    axes = sorted((abs(step), n) for n, step in zip(shape, strides, strict=True) if n > 1)
    if 0 in shape:
        return False
    span = itemsize
    for step, n in axes:
        if step < span:
            break
        span += step * (n - 1)
    else:
        return False
    count = math.prod(n for _, n in axes)
    if count * itemsize > itemsize + sum(step * (n - 1) for step, n in axes):
        return True  # more than there is room for
    places = np.zeros(1, np.int64)
    for step, n in axes:
        places = (places[:, None] + step * np.arange(n, dtype=np.int64)).reshape(-1)
    places.sort()
    return bool((np.diff(places) < itemsize).any())


def shared(first: int, second: int) -> ValueError:
    """The error for two results in the same memory."""
    return ValueError(f"out[{first}] and out[{second}] share memory; give each result an array of its own")


def as_array(value: Any, dtype: np.dtype[Any], expected: str) -> Array:
    """
    What another library calls an array, over the same memory where that can be; of Python's numbers an array of `dtype`.
    Raises TypeError, which begins with what was expected.
    """
    if isinstance(value, np.ma.MaskedArray):
        remedy = "fill it by .filled(number), or give its .data where no element is masked"
        raise TypeError(f"{expected}, got a masked array, whose mask would be lost; {remedy}")
    try:
        if isinstance(value, np.ndarray | np.generic):
            return np.asarray(cast(Array, value))
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        found = np.asarray(value)
        kinds = _NUMBERS.get(dtype.kind, "biuf") if isinstance(value, int | float | list | tuple) else ""
        if found.dtype.kind not in kinds:
            return found
        return converted(found.astype(np.float64), dtype) if is_narrow(dtype) else np.asarray(value, dtype)
    except Exception as error:  # methods of other libraries raise what they like
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TypeError(
            f"{expected}, got {type(cast(object, value)).__name__}, which gives no array: {reason}"
        ) from error


def expected_argument(number: int, buffer: Buffer) -> str:
    """How errors about an argument begin."""
    wanted = f"{type_name(np.dtype(NUMPY_NAMES[buffer.dtype]))} {list(buffer.logical_shape)}"
    return f"argument {number} ('{buffer.name}'): expected {wanted}"


def misfit(number: int, buffer: Buffer, dtype: str, shape: Sequence[int], is_type: bool) -> Exception:
    """The error for an argument of such a type and shape; `is_type` says whether the type is what does not fit."""
    kind = TypeError if is_type else ValueError
    if buffer.axes is not None and is_type:  # it was turned, as its shape fits
        shape = [shape[buffer.axes.index(axis)] for axis in range(len(shape))]
    return kind(f"{expected_argument(number, buffer)}, got {dtype} {list(shape)}")


def not_reusable(number: int, buffer: Buffer) -> ValueError:
    """The error for a donated argument that cannot be overwritten where it is."""
    order = "C order" if buffer.axes is None else f"the order {list(buffer.axes)} of axes in memory"
    return ValueError(
        f"argument {number} ('{buffer.name}') is donated: expected a writeable array in {order}, which can be reused"
    )


def both_used(number: int, other: int) -> ValueError:
    """The error for a donated argument in the memory of another one."""
    return ValueError(f"arguments {number} and {other} share memory, and argument {number} is donated")
