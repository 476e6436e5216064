// RUN: fuse-opt %s --verify-diagnostics --backend=%S/Inputs/composites.py --select-composites | filecheck %s

// CHECK: error: 'graph.exp' use_implementation "numpy.exp" is not among what is allowed: whole.exp; remove the directive or name another one
func.func @unknown(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.exp %x {use_implementation = "numpy.exp"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
