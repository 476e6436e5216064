"""Reads and writes at positions that are data, running totals and searches, by tasks of the pool.

May import dialects/implementation, lowering/program, runtime, runtime/host, lowering/reference/kernels.
"""
