"""Solvers of orders for a low peak; know no IR.

May import no other package of ours.
"""
