"""`compile()`: pipelines, the registry of passes, programs to call; knows no front end.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source.
"""
