"""Running a `Program` on the CPU, also step by step and poisoned.

May import dialects/implementation, lowering/program, runtime, runtime/host, runtime/backends, runtime/backends/*.
"""
