"""The reducer of failing programs.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/compiler, tools/commands.
"""
