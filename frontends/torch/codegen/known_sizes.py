"""An imported graph where symbols have values: what is in it as sizes becomes numbers, all else is as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from fuse_opt.dialects.types.size import Size
from fuse_opt.frontends.torch.importer.imported import Imported


def imported_at(imported: Imported, values: Mapping[str, int]) -> Imported:
    """What a call with these numbers has; the module is the one for all sizes."""
    kept = {name: getattr(imported, name) for name in ("module", "counts", "constants")}
    found = {f.name: _at(getattr(imported, f.name), values) for f in fields(imported) if f.name not in kept}
    return Imported(**kept, **found)


def _at(item: Any, values: Mapping[str, int]) -> Any:
    match item:
        case Size():
            return item.evaluate(values)
        case list() | tuple():
            parts = [_at(part, values) for part in cast("list[Any] | tuple[Any, ...]", item)]
            return parts if isinstance(item, list) else tuple(parts)
        case dict():
            return {key: _at(part, values) for key, part in cast("dict[Any, Any]", item).items()}
        case _ if is_dataclass(item) and not isinstance(item, type):
            return replace(item, **{field.name: _at(getattr(item, field.name), values) for field in fields(item)})
        case _:
            return item
