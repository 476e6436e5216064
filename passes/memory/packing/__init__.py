"""Solvers of offset allocation; know no IR.

May import no other package of ours.
"""
