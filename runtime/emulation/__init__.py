"""CUDA C on the CPU: the shim, the translation, programs step by step.

May import lowering/program, runtime.
"""
