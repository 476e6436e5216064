"""One file a library: its routines for opaque ops.

May import dialects/implementation, lowering/program, runtime, runtime/host, runtime/device, runtime/backends/*,
lowering/reference/kernels.
"""
