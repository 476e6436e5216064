"""Programs of any extents, as text."""

SOFTMAXES = """func.func @main(%x: tensor<?x?xf32> {graph.dims = ["m", "n"]},
                     %y: tensor<?x?xf32> {graph.dims = ["n", "m"]}) -> tensor<?x?xf32> {
  %1 = graph.softmax %x : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %t = graph.permute_dims %1 {axes = array<i64: 1, 0>} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %a = graph.add %t, %y : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = graph.softmax %a : (tensor<?x?xf32>) -> tensor<?x?xf32>
  func.return %s : tensor<?x?xf32>
}"""
"""Two softmaxes along either axis: kernels alone, and an arena."""
