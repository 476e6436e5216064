"""From kernels to programs; here the errors, and hints that stages of lowering leave each other.

May import dialects/types, dialects/fused.
"""
