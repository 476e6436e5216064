"""Solvers of orders for a low peak; know no IR.

May import passes/memory/packing.
"""
