"""Facts about kernels: loop bodies, access, loop order, aliases and live ranges, shapes.

May import dialects/types, dialects/scalar, dialects/interfaces, dialects/fused.
"""
