"""Records of devices, and the pass that attaches one.

May import dialects/types, dialects/interfaces, dialects/gpu, passes.
"""
