"""What compares and bisects decisions, and what is expected of programs.

May import dialects, dialects/*, passes, passes/*, tools/source.
"""
