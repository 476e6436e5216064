"""Products and convolutions by cuBLAS, cuBLASLt and cuDNN, on a device.

May import dialects/implementation, lowering/program, runtime, runtime/device, lowering/reference/kernels.
"""
