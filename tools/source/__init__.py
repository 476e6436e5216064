"""From text to a verified module, and errors with their place.

May import dialects, dialects/*, lowering.
"""
