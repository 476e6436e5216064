"""The CUDA driver, NVRTC and nvcc, graphs, memory of a device.

May import lowering/program, runtime, runtime/host.
"""
