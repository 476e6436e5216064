"""What `-t NAME` prints.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, tools/source.
"""
