"""Candidates of a kernel, what measures them, the race, the confirmation, and records.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/compiler, tools/commands, tools/watching, tools/steering.
"""
