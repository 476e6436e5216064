"""The HTML page of a module.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, tools/source, tools/targets.
"""
