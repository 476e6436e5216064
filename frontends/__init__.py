"""Importers: models of other tools as modules of graph ops."""
