"""Compiling and loading C, threads, the foreign call.

May import lowering/program, runtime.
"""
