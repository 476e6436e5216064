"""One printer for languages like C.

May import dialects/gpu, lowering, lowering/program, lowering/c/headers.
"""
