"""What NumPy's functions cost: products and convolutions by its BLAS, and what moves elements, between two foreign calls."""

from __future__ import annotations

from fuse_opt.dialects.implementation.site import Cost, Site

CALL = 5e-6
"""Seconds: out of the program's compiled code, through NumPy, and back."""
NATIVE_CALL = 1e-6
"""The same where compiled code makes the call."""
_BLAS = 0.85
"""Of the rate of packed operands: it packs both in each call."""
_PLAIN = 1e9
"""Operations a second of what no BLAS has: integers."""


def product_cost(site: Site) -> Cost:
    """Of a product of floats, at the BLAS's rate, with 16-bit operands and results converted from and to f32."""
    assert site.device is not None
    if not site.dtypes <= {"f16", "bf16", "f32", "f64"}:
        return Cost(site.operations, site.nbytes, _PLAIN, CALL)
    converted = 4 * sum(tensor.size for tensor in (*site.operands, *site.results) if tensor.itemsize == 2)
    element = "f64" if "f64" in site.dtypes else "f32"
    return Cost(site.operations, site.nbytes + converted, _BLAS * site.device.product_rate(element), CALL)


def convolution_cost(site: Site) -> Cost:
    """Of a product with unfolded windows, which are written and read once."""
    product = product_cost(site)
    op = site.op
    window = op.window_contraction() or op.weight_gradient() or op.input_gradient()
    unfolded = 0 if window is None else 2 * site.results[0].itemsize * window.operations // (2 * max(window.filters, 1))
    return Cost(product.flops, product.nbytes + unfolded, product.rate, product.call)


def moving_cost(site: Site) -> Cost:
    """Of reading operands and writing results once."""
    return Cost(nbytes=site.nbytes, call=CALL)
