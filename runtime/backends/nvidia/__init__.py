"""Products and convolutions by cuBLAS, cuBLASLt and cuDNN, on a device.

May import dialects/types, dialects/interfaces, dialects/implementation, lowering/program, runtime, runtime/device,
lowering/reference/kernels.
"""
