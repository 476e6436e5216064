"""Kernels and passes looked at one by one: values against the reference, times, bytes.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/targets/html.
"""
