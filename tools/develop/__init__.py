"""What makes generated files, and numbers of tables.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/compiler, tools/targets, tools/targets/*.
"""
