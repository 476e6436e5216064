"""The library's `compile`, the commands, and what developers run.

May import no other package of ours.
"""
