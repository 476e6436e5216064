"""Dialects, what passes know of them, and the verifier.

May import dialects/interfaces.
"""
