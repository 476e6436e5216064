"""Running a `Program` on a CUDA device.

May import lowering/program, runtime, runtime/device, runtime/backends.
"""
