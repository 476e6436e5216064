"""The benchmark of programs for all sizes: its kernels are programs, with sizes for all that is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from sized_kernels import KERNELS, drawn

from fuse_opt.lowering.reference.interpreter import entry_function
from fuse_opt.tools.compiler.registry import make_context
from fuse_opt.tools.compiler.specialization import is_dynamic, specialize
from fuse_opt.tools.source.parsing import parse_module


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_programs_of_any_sizes(name: str) -> None:
    kernel, context = KERNELS[name], make_context()
    module = parse_module(kernel.text, name, context)
    module.verify()
    shapes = kernel.shapes(drawn(np.random.default_rng(3)))
    assert is_dynamic(entry_function(module, None))
    assert not is_dynamic(entry_function(specialize(module, None, shapes), None))
