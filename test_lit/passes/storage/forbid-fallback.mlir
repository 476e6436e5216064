// RUN: fuse-opt %s --assign-storage=forbid-fallback --verify-diagnostics

func.func @f(%a: tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32> {
  // expected-error@+1 {{'graph.exp' has no way to run on operand 0 stored as csr: it is made dense, and fallbacks are forbidden; convert it by graph.to_storage}}
  %0 = graph.exp %a : (tensor<4x5xf32, #graph.csr<capacity = 7>>) -> tensor<4x5xf32>
  func.return %0 : tensor<4x5xf32>
}
