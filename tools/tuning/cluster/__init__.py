"""Tuning on the workers of a dask cluster.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/compiler, tools/commands, tools/watching, tools/steering, tools/tuning/search, tools/tuning/joint.
"""
