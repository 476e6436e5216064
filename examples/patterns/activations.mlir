// For docs/patterns.md: what the patterns of tanh.pdl.mlir and the rule of exp_chains.py are about.
func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %scaled = graph.multiply %x, %y : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %tanh = graph.tanh %scaled : (tensor<64xf32>) -> tensor<64xf32>
  %sum = graph.add %tanh, %y : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %exp = graph.exp %sum : (tensor<64xf32>) -> tensor<64xf32>
  %exps = graph.exp %exp : (tensor<64xf32>) -> tensor<64xf32>
  %last = graph.tanh %exps : (tensor<64xf32>) -> tensor<64xf32>
  %beside = graph.sqrt %last : (tensor<64xf32>) -> tensor<64xf32>
  %result = graph.add %last, %beside : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  func.return %result : tensor<64xf32>
}
