"""One file a library: its routines for opaque ops.

May import lowering/program, runtime, runtime/host, runtime/device, runtime/backends/*.
"""
