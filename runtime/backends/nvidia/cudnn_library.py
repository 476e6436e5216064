"""cuDNN's library: where it is, and the functions that are called of it."""

from __future__ import annotations

import ctypes
import os

from fuse_opt.runtime.backends.nvidia.cudnn_problems import DIRECTIONS
from fuse_opt.runtime.backends.nvidia.device_calls import LibraryFile
from fuse_opt.runtime.device.driver_library import CudaError

_VERSIONS = (".9", ".8", "")
WITH_STEPS = "cudnnConvolutionBiasActivationForward"

_P, _I, _S, _D, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_double, ctypes.c_int64
_ASK = (_P, _P, _P, _P, _P, _I, _P, _P)
_RUN = (_P, _P, _P, _P, _P, _P, _P, _I, _P, _S, _P, _P, _P)
_SIGNATURES = {
    "cudnnCreate": (_P,),
    "cudnnDestroy": (_P,),
    "cudnnSetStream": (_P, _P),
    "cudnnGetVersion": (),
    "cudnnCreateTensorDescriptor": (_P,),
    "cudnnDestroyTensorDescriptor": (_P,),
    "cudnnSetTensorNdDescriptor": (_P, _I, _I, _P, _P),
    "cudnnCreateFilterDescriptor": (_P,),
    "cudnnDestroyFilterDescriptor": (_P,),
    "cudnnSetFilterNdDescriptor": (_P, _I, _I, _I, _P),
    "cudnnCreateConvolutionDescriptor": (_P,),
    "cudnnDestroyConvolutionDescriptor": (_P,),
    "cudnnSetConvolutionNdDescriptor": (_P, _I, _P, _P, _P, _I, _I),
    "cudnnSetConvolutionGroupCount": (_P, _I),
    "cudnnSetConvolutionMathType": (_P, _I),
    "cudnnCreateActivationDescriptor": (_P,),
    "cudnnDestroyActivationDescriptor": (_P,),
    "cudnnSetActivationDescriptor": (_P, _I, _I, _D),
    WITH_STEPS: (_P, _P, _P, _P, _P, _P, _P, _I, _P, _S, _P, _P, _P, _P, _P, _P, _P, _P),
    "cudnnBatchNormalizationForwardInference": (_P, _I, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _D),
    "cudnnBackendCreateDescriptor": (_I, _P),
    "cudnnBackendDestroyDescriptor": (_P,),
    "cudnnBackendSetAttribute": (_P, _I, _I, _L, _P),
    "cudnnBackendFinalize": (_P,),
    "cudnnBackendGetAttribute": (_P, _I, _I, _L, _P, _P),
    "cudnnBackendExecute": (_P, _P, _P),
    **{each.function: _RUN for each in DIRECTIONS.values()},
    **{each.ask: _ASK for each in DIRECTIONS.values()},
}

VARIABLE = "FUSE_OPT_CUDNN"
LIBRARY = LibraryFile("cudnn", "cuDNN", VARIABLE, lambda: os.environ.get(VARIABLE, ""), _SIGNATURES, _VERSIONS)


def library_version() -> int | None:
    """Of the library that is here, as 91300 of 9.13.0; None where there is none."""
    try:
        found = LIBRARY.load()
    except CudaError:
        return None
    return None if found is None else int(found.cudnnGetVersion())
