"""Running a `Program` on a CUDA device.

May import lowering/program, lowering/emit, runtime, runtime/device, runtime/backends.
"""
