"""Products, convolutions and products of csr matrices by cuBLAS, cuBLASLt, cuDNN and cuSPARSE, on a device.

May import dialects/types, dialects/interfaces, dialects/implementation, lowering/program, runtime, runtime/device,
lowering/reference/kernels.
"""
