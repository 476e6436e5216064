// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation | filecheck %s

// A promise of the other platform, and a device that is nowhere.
// CHECK: error: 'graph.matmul' use_implementation "numpy.matmul" is not among what is allowed: cublaslt.matmul, {{.*}}cublas.matmul, cublas.matmul_fast
builtin.module attributes {fused.device = {name = "h100"}} {
  func.func @promise(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
      %1 = graph.matmul %0, %0 {use_implementation = "numpy.matmul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      fused.yield %1 : tensor<4x4xf32>
    }
    func.return %a : tensor<4x4xf32>
  }
}

// -----

// CHECK: error: 'select-implementation': attribute 'fused.device': option 'device': unknown 'nowhere'; expected one of
// CHECK-SAME: run gpu-attach-device again
builtin.module attributes {fused.device = {name = "nowhere"}} {
  func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
    func.return %x : tensor<4x4xf32>
  }
}
