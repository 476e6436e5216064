"""What is left over of whole vectors, as one more vector of which some lanes do nothing.

May import dialects/types, lowering, lowering/kernel, lowering/loops.
"""
