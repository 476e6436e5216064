"""Compiled graphs of a device as one CUDA graph: recorded once, replayed by one call of the driver.

May import frontends/torch/fx.
"""
