"""Running programs; here what all devices share.

May import lowering/program.
"""
