"""
Pipelines of passes: read from text, and run with the module verified before the first and after every pass. Where a pass has
changed nothing, which most do to most programs, what was found before it still holds.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache, partial
from keyword import iskeyword
from pathlib import Path
from traceback import extract_tb
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Union, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass
    from xdsl.utils.arg_spec import ArgSpec, ParameterListType

    from fuse_opt.tools.source.module_state import State

from fuse_opt.passes.deprecated_spellings import current_spelling
from fuse_opt.passes.fusion.rules import FUSION_RULES, SECOND_ROUND
from fuse_opt.tools.compiler.registry import available_passes

DEFAULT_PIPELINE: tuple[str, ...] = (
    "infer-shapes",
    "assign-storage",
    "choose-storage",
    "lower-storage",
    "canonicalize",
    "fold-constants",
    "cse",
    "dce",
    "partition",
    "select-composites",
    "decompose",
    "dce",
    "open-reads",
    "open-windows",
    "canonicalize",
    "cse",
    "align-rows",
    "keep-on-device",
    "reassociate-row-sums",
    "fold-frozen-factors",
    "assign-layouts",
    "cancel-conversions",
    "hoist-frozen",
    "separate-attention",
    "rematerialize",
    *FUSION_RULES,
    *SECOND_ROUND,
    "duplicate-producers",
    "fuse-horizontal",
    "explain-fusion",
    "wrap-kernels",
    "select-implementation",
    "pack-weights",
    "pack-operands",
    "schedule-kernels",
    "order-for-memory",
    "infer-inplace",
    "plan-memory",
    "bulk-launches",
)
"""What `compile` runs."""

FOR_CPUS: tuple[str, ...] = ("partition", "pack-weights", "pack-operands")
"""Of these, what makes programs of other targets slower."""

UNFUSED_PIPELINE: tuple[str, ...] = (
    "assign-storage",
    "lower-storage",
    "select-composites",
    "decompose",
    "assign-layouts",
    "wrap-kernels",
    "select-implementation",
    "schedule-kernels",
    "plan-memory",
    "bulk-launches",
)
"""One kernel for each op: what fusion is compared with."""

LAUNCH_BY_LAUNCH = "bulk-launches{max-launches=1}"
"""The pass that gives each launch a segment of its own."""


@dataclass(frozen=True)
class NamedPipeline:
    """Several passes under one name."""

    passes: tuple[str, ...]
    summary: str


PIPELINES = {
    "default": NamedPipeline(DEFAULT_PIPELINE, "Simplify, fuse, schedule and plan memory: what `compile` runs."),
    "unfused": NamedPipeline(UNFUSED_PIPELINE, "One kernel for each op: what fusion is compared with."),
}
"""Names that stand for several passes wherever the name of a pass may stand."""


_PLAIN = re.compile(r"[-+]?\d*\.?\d*(?:[eE][-+]?\d+)?|[-+\w]*")
"""A number or a word as the pipeline's syntax has them without quotes."""
_NAME = re.compile(r"[A-Za-z][-\w]*")
_AROUND_COMMAS = re.compile(r'("(?:\\.|[^"\\])*")|\s*,\s*')


TUNED_OPTION = "tuned"
"""The option of passes that is the path of what was measured."""


class UsageError(ValueError):
    """The caller asked for something that does not exist: a pass, an option, a target. One line says which."""


class Observer(Protocol):
    """Told about the steps of a pipeline as it runs."""

    def verified(self, module: ModuleOp, seconds: float) -> None:
        """The module passed the verifiers, before the first pass or after one."""
        ...

    def applied(self, pass_: ModulePass, module: ModuleOp, seconds: float) -> None:
        """A pass was applied; the module is not verified yet."""
        ...


def parse_pipeline(text: str) -> list[ModulePass]:
    """
    The passes that `a,b{x=1 y=2}` or `builtin.module(a,b{x=1 y=2})` names; the names of PIPELINES stand for several.
    Raises UsageError.
    """
    from xdsl.utils.arg_spec import ArgSpec
    from xdsl.utils.arg_spec import parse_pipeline as parse_specs
    from xdsl.utils.exceptions import ArgSpecParseError

    if _NAME.fullmatch(text):  # most are, and xDSL's lexer takes its time
        return _passes_of(ArgSpec(text, {}))
    inner = _AROUND_COMMAS.sub(lambda match: match[1] or ",", text.strip())
    while inner.startswith("builtin.module(") and inner.endswith(")"):
        inner = inner.removeprefix("builtin.module(")[:-1].strip()
    try:
        specs = list(parse_specs(inner))
    except (ArgSpecParseError, ValueError) as error:  # the first derives from BaseException
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UsageError(f"pipeline '{text}': {lines[-1] if lines else 'cannot be read'}") from None
    return [pass_ for spec in specs for pass_ in _passes_of(spec)]


def parse_pass_flag(name: str, options: str | None) -> list[ModulePass]:
    """The pass of `--name` or `--name=opt=value,opt2=value`; a value may itself be a list. Raises UsageError."""
    words: list[str] = []
    for word in (options or "").split(",") if options else []:
        if "=" in word or not words or "=" not in words[-1]:
            words.append(word)
        else:
            words[-1] += f",{word}"  # another element of the list before it
    return parse_pipeline(f"{name}{{{' '.join(_quoted(word) for word in words)}}}" if words else name)


def make_passes(pipeline: str | Sequence[str] | None) -> list[ModulePass]:
    """The passes of a pipeline given as text or as a sequence of texts; None is the default pipeline."""
    given: object = DEFAULT_PIPELINE if pipeline is None else pipeline
    texts = list(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else [given]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"pipeline: expected a text or texts, got {type(text).__name__}")
    return [pass_ for text in texts for pass_ in parse_pipeline(str(text))]


def run_pipeline(
    module: ModuleOp,
    passes: Sequence[ModulePass],
    ctx: Context,
    *,
    observer: Observer | None = None,
    verify: bool = True,
) -> None:
    """
    Applies the passes in place, with everything verified before the first and after every one of them; by the measured plan of
    the program, where a pass has a file of measured schedules that holds one. Without `verify` nothing is: for trials of passes
    on copies of what was verified, of which the chosen ones run again.

    Raises an OpVerifyError, which carries the op at fault as `.op`, or what a pass raises when it refuses its work.
    """
    verifier = _Verifier(observer, verify)
    verifier.verify(module, None)
    tuned = next((path for pass_ in passes if (path := getattr(pass_, TUNED_OPTION, ""))), "")
    if tuned:
        from fuse_opt.tools.steering.tuned_plan import run_planned

        def run(module: ModuleOp, passes: Sequence[ModulePass], observer: Observer | None = observer) -> None:
            _apply_all(passes, module, ctx, observer, _Verifier(observer, verify))

        if run_planned(tuned, module, passes, run, partial(run, observer=None)):
            return
    _apply_all(passes, module, ctx, observer, verifier)


def _apply_all(
    passes: Sequence[ModulePass], module: ModuleOp, ctx: Context, observer: Observer | None, verifier: _Verifier
) -> None:
    from fuse_opt.tools.compiler.native_packing import compiled_packing
    from fuse_opt.tools.watching.machine import on_this_machine

    with collection_paused(), compiled_packing(), on_this_machine():
        for pass_ in passes:
            start = time.perf_counter()
            apply_pass(pass_, ctx, module)
            if observer is not None:
                observer.applied(pass_, module, time.perf_counter() - start)
            verifier.verify(module, pass_)


def apply_pass(pass_: ModulePass, ctx: Context, module: ModuleOp) -> None:
    """Applies a pass; after one that is not of here, and so knows nothing of plans, those that do not hold are dropped."""
    if pass_.name in available_passes():
        pass_.apply(ctx, module)
        return
    from fuse_opt.passes.rewrite_pass import without_stale_plans

    with without_stale_plans(module), _faults_at_their_place(pass_):
        pass_.apply(ctx, module)


@contextmanager
def _faults_at_their_place(pass_: ModulePass) -> Generator[None]:
    """What the files of a pass of somebody else raise, if it is no refusal, is an error at the line that raised it."""
    from xdsl.utils.exceptions import DiagnosticException

    try:
        yield
    except DiagnosticException:
        raise
    except Exception as error:
        module = type(pass_).__module__
        folder = Path(getattr(sys.modules.get(module), "__file__", None) or "").parent
        frames = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
        if not frames or module.partition(".")[0] == "xdsl":
            raise
        from fuse_opt.passes.fusion.patterns.rule_files import refused_at

        what = f"pass '{pass_.name}' raised {type(error).__name__}: {error}"
        raise refused_at(frames[-1].filename, frames[-1].lineno or 1, (frames[-1].colno or 0) + 1, what) from error


@contextmanager
def collection_paused() -> Generator[None]:
    """No search for cyclic garbage in the body: with millions of IR objects alive, each search looks at all of them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Verifier:
    """Verifies a module again and again, as passes change it."""

    def __init__(self, observer: Observer | None, is_asked: bool = True) -> None:
        """Without `is_asked` it does nothing."""
        self._observer, self._is_asked = observer, is_asked
        self._verified: State = ()
        """The state of the module that was verified last."""

    def verify(self, module: ModuleOp, after: ModulePass | None) -> None:
        if not self._is_asked:
            return
        from fuse_opt.tools.source.module_state import is_in, state_of
        from fuse_opt.tools.source.verification import OpVerifyError, verify

        start = time.perf_counter()
        with collection_paused():
            is_known = is_in(module, self._verified)
        if not is_known:
            try:
                verify(module)
            except OpVerifyError as error:
                if after is None:
                    raise
                raise OpVerifyError(f"after pass '{after.name}': {error}", error.op) from error
            with collection_paused():
                self._verified = state_of(module)
        if self._observer is not None:
            self._observer.verified(module, time.perf_counter() - start)


def _passes_of(spec: ArgSpec) -> list[ModulePass]:
    if spec.name in PIPELINES:
        if spec.parameters:
            raise UsageError(f"pipeline '{spec.name}' takes no options")
        return [pass_ for text in PIPELINES[spec.name].passes for pass_ in parse_pipeline(text)]
    return [_configured(_pass_class(spec.name), spec)]


def _pass_class(name: str) -> type[ModulePass]:
    own = available_passes()
    if name in own:
        return own[name]()
    from xdsl.transforms import get_all_passes

    upstream = get_all_passes()
    if name in upstream:
        return upstream[name]()
    close = get_close_matches(name, [*own, *PIPELINES, *upstream], 1)
    raise UsageError(
        f"unknown pass '{name}'" + (f"; did you mean '{close[0]}'?" if close else "; --list-passes shows what there is")
    )


@cache
def _required(class_: type[ModulePass]) -> frozenset[str]:
    """The options that a pass cannot do without."""
    return frozenset(class_.required_fields() - {"name"})


@cache
def _hints(class_: type[ModulePass]) -> Mapping[str, Any]:
    """The types of a pass's fields: to read them takes longer than the rest of making the pass."""
    return get_type_hints(class_)


def _configured(class_: type[ModulePass], spec: ArgSpec) -> ModulePass:
    from xdsl.utils.arg_spec import ArgSpec

    if not spec.parameters and not _required(class_):
        return class_()
    hints = _hints(class_)
    known = [field.name for field in fields(class_) if field.init and field.name != "name"]
    parameters: dict[str, ParameterListType] = {}
    for option, values in spec.normalize_parameter_names().parameters.items():
        current = current_spelling(spec.name, _shown(option)).replace("-", "_")
        key = f"{current}_" if iskeyword(current) else current
        if key not in known:
            close = get_close_matches(key, known, 1)
            there_is = (
                f"did you mean '{_shown(close[0])}'?" if close else f"it has {_shown(', '.join(known)) or 'none'}"
            )
            raise UsageError(f"pass '{spec.name}' has no option '{_shown(key)}'; {there_is}")
        parameters[key] = _fitted(values, hints[key])
        if not _fits(parameters[key], hints[key]):
            given = ",".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
            raise UsageError(
                f"pass '{spec.name}', option '{_shown(key)}': expected {_type_text(hints[key])}, got '{given}'"
            )
    missing = sorted(class_.required_fields() - parameters.keys() - {"name"})
    if missing:
        raise UsageError(f"pass '{spec.name}' needs the option '{_shown(missing[0])}'")
    try:
        return class_.from_spec(ArgSpec(spec.name, parameters))
    except (ValueError, TypeError) as error:  # a value that the pass itself refuses
        raise UsageError(f"pass '{spec.name}': {error}") from None


def _fitted(values: ParameterListType, hint: Any) -> ParameterListType:
    """The values as the field's type wants them where the text leaves that open: flags, whole floats, numeric words."""
    accepted = _alternatives(hint)
    if not values:
        return (True,) if bool in accepted else values
    if float in accepted and int not in accepted:
        return tuple(float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values)
    if accepted == [str]:
        return tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
    return values


def _fits(values: ParameterListType, hint: Any) -> bool:
    from xdsl.utils.hints import isa

    if not values:
        return NoneType in _alternatives(hint)
    if len(values) == 1 and isa(values[0], hint):
        return not (isinstance(values[0], bool) and bool not in _alternatives(hint))
    return isa(values, hint)


def _alternatives(hint: Any) -> list[Any]:
    return list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]


def _type_text(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(value) for value in get_args(hint))
    if len(accepted := _alternatives(hint)) > 1:
        return " or ".join(_type_text(part) for part in accepted if part is not NoneType)
    words = {bool: "true or false", int: "an integer", float: "a number", str: "a word or a quoted string"}
    return words.get(hint, str(hint))


def _shown(option: str) -> str:
    """An option as users write it; a field cannot be called like a keyword of Python, and has a `_` more."""
    return option.rstrip("_").replace("_", "-")


def _quoted(word: str) -> str:
    """An element `opt=value` of a pass flag in the pipeline's syntax, where an unusual value stands in quotes."""
    name, equals, value = word.partition("=")
    if not equals or '"' in value:
        return word
    if re.fullmatch(r"[-+\w.,]+", value):  # a number, a word, or several
        elements = [element if _PLAIN.fullmatch(element) else f'"{element}"' for element in value.split(",")]
        return f"{name}={','.join(elements)}"
    escaped = value.replace("\\", "\\\\")
    return f'{name}="{escaped}"'
